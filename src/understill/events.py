"""Events: what a pipeline tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # which would import torch
    from understill.train.fit import Evaluated, Fitted, Report, Resumed, Scores


@dataclass(frozen=True)
class Reading:
    """Rows of a task are being read."""

    what: str
    rows: int


@dataclass(frozen=True)
class Checking:
    """Models or teachers of a plan are being looked at, one after the other."""

    what: str  # "timing student"
    done: int
    total: int


@dataclass(frozen=True)
class Augmenting:
    """Rows are being made of a task's training rows."""

    task: str
    what: str  # "tagging", "augmenting"
    rows: int  # of the training rows
    total: int


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
    state: str  # "new", "resumed", "done"


@dataclass(frozen=True)
class Tuned:
    """What was left to be chosen for a model is chosen."""

    model: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Turn:
    """What follows is about this model, while several are trained at once."""

    model: str


@dataclass(frozen=True)
class Waiting:
    """Another process is making what is wanted."""

    what: str


@dataclass(frozen=True)
class Examined:
    """A teacher has answered its task's dev set."""

    teacher: str
    task: str
    score: float | None
    fault: str


@dataclass(frozen=True)
class Chosen:
    """The best candidates go on to teach."""

    teachers: tuple[str, ...]
    candidates: int


@dataclass(frozen=True)
class Labelling:
    """A teacher answers the rows of a split."""

    teacher: str
    what: str
    rows: int
    total: int


@dataclass(frozen=True)
class Asking:
    """A model, or an export of it, answers the rows of a dev set."""

    who: str
    what: str
    rows: int
    total: int


@dataclass(frozen=True)
class Scored:
    """A finished model has its scores."""

    model: str
    scores: Scores


Event: TypeAlias = (
    "Reading | Checking | Augmenting | Tokenising | Teaching | Turn | Waiting | Examined | Chosen | Labelling | "
    "Asking | Scored | Tuned | Report | Resumed | Evaluated | Fitted"
)
Watch: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Watch nothing."""
