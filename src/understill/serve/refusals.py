"""Refusing: what went wrong with a request, as a status and one sentence."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from understill.errors import UserError
from understill.serve.batching import Full
from understill.serve.logs import tell_fault
from understill.serve.service import NotReady, TooMuch

#: The status under which a request is counted whose client did not wait; nobody reads it.
GONE = 499
#: What HTTP itself refuses, in words.
_BY_HTTP = {
    404: "there is nothing at this address → / is the page, /docs says what can be asked",
    405: "this address takes another method → /docs says which",
}


class TooSlow(Exception):
    """A body has not come in so many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the body has not come in {seconds} s → send it at once")


class Refuser:
    """Turns every error of the app behind it into an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and say what went wrong if something does."""
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http" or scope["state"].get("status"):  # an answer has begun; a second makes no sense
                raise
            refusal = known(error)
            if refusal is None:
                number = scope["state"]["number"]
                tell_fault("a request failed", error, id=number)
                refusal = _refusal(f"the server failed; its log tells more of request {number}", 500)
            await refusal(scope, receive, send)


def known(error: Exception) -> Response | None:
    """Return the answer to a request that cannot be answered as it is; None if it is the server that failed."""
    match error:
        case UserError():
            return _refusal(str(error), 413 if isinstance(error, TooMuch) else 422)
        case Full():
            return _refusal(str(error), 503, {"Retry-After": str(error.seconds)})
        case TooSlow():
            return _refusal(str(error), 408, {"Connection": "close"})
        case NotReady():
            return _refusal("the model is being loaded; ask again in 1 s", 503, {"Retry-After": "1"})
        case ClientDisconnect():
            return Response(status_code=GONE)
        case HTTPException():
            said = _BY_HTTP.get(error.status_code, str(error.detail))
            return _refusal(said, error.status_code, dict(error.headers or {}))
    return None


def _refusal(said: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": said}, status, headers)
