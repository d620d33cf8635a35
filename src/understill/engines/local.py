"""Stages run in this process, one after the other, or several at once on one GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing

from understill.events import Watch, silent
from understill.pipeline.graph import required
from understill.pipeline.stage import Stage, StageClock
from understill.recipe.schema import Machine
from understill.train.device import set_threads
from understill.train.interleave import Job, interleave, slots_on


def run_stages(
    stages: Sequence[Stage],
    wanted: Collection[str],
    machine: Machine,
    watch: Watch = silent,
    clock: StageClock | None = None,
    slots: int | None = None,
) -> None:
    """Run the wanted stages, each after what it needs, as it comes in the list; on a GPU several at once, in slots."""
    set_threads(machine)  # before anything is computed, or else what is resumed would be rounded otherwise
    clock = clock or StageClock()
    queue = Queue(stages, wanted, machine, slots)

    def begin() -> Job | None:
        stage = queue.take()
        return job(stage, watch, clock, queue.made) if stage else None

    interleave(begin, queue.slots)
    assert not queue.waiting, f"stages that wait for each other: {', '.join(stage.key for stage in queue.waiting)}"


class Queue:
    """The stages that are still to begin, in a good order, and what is not made yet."""

    def __init__(
        self, stages: Sequence[Stage], wanted: Collection[str], machine: Machine, slots: int | None = None
    ) -> None:
        self.waiting = required(stages, wanted)
        self.unmade = {stage.key for stage in self.waiting}
        self.slots = slots or (slots_on(machine) if _may_share(self.waiting) else 1)  # of each GPU
        if self.slots > 1:
            self.waiting = _long_ones_first(self.waiting)

    def take(self) -> Stage | None:
        """Return the next stage whose needs are made; None where there is none now."""
        stage = next((each for each in self.waiting if self.unmade.isdisjoint(each.needs)), None)
        if stage:
            self.waiting.remove(stage)
        return stage

    def made(self, key: str) -> None:
        """Let those begin that need a stage."""
        self.unmade.remove(key)


def job(stage: Stage, watch: Watch, clock: StageClock, made: Callable[[str], None]) -> Job:
    """Return what runs a stage in steps; `made` is called with its key in the end."""
    return Job(_make(stage, watch, clock, made), max(1, stage.resources.places))


def _make(stage: Stage, watch: Watch, clock: StageClock, made: Callable[[str], None]) -> Generator[None]:
    """Run a stage, unless a choice has left it out, while no other process makes the same."""
    if not stage.dropped():
        lock = (yield from stage.makes.acquire(stage.waiting, watch)) if stage.makes else None
        clock.lap("wait")
        try:
            with closing(stage.run(watch) or _no_steps()) as steps:
                for number, _ in enumerate(steps):
                    clock.lap(stage.action if number else f"{stage.action}, first step")  # compiled on a GPU
                    yield
                    clock.lap("wait")
        finally:
            clock.lap(stage.action)
            if lock:
                lock.release()
    made(stage.key)


def _no_steps() -> Generator[None]:
    yield from ()


def _may_share(stages: Sequence[Stage]) -> bool:
    """Tell whether models can be trained at once: accelerate has one precision and most trackers one run at a time."""
    precisions = {stage.resources.precision for stage in stages if stage.trains}
    trackers = {tracker for stage in stages for tracker in stage.resources.trackers}
    return len(precisions) == 1 and "fp16" not in precisions and trackers <= {"tensorboard"}


def _long_ones_first(stages: Sequence[Stage]) -> list[Stage]:
    """Let those that others wait for, and long ones, come first, so that none is left to run alone at the end.

    What belongs to a model, from its tokens to its scores, stays together.
    """
    needed = {need for stage in stages if stage.action != "evaluate" for need in stage.needs}

    def rank(part: Sequence[Stage]) -> tuple[bool, float]:
        main = max(part, key=lambda stage: stage.resources.rows)
        return main.key not in needed, -main.resources.rows

    return [stage for part in sorted(_parts(stages), key=rank) for stage in part]


def _parts(stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    part: list[Stage] = []
    for stage in stages:
        part.append(stage)
        if stage.action in ("evaluate", "choose"):
            yield part
            part = []
    if part:
        yield part
