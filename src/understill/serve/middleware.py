"""Middleware: what happens to every request, whatever its route: id, key, headers, log line, metrics."""

from __future__ import annotations

import hmac
import itertools
import logging
import re
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understill.serve.http_errors import CLIENT_LEFT
from understill.serve.logs import log_error, log_event
from understill.serve.service import Service
from understill.serve.settings import digest

ROUTES = ("/", "/v1/predict", "/v1/tasks", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
#: What load balancers ask, by whatever name.
PROBES = ("/healthz", "/readyz")
#: What needs no key: probes, the page, which asks for one, and what it is about.
OPEN = ("/", "/healthz", "/readyz", "/docs", "/openapi.json", "/page")
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),  # a newer version must not meet the older one's page
)

_HOST = re.compile(r"(\[[^]]*\]|[^:]*?)\.?(?::\d*)?")  # with a port or without
_ID = re.compile(rb"[\w.-]{1,64}", re.ASCII)


def route_of(path: str) -> str:
    """Return a request's route; an unknown path is not repeated, since it may hold anything."""
    if path in ROUTES:
        return path
    return "/page" if path.startswith("/page/") else "unknown"


class RequestLog:
    """Gives each request an id, counts it, and logs it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.series, self.numbers = secrets.token_hex(4), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note what became of it."""
        began, route = time.perf_counter(), route_of(scope["path"])
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        number = given.decode() if _ID.fullmatch(given) else f"{self.series}-{next(self.numbers)}"
        state = scope["state"] = {"number": number, "status": 0}

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                # A client that is told so does not send its next request to a server that drains.
                closing = [(b"connection", b"close")] if self.service.status == "draining" else []
                extra = [*HEADERS, (b"x-request-id", number.encode()), *closing]
                message = {**message, "headers": [*message["headers"], *extra]}
            try:
                await send(message)
            except Exception:  # uvicorn has refused the request itself, after we had begun with it
                state["status"] = CLIENT_LEFT
                raise ClientDisconnect from None

        try:
            await self.app(scope, receive, note)
        except Exception as error:
            if state["status"] != CLIENT_LEFT:
                log_error("a request failed", error, id=number)
        finally:
            seconds, status = time.perf_counter() - began, state["status"]
            self.service.metrics.count_request(route, status, seconds)
            log_event(
                "request",
                logging.INFO if status < 400 or status == CLIENT_LEFT else logging.WARNING,
                id=number,
                method=scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other",
                route=route,
                status=status,
                rows=state.get("rows"),
                milliseconds=round(1000 * seconds, 3),
            )


class AccessMiddleware:
    """Answers only requests that name this host, where names are given, and carry a key, where keys are."""

    def __init__(self, app: ASGIApp, keys: Sequence[bytes], hosts: Sequence[str]) -> None:
        self.app, self.keys, self.hosts = app, keys, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        route, headers = route_of(scope["path"]), Headers(scope=scope)
        refusal: ASGIApp = self.app
        if self.hosts and route not in PROBES and not self._ours(headers):
            message = "this server is not asked by that name → ask localhost, or start it with --hosts NAME"
            refusal = JSONResponse({"error": message}, 421)
        elif self.keys and route not in OPEN and not self._known(headers):
            message = "a key is needed → send it in the header Authorization: Bearer KEY"
            refusal = JSONResponse({"error": message}, 401, headers={"WWW-Authenticate": "Bearer"})
        await refusal(scope, receive, send)

    def _ours(self, headers: Headers) -> bool:
        """Whether the host that is asked is one of ours; every browser names one."""
        match = _HOST.fullmatch(headers.get("host", "localhost").lower())
        return match is not None and match[1].strip("[]") in self.hosts

    def _known(self, headers: Headers) -> bool:
        """Compare with every key, so that the time it takes tells nothing."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = digest(key.strip())
        matches = [hmac.compare_digest(given, known) for known in self.keys]
        return scheme.lower() == "bearer" and any(matches)
