"""The app: the routes, from a body to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from understill.errors import UserError
from understill.serve.http_errors import HANDLERS
from understill.serve.middleware import AccessMiddleware, RequestLog
from understill.serve.openapi import docs_page, openapi_schema
from understill.serve.schemas import FEW_VALUES, is_simple, read_question
from understill.serve.service import Service

PAGE = Path(__file__).parent / "page"
#: Seconds in which a body has to arrive.
BODY_TIMEOUT = 30
#: Bytes above which a body is large, and seconds that it waits for its turn among such.
LARGE, TURN_SECONDS = 2**16, 5

T = TypeVar("T")


def make_app(service: Service) -> ASGIApp:
    """Return the app that answers for a service."""
    settings = service.settings
    middleware: list[Middleware] = []
    if settings.keys or settings.hosts:
        middleware.append(Middleware(AccessMiddleware, keys=settings.keys, hosts=settings.hosts))
    routes = [
        Route("/v1/predict", predict, methods=["POST"]),
        Route("/v1/tasks", tasks),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/", page),
        Mount("/page", StaticFiles(directory=PAGE)),
        Route("/openapi.json", openapi),
        Route("/docs", docs),
    ]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.service, app.state.schema = service, openapi_schema(settings)
    if not settings.cors:
        return RequestLog(app, service)
    # Outside all else: a browser's preflight request carries no key, and a failure has to be read there too.
    shared = CORSMiddleware(
        app,
        allow_origins=settings.cors,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
        expose_headers=["Retry-After", "X-Request-Id"],
    )
    return RequestLog(shared, service)


async def predict(request: Request) -> Response:
    """Answer for texts, or for pairs of texts."""
    service: Service = request.app.state.service
    async with AsyncExitStack() as turn:
        question = read_question(await _body(request, service, turn))
        request.state.rows = len(question.texts)
        reply = await _unless_gone(request, service.answer(question))
        return Response(to_json(reply), media_type="application/json")


async def tasks(request: Request) -> Response:
    """Tell which tasks the model has, and how much one request may hold."""
    return JSONResponse(request.app.state.service.facts())


async def healthz(_: Request) -> Response:
    """Tell that the process is alive."""
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Tell whether to send requests here: not while the model is loaded, and not while the server drains."""
    status = request.app.state.service.status
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


async def metrics(request: Request) -> Response:
    """Give the metrics of all workers, as Prometheus reads them."""
    return Response(request.app.state.service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def page(_: Request) -> Response:
    """Give the page to try the model."""
    return FileResponse(PAGE / "index.html")


async def openapi(request: Request) -> Response:
    """Give the description for programs."""
    return JSONResponse(request.app.state.schema)


async def docs(request: Request) -> Response:
    """Give the description for people."""
    return HTMLResponse(docs_page(request.app.state.schema, str(request.base_url)))


async def _body(request: Request, service: Service, turn: AsyncExitStack) -> bytearray:
    """Read a body of JSON, a large one when it is its turn; too large a one no further than the limit."""
    limit, rows = service.settings.max_bytes, service.settings.max_rows
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        # This also keeps pages of other sites from asking: for JSON, a browser sends a preflight request first.
        raise UserError("the body must be JSON → send the header Content-Type: application/json")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UserError("the body must be plain JSON → send it uncompressed")
    over_limit = HTTPException(413, f"the body has more than {limit:,} bytes → send fewer rows at once")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:16]) > limit:  # Python itself refuses numbers of thousands of digits
        raise over_limit
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise over_limit
                if len(body) > LARGE >= len(body) - len(piece):
                    await _wait_for(service.large_requests, turn)
    except TimeoutError:
        late = f"the request body did not arrive within {BODY_TIMEOUT} s → send it without delay"
        raise HTTPException(408, late, {"Connection": "close"}) from None
    values = 0  # at most: texts may hold these signs too
    for start in range(0, len(body), LARGE) if len(body) > LARGE else ():
        values += sum(body.count(sign, start, start + LARGE) for sign in (b",", b"[", b"{"))
        await asyncio.sleep(0)  # others have their turns
    if values > FEW_VALUES and not is_simple(body, rows):
        raise HTTPException(413, f"the body has more values than {rows:,} rows can have → send fewer rows at once")
    return body


async def _wait_for(large_requests: asyncio.Semaphore, turn: AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await turn.enter_async_context(large_requests)
    except TimeoutError:
        message = "too many large requests are waiting; ask again in 5 s"
        raise HTTPException(503, message, {"Retry-After": "5"}) from None


async def _unless_gone(request: Request, answer: Awaitable[T]) -> T:
    """Wait for an answer, but no longer than the client does."""
    waiting = asyncio.current_task()
    assert waiting

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await answer
    except asyncio.CancelledError:
        if watching.done():
            waiting.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()
