"""Disk: files and folders that are whole or not there, also after a crash."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds without a write after which a half-written folder is taken for a dead process's leftover.
STALE = 3600.0


def sync(path: Path) -> None:
    """Make sure a file, or the names in a folder, have reached the disk."""
    if path.is_dir() and os.name != "posix":
        return  # elsewhere folders cannot be opened
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make sure a folder and all that lies below it have reached the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        building.write_bytes(content)
        sync(building)
        building.replace(path)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_json(path: Path, values: Any) -> None:
    """Write JSON, whole or not at all."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def fingerprint(values: Any) -> str:
    """Return the digest of plain values; the same values give the same digest on every machine."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sweep(folder: Path, pattern: str) -> None:
    """Remove folders that processes which died left half-written; one still at work has written lately."""
    for part in folder.glob(pattern):
        try:
            newest = max(path.stat().st_mtime for path in (part, *part.iterdir()))
        except OSError:  # its owner removes it at this moment
            continue
        if time.time() - newest > STALE:
            shutil.rmtree(part, ignore_errors=True)


def publish(part: Path, folder: Path, sound: Callable[[], bool]) -> bool:
    """Rename a whole folder into place; where another is there already, keep it if it is sound.

    Of two processes that make the same, the second keeps the first's. False when it cannot be put there.
    """
    for _ in range(5):
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        else:
            sync(folder.parent)
            return True
        if sound():
            return True
        _discard(folder)
    return False


def _discard(folder: Path) -> None:
    """Move a broken folder aside in one step, then delete it; whoever has it mapped keeps what is mapped."""
    aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        folder.rename(aside)
    except FileNotFoundError:  # another process was quicker
        return
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)
