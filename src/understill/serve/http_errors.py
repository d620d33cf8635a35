"""HTTP errors: what went wrong with a request, as a status and one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from understill.errors import UserError
from understill.serve.batching import QueueFull

#: The status under which a request is counted whose client left before its answer; nobody reads it.
CLIENT_LEFT = 499
#: What Starlette itself refuses, in words.
_BY_STATUS = {
    404: "not found → the demo page is at /, the API reference at /docs",
    405: "method not allowed → see /docs for the right one",
}


async def respond(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed; what is nobody's mistake but the server's is in its log."""
    match error:
        case HTTPException():
            return _refusal(_BY_STATUS.get(error.status_code, error.detail), error.status_code, error.headers)
        case UserError():
            return _refusal(str(error), 422)
        case QueueFull():
            return _refusal(str(error), 503, {"Retry-After": str(error.seconds)})
        case ClientDisconnect():
            return Response(status_code=CLIENT_LEFT)
    return _refusal(f"the server failed; its log tells more of request {request.state.number}", 500)


#: For Starlette, which calls the handler of the nearest class.
HANDLERS: dict[type[Exception], ExceptionHandler] = dict.fromkeys(
    (HTTPException, UserError, QueueFull, ClientDisconnect, Exception), respond
)


def _refusal(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
