"""The local engine: stages are run one after the other in this process, or several at once on one GPU."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing

from understill.events import Watch, silent
from understill.pipeline.graph import required
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train.interleave import Job, interleave, slots_on


def run_locally(
    recipe: Recipe, stages: Sequence[Stage], wanted: Collection[str], watch: Watch, clock: StageClock
) -> None:
    """Run stages in this process."""
    run_stages(stages, wanted, recipe.machine, watch, clock)


def run_stages(
    stages: Sequence[Stage],
    wanted: Collection[str],
    machine: Machine,
    watch: Watch = silent,
    clock: StageClock | None = None,
    slots: int | None = None,
) -> None:
    """Run the wanted stages, each after what it needs, as it comes in the list; on a GPU several at once, in slots."""
    clock = clock or StageClock()
    waiting = required(stages, wanted)
    unmade = {stage.key for stage in waiting}
    places = slots or (slots_on(machine) if _may_share(waiting) else 1)
    if places > 1:
        waiting = _long_ones_first(waiting)

    def begin() -> Job | None:
        for stage in waiting:
            if unmade.isdisjoint(stage.needs):
                waiting.remove(stage)
                return Job(_make(stage, unmade, watch, clock), max(1, stage.resources.places))
        return None

    interleave(begin, places)
    assert not waiting, f"stages that wait for each other: {', '.join(stage.key for stage in waiting)}"


def _make(stage: Stage, unmade: set[str], watch: Watch, clock: StageClock) -> Generator[None]:
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
    unmade.remove(stage.key)


def _no_steps() -> Generator[None]:
    yield from ()


def _may_share(stages: Sequence[Stage]) -> bool:
    """Tell whether models can be trained at once: accelerate has one precision and most trackers one run at a time."""
    precisions = {stage.resources.precision for stage in stages if stage.resources.places}
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
