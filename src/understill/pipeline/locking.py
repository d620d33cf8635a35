"""Locks: one process at a time makes an artefact, and nothing is cleaned away while somebody is at work."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from understill.errors import UserError
from understill.events import Waiting, Watch


@contextmanager
def alone(folder: Path, what: str, watch: Watch) -> Iterator[None]:
    """Let one process at a time make an artefact; the others wait and then find it made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        watch(Waiting(what))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def patiently(folder: Path, what: str, watch: Watch) -> Generator[None, None, FileLock]:
    """Take the lock of an artefact, giving way while another process has it.

    Whoever holds locks of several models must not wait for one: the other process may be waiting for one of theirs.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock, waiting = FileLock(f"{folder}.lock"), False
    while True:
        try:
            lock.acquire(timeout=0)
            return lock
        except Timeout:
            if not waiting:
                watch(Waiting(what))
            waiting = True
        time.sleep(1e-3)
        yield


@contextmanager
def at_work(output: Path) -> Iterator[None]:
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
def nobody_at_work(output: Path) -> Iterator[None]:
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
