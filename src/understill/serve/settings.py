"""Settings: all that a server is told when it starts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from understill.errors import UserError

#: Where keys are looked for when no file is named.
KEYS = "UNDERSTILL_KEYS"


@dataclass(frozen=True)
class Settings:
    """How a server is to run."""

    model: Path
    teacher: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    batch: int = 256  # rows of one pass: with 64, small models answered a fifth fewer
    wait: float = 0.0  # milliseconds that a pass waits for more rows; while the model is busy they gather anyway
    queue: int = 2048  # rows that may wait: a few seconds of work, and who would wait longer had better ask again
    max_rows: int = 512
    max_characters: int = 20_000  # far more than any encoder reads
    max_bytes: int = 4 * 2**20
    keys: tuple[bytes, ...] = ()  # digests
    cors: tuple[str, ...] = ()  # origins
    log: str = "all"
    drain: float = 1.0  # seconds

    def __post_init__(self) -> None:
        if self.queue < self.max_rows:
            fix = f"write --queue {self.max_rows}, or --max-rows {self.queue}"
            raise UserError(f"a queue of {self.queue} rows never has room for a request of {self.max_rows} → {fix}")
        if self.log not in ("all", "errors"):
            raise UserError(f'--log "{self.log}": write all or errors')


def name_of(folder: Path) -> str:
    """Name a model after its folder, and what a run has exported or keeps under `models` after the run too."""
    parts = Path(os.path.abspath(folder)).parts
    if len(parts) > 3 and parts[-2] in ("export", "models"):
        return f"{parts[-3]}/{parts[-1]}"
    return parts[-1]


def digest(key: str) -> bytes:
    """Return what is kept and compared of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def read_keys(file: Path | None) -> tuple[bytes, ...]:
    """Return the digests of the keys in a file, one to a line, or else in the environment, apart by spaces."""
    if file is None:
        return digests(os.environ.get(KEYS, "").split())
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--keys {file}: cannot be read: {error}") from None
    found = digests([line for line in lines if line and not line.startswith("#")])
    if not found:
        raise UserError(f"--keys {file}: no key in it → write one to a line")
    return found


def digests(keys: Sequence[str]) -> tuple[bytes, ...]:
    """Return the digests of keys."""
    return tuple(digest(key) for key in keys)
