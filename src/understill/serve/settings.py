"""Settings: how a server is to run, from its options."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from understill.errors import UserError

#: Where keys are looked for when no file is named.
KEYS = "UNDERSTILL_KEYS"

_KEY = re.compile(r"[!-~]+")
_SITE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d+))?(?:/.*)?", re.ASCII
)
_HOST = re.compile(r"[a-z\d.-]+|[\da-f:.]+")
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
    max_connections: int = 512  # of each worker
    keys: tuple[bytes, ...] = ()  # digests
    cors: tuple[str, ...] = ()  # sites, as browsers name them
    hosts: tuple[str, ...] = ()  # names under which it may be asked; any if there are none
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
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise UserError(f'--hosts "{host}": no name of a host → write it without scheme and port: example.org')


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
    origin = f"{scheme}://{host}" + (f":{port}" if port and port != _PORTS.get(scheme) else "")
    if site != origin:
        raise UserError(f'--cors "{site}": browsers name a site by scheme, host and port alone → write {origin}')


def digest(key: str) -> bytes:
    """Return what is kept and compared of a key."""
    return hashlib.sha256(key.encode()).digest()


def read_keys(file: Path | None) -> tuple[bytes, ...]:
    """Return the digests of the keys in a file, one to a line, or else in the environment, apart by spaces."""
    if file:
        place, unit, fix = f"--keys {file}", "line", "write one to a line"
        keys = _lines_of(file)
    elif KEYS in os.environ:  # if it was to hold a key and does not, going on would let everybody in
        place, unit, fix = KEYS, "key", "write one into it, or unset it"
        keys = os.environ[KEYS].split()
    else:
        return ()
    numbered = [(number, key) for number, key in enumerate(keys, 1) if key]
    for number, key in numbered:  # what is refused is named by its place, never shown
        if not _KEY.fullmatch(key):
            plain = "letters, digits and signs of ASCII, without spaces"
            raise UserError(f"{place}, {unit} {number}: a header could not carry this key → use {plain}")
    if not numbered:
        raise UserError(f"{place}: no key in it → {fix}")
    return tuple(digest(key) for _, key in numbered)


def _lines_of(file: Path) -> list[str]:
    """Return the lines of a file, of which comments are empty."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"--keys {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--keys {file}: no text in UTF-8 → save it as plain text, a key to a line") from None
    return ["" if line.lstrip().startswith("#") else line.strip() for line in lines]
