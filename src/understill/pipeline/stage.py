"""A stage: what it needs, what it makes and what it takes to run it; no stage knows which engine runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

from understill.artifact import Artifact
from understill.events import Watch

Action = Literal[
    "vocabulary", "tokenise", "train", "distil", "finetune", "evaluate", "choose", "examine", "label", "probe"
]
#: Those that are made for others only: not wanted for themselves.
INTERMEDIATE: tuple[Action, ...] = ("vocabulary", "tokenise", "label")


@dataclass(frozen=True)
class Resources:
    """What a stage takes while it runs, as far as it is known before."""

    places: int = 0  # on a GPU that several models share; 0 where it fits in between
    rows: float = 0.0  # that it reads, about: long ones had better begin early
    precision: str = ""  # accelerate has one at a time
    trackers: tuple[str, ...] = ()  # most have one run at a time


def never() -> bool:
    """Return False."""
    return False


#: The state of stages that are still to be done.
_STATES: dict[Action, str] = {
    "train": "to be trained", "distil": "to be trained", "finetune": "to be trained", "evaluate": "to be scored",
    "examine": "to be asked", "label": "to be written", "probe": "to be scored",
}  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """One thing that is to be done."""

    action: Action
    name: str  # for people
    key: str  # of what it makes, by which others need it
    needs: tuple[str, ...]
    run: Callable[[Watch], Generator[None] | None]  # in steps, where others may have their turn in between
    done: Callable[[], bool] = never  # whether what it makes is there and sound
    dropped: Callable[[], bool] = never  # whether it is known to be left out by a choice that came before
    begun: Callable[[], bool] = never  # whether it goes on from where it was stopped
    undecided: Callable[[], bool] = never  # whether a choice that is still to be made may leave it out
    makes: Artifact | None = None  # whose lock it holds; None for what lies in the cache, and for checks
    resources: Resources = Resources()
    tasks: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether it trains a model, step by step."""
        return self.resources.places > 0

    @property
    def waiting(self) -> str:
        """What it makes, for a process that waits until another one has made it."""
        articles = {"examine": "the verdict on ", "label": "the soft targets of ", "choose": "the choice of "}
        return f"{articles.get(self.action, '')}{self.name}"

    def state(self) -> str:
        """Return its state, where it is still to be done."""
        if self.undecided():
            return "if chosen"
        return "goes on from a checkpoint" if self.begun() else _STATES.get(self.action, "to be made")


class StageClock:
    """Adds up what a process spends its time on: each lap is the time since the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        """Count the time since the last lap for this."""
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._last
        self._last = now
