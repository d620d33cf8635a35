"""Events: progress of a run, as plain data for any listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Scores = dict[str, dict[str, float]]  # by "task/split", then by metric


@dataclass(frozen=True)
class Event:
    """Something that happened; whoever watches may pass over what it does not know."""


@dataclass(frozen=True)
class Reading(Event):
    """Rows of a task are being read."""

    what: str
    rows: int


@dataclass(frozen=True)
class Checking(Event):
    """Models or teachers of a plan are being looked at, one after the other."""

    what: str  # "timing student"
    done: int
    total: int


@dataclass(frozen=True)
class Augmenting(Event):
    """Rows are being made of a task's training rows."""

    task: str
    what: str  # "tagging", "augmenting"
    rows: int  # of the training rows
    total: int


@dataclass(frozen=True)
class Tokenising(Event):
    """Rows are being turned into tokens."""

    what: str
    rows: int
    total: int


@dataclass(frozen=True)
class TrainingState(Event):
    """A model's training begins, goes on from a checkpoint, or is not needed."""

    model: str
    state: str  # "new", "resumed", "done"


@dataclass(frozen=True)
class Tuned(Event):
    """What was left to be chosen for a model is chosen."""

    model: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Turn(Event):
    """What follows is about this model, while several are trained at once."""

    model: str


@dataclass(frozen=True)
class Waiting(Event):
    """Another process is making what is wanted."""

    what: str


@dataclass(frozen=True)
class Examined(Event):
    """A teacher has answered its task's dev set."""

    teacher: str
    task: str
    score: float | None
    fault: str


@dataclass(frozen=True)
class Chosen(Event):
    """The best candidates go on to teach."""

    teachers: tuple[str, ...]
    candidates: int


@dataclass(frozen=True)
class Labelling(Event):
    """A teacher answers the rows of a split."""

    teacher: str
    what: str
    rows: int
    total: int
    detail: str = ""  # what its answers cost so far


@dataclass(frozen=True)
class RoundDone(Event):
    """A student has learnt from the rows that a language model has answered so far."""

    teacher: str
    number: int
    rows: int
    score: float


@dataclass(frozen=True)
class ShardsLabelled(Event):
    """So many shards of a folder are labelled."""

    what: str
    shards: int
    total: int
    rows: int  # of this call
    rows_per_second: float
    seconds_left: float | None


@dataclass(frozen=True)
class Asking(Event):
    """A model, or an export of it, answers the rows of a dev set."""

    who: str
    what: str
    rows: int
    total: int


@dataclass(frozen=True)
class Scored(Event):
    """A finished model has its scores."""

    model: str
    scores: Scores


@dataclass(frozen=True)
class Report(Event):
    """How training is going."""

    step: int
    total: int
    epoch: float
    loss: float
    parts: dict[str, float]  # mean loss of each task's rows; with teachers, NAME/hard and NAME/soft unweighted as well
    rate: float
    rows_per_second: float
    seconds_left: float | None  # None until a few steps are done
    padding: float  # share of token places that held nothing
    micro_batch: int
    mix: float | None = None  # λ of teacher annealing


@dataclass(frozen=True)
class Resumed(Event):
    """Training goes on from a checkpoint."""

    step: int
    total: int


@dataclass(frozen=True)
class Evaluated(Event):
    """A look at the dev sets during training."""

    step: int
    score: float  # mean primary metric
    scores: Scores
    best: bool  # so far, where the best weights are kept


@dataclass(frozen=True)
class Fitted(Event):
    """Training is over, and the model holds the weights to keep."""

    step: int
    total: int
    best_step: int  # -1 when nothing was evaluated
    history: list[dict[str, Any]]
    seconds: float = field(compare=False)  # spent over all sessions; the clock is no part of the result

    @property
    def early(self) -> bool:
        """Whether it stopped because the dev score had stopped rising."""
        return self.step < self.total


@dataclass(frozen=True)
class Timed(Event):
    """A run is over, and its process spent so many seconds on each kind of stage."""

    seconds: dict[str, float] = field(compare=False)


@dataclass(frozen=True)
class Measuring(Event):
    """A model has its turn, so far the last of so many."""

    who: str
    what: str
    turn: int
    total: int


@dataclass(frozen=True)
class Expected(Event):
    """About how many seconds all turns will take."""

    seconds: float


Watch: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Watch nothing."""


def counting(watch: Watch, event: Callable[[int], Event]) -> Callable[[int], None]:
    """Return what adds up the rows that were done since it was last called, and reports their sum as an event."""
    done = 0

    def progress(rows: int) -> None:
        nonlocal done
        done += rows
        watch(event(done))

    return progress
