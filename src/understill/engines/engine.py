"""What an engine is: it runs the wanted stages of a plan, each after what it needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from understill.events import Watch
from understill.pipeline.graph import study_stages
from understill.pipeline.plan.planner import make_study
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe


class Engine(Protocol):
    """Runs stages; when it returns, everything that was wanted is made, or left out by a choice.

    A stage's functions hold whole plans, so an engine with other processes sends them the recipe and the stage's key:
    planned anew, the recipe gives stages with the same keys (`stages_by_key`).
    """

    def __call__(
        self, recipe: Recipe, stages: Sequence[Stage], wanted: Collection[str], watch: Watch, clock: StageClock
    ) -> None:
        """Run the wanted stages and what they need; errors are raised here, events go to `watch`."""


def stages_by_key(recipe: Recipe) -> dict[str, Stage]:
    """Plan a recipe anew, for a process that is sent keys: its stages have the keys they have everywhere."""
    return {stage.key: stage for stage in study_stages(make_study(recipe))}
