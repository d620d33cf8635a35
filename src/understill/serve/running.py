"""Running: the server's process, from its socket to its end."""

from __future__ import annotations

import uvicorn

from understill.serve.app import make_app
from understill.serve.settings import Settings


def serve(settings: Settings) -> None:
    """Serve a model until the process is told to stop."""
    uvicorn.run(make_app(settings), host=settings.host, port=settings.port, log_level="warning")
