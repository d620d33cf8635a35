"""Logs: one line of JSON for each request and each event, never with a text or a key in it."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

events = logging.getLogger("understill.serve")
requests = events.getChild("requests")  # of which there may be thousands a second


class JsonFormatter(logging.Formatter):
    """Writes a record as a line of JSON, with the worker's process id where there are several."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self.worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of an exception only its type and place, since its message may quote somebody's text."""
        facts: dict[str, Any] = getattr(record, "facts", {})
        if record.exc_info and (error := record.exc_info[1]):
            steps = [
                f"{Path(step.filename).name}:{step.lineno} {step.name}"
                for step in traceback.extract_tb(error.__traceback__)[-3:]
            ]
            facts = facts | {"error": type(error).__name__, "at": " < ".join(reversed(steps))}
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage().strip()}
        return json.dumps(line | self.worker | facts)


def set_up_logs(log: str, worker: int | None = None) -> None:
    """Send what this program and its libraries log to stderr, as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(worker))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    events.setLevel(logging.INFO)
    requests.setLevel(logging.INFO if log == "all" else logging.WARNING)


def log_event(event: str, level: int = logging.INFO, /, **facts: Any) -> None:
    """Log an event with its facts."""
    (requests if event == "request" else events).log(level, event, extra={"facts": facts})


def log_error(event: str, error: BaseException, /, **facts: Any) -> None:
    """Log an exception by its type and place."""
    events.error(event, exc_info=error, extra={"facts": facts})
