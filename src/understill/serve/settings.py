"""Settings: all that a server is told when it starts."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from understill.errors import UserError

#: Where keys are looked for when no file is named.
KEYS = "UNDERSTILL_KEYS"

_KEY = re.compile(r"[!-~]+")
_SITE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d+))?(?:/.*)?", re.ASCII
)
_PORTS = {"http": "80", "https": "443"}  # which browsers leave out


@dataclass(frozen=True)
class ServerSettings:
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
    cors: tuple[str, ...] = ()  # sites, as browsers name them
    log: str = "all"
    drain: float = 1.0  # seconds
    top_k: int | None = None  # classes whose probabilities are given where a question does not say; all

    def __post_init__(self) -> None:
        if self.queue < self.max_rows:
            fix = f"write --queue {self.max_rows}, or --max-rows {self.queue}"
            raise UserError(f"a queue of {self.queue} rows never has room for a request of {self.max_rows} → {fix}")
        if self.log not in ("all", "errors"):
            raise UserError(f'--log "{self.log}": write all or errors')
        for site in self.cors:
            _check_site(site)


def name_of(folder: Path) -> str:
    """Name a model after its folder, and what a run has exported or keeps under `models` after the run too."""
    parts = Path(os.path.abspath(folder)).parts
    if len(parts) > 3 and parts[-2] in ("export", "models"):
        return f"{parts[-3]}/{parts[-1]}"
    return parts[-1]


def _check_site(site: str) -> None:
    """Refuse a site that no browser would name so; `*` is every site."""
    parts = _SITE.fullmatch(site.strip())
    if site == "*":
        return
    if not parts:
        raise UserError(
            f"--cors \"{site}\": no site → write scheme://host, such as https://example.org, or '*' for all"
        )
    scheme, host, port = (parts["scheme"] or "https").lower(), parts["host"].lower(), parts["port"]
    named = f"{scheme}://{host}" + (f":{port}" if port and port != _PORTS.get(scheme) else "")
    if site != named:
        raise UserError(f'--cors "{site}": browsers name a site by scheme, host and port alone → write {named}')


def digest(key: str) -> bytes:
    """Return what is kept and compared of a key."""
    return hashlib.sha256(key.encode()).digest()


def read_keys(file: Path | None) -> tuple[bytes, ...]:
    """Return the digests of the keys in a file, one to a line, or else in the environment, apart by spaces."""
    if file:
        return _digests(f"--keys {file}", "line", _lines_of(file), "write one to a line")
    if KEYS not in os.environ:
        return ()
    # A variable that was to hold a key and does not is a slip that would let everybody in.
    return _digests(KEYS, "key", enumerate(os.environ[KEYS].split(), 1), "write one into it, or unset it")


def _lines_of(file: Path) -> list[tuple[int, str]]:
    """Return the lines of a file with their numbers, without empty ones and comments."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"--keys {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--keys {file}: no text in UTF-8 → save it as plain text, a key to a line") from None
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def _digests(place: str, unit: str, keys: Iterable[tuple[int, str]], fix: str) -> tuple[bytes, ...]:
    """Return the digests of numbered keys; what is refused is told by its place, never shown."""
    found = []
    for number, key in keys:
        if not _KEY.fullmatch(key):
            plain = "letters, digits and signs of ASCII, without spaces"
            raise UserError(f"{place}, {unit} {number}: a header could not carry this key → use {plain}")
        found.append(digest(key))
    if not found:
        raise UserError(f"{place}: no key in it → {fix}")
    return tuple(found)
