"""The answers that were paid for, kept in one SQLite file that all runs of an output folder share."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from understill.atomic import fingerprint
from understill.errors import UserError, counted

log = logging.getLogger(__name__)

FILE = "answers.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL, tops TEXT NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL, checksum TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    scope TEXT PRIMARY KEY, requests INTEGER NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL
) WITHOUT ROWID;
"""

#: What is wrong with the surroundings of a database and not with itself: no room, no right, another process.
_AROUND = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
#: What SQLite raises; of a damaged file its own message may be no text.
_BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError)

Tops = tuple[tuple[tuple[str, float], ...], ...]


@dataclass(frozen=True)
class LlmReply:
    """What a server answered to one request."""

    text: str
    tops: Tops = ()  # for each token, the likeliest ones with their log-probabilities, the written one first
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Spent:
    """What was spent so far."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.tokens_in + self.tokens_out


class AnswerCache:
    """Replies by the digest of model and request; each is on disk before anything is done with it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        try:
            # An engine may ask from another thread; there is only ever one at a time.
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.text_factory = partial(str, encoding="utf-8", errors="replace")  # checksums tell what is damaged
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except _BROKEN as error:
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> UserError:
        """Say what is wrong: with the surroundings, or with the file."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _AROUND:
            return UserError(f"{self.path}: {error} → see to the disk and to other runs; the same command goes on")
        fix = "move it away; what it holds has to be asked again"
        return UserError(f"{self.path}: the answers cannot be read ({error}) → {fix}")

    def _row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """Run a query, and return its first row."""
        try:
            row: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        except _BROKEN as error:
            raise self._broken(error) from None
        return row

    def get(self, key: str) -> LlmReply | None:
        """Return a reply that was paid for before; one that was damaged since has to be paid for again."""
        result = self._row(
            "SELECT text, tops, tokens_in, tokens_out, seconds, checksum FROM replies WHERE key = ?", key
        )
        if result is None:
            return None
        *row, checksum = result
        if checksum != _checksum(key, row):
            log.warning("%s: an answer does not match its checksum; it is asked for again", self.path)
            return None
        tops = tuple(tuple((token, value) for token, value in position) for position in json.loads(row[1]))
        return LlmReply(row[0], tops, *row[2:])

    def damaged(self) -> str:
        """Say how many answers are not what was kept; empty where all are."""
        try:
            rows = self._db.execute("SELECT key, text, tops, tokens_in, tokens_out, seconds, checksum FROM replies")
            bad = sum(_checksum(key, row) != checksum for key, *row, checksum in rows)
        except _BROKEN as error:
            return str(self._broken(error))
        return f"{counted(bad, 'answer')} changed or damaged" if bad else ""

    def known(self, keys: Sequence[str]) -> int:
        """Count the requests that were answered before."""
        return sum(self._row("SELECT 1 FROM replies WHERE key = ?", key) is not None for key in keys)

    def seconds(self, model: str) -> float | None:
        """Return how long an answer of a model takes on average; None where there is none yet."""
        row = self._row("SELECT AVG(seconds) FROM replies WHERE model = ?", model)
        return float(row[0]) if row and row[0] is not None else None

    def put(self, key: str, model: str, reply: LlmReply, scope: str) -> None:
        """Keep a reply, and count its tokens."""
        row = (reply.text, json.dumps(reply.tops), reply.tokens_in, reply.tokens_out, reply.seconds)
        values = (key, model, *row, time.time(), _checksum(key, row))
        self._row("BEGIN IMMEDIATE")
        with self._db:  # all of it, or nothing
            self._row("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
            self._add(scope, 0, reply.tokens_in, reply.tokens_out)

    def count_request(self, scope: str) -> None:
        """Count a request before it is sent, so that one that never comes back is counted too."""
        self._add(scope, 1, 0, 0)

    def spent(self, scope: str) -> Spent:
        """Return what was spent under a name."""
        amounts = "CAST(requests AS INTEGER), CAST(tokens_in AS INTEGER), CAST(tokens_out AS INTEGER)"
        row = self._row(f"SELECT {amounts} FROM spent WHERE scope = ?", scope)
        return Spent(*row) if row else Spent()

    def _add(self, scope: str, *amounts: int) -> None:
        update = ", ".join(f"{name} = {name} + excluded.{name}" for name in ("requests", "tokens_in", "tokens_out"))
        self._row(f"INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET {update}", scope, *amounts)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _checksum(key: str, row: Sequence[object]) -> str:
    return fingerprint([key, *map(str, row)])


def request_key(body: dict[str, Any]) -> str:
    """Return the digest of a request: model, prompt and text, and how the answer is drawn."""
    return blake2b(
        json.dumps(body, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass"), digest_size=20
    ).hexdigest()
