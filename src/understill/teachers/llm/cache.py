"""The answers that were paid for, kept in one SQLite file that all runs of an output folder share."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from understill.errors import UserError

FILE = "answers.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL, tops TEXT NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    scope TEXT PRIMARY KEY, requests INTEGER NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL
) WITHOUT ROWID;
"""

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
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            fix = "move it away; what it holds has to be asked again"
            raise UserError(f"{self.path}: the answers cannot be read ({error}) → {fix}") from None

    def get(self, key: str) -> LlmReply | None:
        """Return a reply that was paid for before."""
        row = self._db.execute(
            "SELECT text, tops, tokens_in, tokens_out, seconds FROM answers WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        tops = tuple(tuple((token, value) for token, value in position) for position in json.loads(row[1]))
        return LlmReply(row[0], tops, *row[2:])

    def known(self, keys: Sequence[str]) -> int:
        """Count the requests that were answered before."""
        return sum(
            self._db.execute("SELECT 1 FROM answers WHERE key = ?", (key,)).fetchone() is not None for key in keys
        )

    def seconds(self, model: str) -> float | None:
        """Return how long an answer of a model takes on average; None where there is none yet."""
        row = self._db.execute("SELECT AVG(seconds) FROM answers WHERE model = ?", (model,)).fetchone()
        return None if row[0] is None else float(row[0])

    def put(self, key: str, model: str, reply: LlmReply, scope: str) -> None:
        """Keep a reply, and count its tokens."""
        values = (key, model, reply.text, json.dumps(reply.tops), reply.tokens_in, reply.tokens_out, reply.seconds)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, time.time()))
        self._add(scope, 0, reply.tokens_in, reply.tokens_out)
        self._db.execute("COMMIT")

    def count_request(self, scope: str) -> None:
        """Count a request before it is sent, so that one that never comes back is counted too."""
        self._add(scope, 1, 0, 0)

    def spent(self, scope: str) -> Spent:
        """Return what was spent under a name."""
        row = self._db.execute("SELECT requests, tokens_in, tokens_out FROM spent WHERE scope = ?", (scope,)).fetchone()
        return Spent(*row) if row else Spent()

    def _add(self, scope: str, *amounts: int) -> None:
        update = ", ".join(f"{name} = {name} + excluded.{name}" for name in ("requests", "tokens_in", "tokens_out"))
        self._db.execute(
            f"INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET {update}", (scope, *amounts)
        )

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def request_key(body: dict[str, Any]) -> str:
    """Return the digest of a request: model, prompt and text, and how the answer is drawn."""
    return blake2b(
        json.dumps(body, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass"), digest_size=20
    ).hexdigest()
