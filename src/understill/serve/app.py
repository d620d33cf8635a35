"""The app: the routes, from a body to an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError

from understill.errors import UserError
from understill.loading import load
from understill.runtime.answers import Answer, Answerer
from understill.serve.contract import Question
from understill.serve.settings import Settings, name_of

PAGE = Path(__file__).parent / "page"


def make_app(settings: Settings) -> FastAPI:
    """Return the app that serves a model."""
    models: dict[str, Answerer] = {}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        models["student"] = await asyncio.to_thread(load, settings.model)
        if settings.teacher:
            models["teacher"] = await asyncio.to_thread(load, settings.teacher)
        yield

    app = FastAPI(title="understill", lifespan=lifespan, docs_url=None, redoc_url=None)

    @app.post("/v1/predict")
    async def predict(request: Request) -> Response:
        try:
            question = Question.model_validate_json(await request.body())
        except ValidationError as error:
            return JSONResponse({"error": error.errors(include_url=False)[0]["msg"]}, 422)
        try:
            reply = await _ask(models["student"], settings.model, question, question.tasks)
            if question.teacher:
                if "teacher" not in models:
                    raise UserError("this server has no teacher → start it with --teacher MODEL")
                names = list(reply["answers"][0]) if reply["answers"] else None
                reply["teacher"] = await _ask(models["teacher"], settings.teacher or Path(), question, names)
                reply["differ"] = [
                    [name for name in one if one[name].get("label") != other[name].get("label")]
                    for one, other in zip(reply["answers"], reply["teacher"]["answers"], strict=True)
                ]
        except UserError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(reply)

    @app.get("/v1/tasks")
    async def tasks() -> dict[str, Any]:
        return {
            "model": name_of(settings.model),
            "teacher": name_of(settings.teacher) if settings.teacher else None,
            "limits": {
                "rows": settings.max_rows,
                "characters": settings.max_characters,
                "bytes": settings.max_bytes,
            },
            "tasks": [
                {
                    "name": task.name,
                    "kind": task.kind,
                    "pair": task.pair,
                    "labels": list(task.labels) if task.kind == "classification" else None,
                    "range": task.range,
                }
                for task in models["student"].tasks
            ],
        }

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        return {"status": "ready"}

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.middleware("http")
    async def headers(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        return response

    app.mount("/page", StaticFiles(directory=PAGE))
    return app


async def _ask(model: Answerer, folder: Path, question: Question, tasks: list[str] | None) -> dict[str, Any]:
    began = time.perf_counter()
    said = await asyncio.to_thread(model.predict, question.texts, question.pairs, tasks)
    rows = [{name: _plain(answers[number]) for name, answers in said.items()} for number in range(len(question.texts))]
    return {"model": name_of(folder), "answers": rows, "milliseconds": 1000 * (time.perf_counter() - began)}


def _plain(answer: Answer) -> dict[str, Any]:
    if answer.label is None:
        return {"score": answer.score}
    return {"label": answer.label, "probabilities": answer.probabilities}
