"""Locks of an output folder: nothing is cleaned away while somebody is at work there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from understill.errors import UserError


@contextmanager
def in_use(output: Path) -> Iterator[None]:
    """Let others know that an output folder is in use."""
    office = output / ".at-work"
    office.mkdir(parents=True, exist_ok=True)
    path = office / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.lock"
    with FileLock(office / "door"):  # whoever cleans holds the door shut
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        path.unlink(missing_ok=True)


@contextmanager
def unused(output: Path) -> Iterator[None]:
    """Keep an output folder to oneself, or say that somebody is at work in it."""
    office = output / ".at-work"
    office.mkdir(parents=True, exist_ok=True)
    with FileLock(office / "door"):
        for path in office.glob("*.lock"):
            try:
                with FileLock(path, timeout=0):
                    pass
            except Timeout:
                raise UserError(f"{output}: a run is at work in this folder; wait until it has finished") from None
            path.unlink(missing_ok=True)  # of a process that died
        yield
