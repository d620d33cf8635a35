"""The engine of several processes: the first one runs all stages, and the others help it to train."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from understill.engines.engine import Engine, stages_by_key
from understill.engines.local import run_stages
from understill.events import Watch, silent
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train.world import World, joining, leave


@contextmanager
def with_others(machine: Machine) -> Iterator[Engine]:
    """Join the processes that this one was started with, as the first of them; give what runs stages with them."""
    with joining(machine) as world:
        assert world.leads
        yield partial(_run, world)


def _run(
    world: World, recipe: Recipe, stages: Sequence[Stage], wanted: Collection[str], watch: Watch, clock: StageClock
) -> None:
    world.share("plan")  # the others do so now: what planning makes is in the cache
    shared = [replace(each, run=partial(_lead, world, each)) if each.trains else each for each in stages]
    run_stages(shared, wanted, recipe.machine, watch, clock, slots=1)
    world.share(None)
    leave()


def help_first(recipe: Recipe) -> None:
    """Train with the first process whatever it is about to train, until all is done."""
    with joining(recipe.machine) as world:
        world.share(None)
        stages = stages_by_key(recipe)
        while (key := world.share(None)) is not None:
            for _ in stages[key].run(silent) or ():
                pass


def _lead(world: World, stage: Stage, watch: Watch) -> Generator[None]:
    """Call the others to a training, unless it is over already."""
    if stage.makes:
        stage.makes.clear()  # before the others look whether it is there
    if not stage.done():
        world.share(stage.key)
    yield from stage.run(watch) or ()
