"""Events: what a pipeline tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understill.train.fit import Evaluated, Fitted, Report, Scores


@dataclass(frozen=True)
class Reading:
    """Rows of a task are being read."""

    what: str
    rows: int


@dataclass(frozen=True)
class Tokenising:
    """Rows are being turned into tokens."""

    what: str
    rows: int
    total: int


@dataclass(frozen=True)
class Teaching:
    """A model's training begins, goes on from a checkpoint, or is not needed."""

    model: str
    state: str  # "new", "resumed", "done", "waiting"


@dataclass(frozen=True)
class Scored:
    """A finished model has its scores."""

    model: str
    scores: Scores


Event = Reading | Tokenising | Teaching | Scored | Report | Evaluated | Fitted
Watch = Callable[[Event], None]


def silent(event: Event) -> None:
    """Watch nothing."""
