"""Locks of an output folder: nothing is cleaned while a run uses it."""

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
    """Mark an output folder as in use; several processes may."""
    locks = output / ".at-work"
    locks.mkdir(parents=True, exist_ok=True)
    path = locks / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.lock"
    with FileLock(locks / "door"):  # held while somebody cleans
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        path.unlink(missing_ok=True)


@contextmanager
def unused(output: Path) -> Iterator[None]:
    """Hold an output folder exclusively; refused while a run uses it."""
    locks = output / ".at-work"
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / "door"):
        for path in locks.glob("*.lock"):
            try:
                with FileLock(path, timeout=0):
                    pass
            except Timeout:
                raise UserError(f"{output}: a run is at work in this folder; wait until it has finished") from None
            path.unlink(missing_ok=True)  # of a process that died
        yield
