"""The app: the routes, from a body to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic_core import to_json
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from understill.errors import UserError
from understill.serve.middleware import Doorkeeper, Recorder
from understill.serve.openapi import ANSWERS, describe, page_of
from understill.serve.prometheus import CONTENT_TYPE
from understill.serve.refusals import Refuser, TooSlow
from understill.serve.schemas import read_question
from understill.serve.service import Service, TooMuch

PAGE = Path(__file__).parent / "page"
#: Seconds that a body may take to come.
PATIENCE = 30

Found = TypeVar("Found")


class PlainRoute(APIRoute):
    """A route whose function takes the request and gives the response: nothing is left to be solved or checked."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = self._answer  # FastAPI's way to the function takes as long as all else that happens to a request

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response = await self.endpoint(Request(scope, receive))
        await response(scope, receive, send)


class PlainApp(FastAPI):
    """An app of routes alone; what else happens to a request is in the guard."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go to the route at once, past the layers that FastAPI has for errors, for what routes open, and the like."""
        scope["app"] = self
        await self.router(scope, receive, send)


def make_app(service: Service) -> ASGIApp:
    """Return the app that answers for a service."""
    app = PlainApp(title="understill", openapi_url=None, redirect_slashes=False)
    app.router.route_class = PlainRoute
    _add_predict(app, service)
    _add_facts(app, service)
    _add_page(app)
    _add_manual(app, describe(app.openapi(), service.settings))
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods == {"GET"}:
            route.methods = {"GET", "HEAD"}  # after the description, which has no need of it
    whole: ASGIApp = Refuser(app)
    if service.settings.keys:
        whole = Doorkeeper(whole, service.settings.keys)
    if service.settings.cors:
        # Outside the keys: a browser asks whether it may before it sends one.
        whole = CORSMiddleware(
            whole,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    return Recorder(whole, service)


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", **ANSWERS["/v1/predict"])
    async def predict(request: Request) -> Response:
        """Answer for texts, or for pairs of texts."""
        body = await _body(request, service.settings.max_bytes)
        question = read_question(body)
        request.state.rows = len(question.texts)
        reply = await _unless_gone(request, service.answer(question))
        return Response(to_json(reply), media_type="application/json")


def _add_facts(app: FastAPI, service: Service) -> None:
    @app.get("/v1/tasks", **ANSWERS["/v1/tasks"])
    async def tasks(_: Request) -> Response:
        """Tell which tasks the model has, and how much one request may hold."""
        return JSONResponse(service.facts())

    @app.get("/healthz", **ANSWERS["/healthz"])
    async def healthz(_: Request) -> Response:
        """Tell that the process is alive."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", **ANSWERS["/readyz"])
    async def readyz(_: Request) -> Response:
        """Tell whether to send requests here: not while the model is loaded, and not when the server is to end."""
        return JSONResponse({"status": service.status}, 200 if service.status == "ready" else 503)

    @app.get("/metrics", **ANSWERS["/metrics"])
    async def metrics(_: Request) -> Response:
        """Give the numbers of all workers, as Prometheus reads them."""
        return Response(service.measures.text(), headers={"Content-Type": CONTENT_TYPE})


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE))


def _add_manual(app: FastAPI, schema: dict[str, Any]) -> None:
    """Give the description of what has been added so far, for programs and for people."""

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(_: Request) -> Response:
        return JSONResponse(schema)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(page_of(schema, str(request.base_url)))


async def _body(request: Request, limit: int) -> bytes:
    """Read a body of JSON; one that is too large is refused before it is read, or where it passes the limit."""
    said: dict[bytes, bytes] = dict(request.scope["headers"])
    if said.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        # This also keeps pages of other sites from asking: for JSON, a browser asks the server for leave first.
        raise UserError("the body must be JSON → send the header Content-Type: application/json")
    if said.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UserError("the body must be plain JSON → send it uncompressed")
    too_much = TooMuch(f"the body has more than {limit:,} bytes → send fewer rows at once")
    length = said.get(b"content-length", b"")
    if length.isdigit() and int(length[:16]) > limit:  # of a longer number Python itself would complain
        raise too_much
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise too_much
    except TimeoutError:
        raise TooSlow(PATIENCE) from None
    return bytes(body)


async def _unless_gone(request: Request, asked: Awaitable[Found]) -> Found:
    """Wait for an answer, but no longer than the client does."""
    waiting = asyncio.current_task()
    assert waiting

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await asked
    except asyncio.CancelledError:
        if watching.done():
            waiting.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()
