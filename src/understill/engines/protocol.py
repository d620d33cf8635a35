"""What an engine is: it runs the wanted stages of a plan, each after what it needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from understill.events import Watch
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe


class Engine(Protocol):
    """Runs stages; when it returns, everything that was wanted is made, or left out by a choice.

    A stage's functions hold whole plans, so an engine with other processes sends them the recipe and the stage's key:
    planned anew, the recipe gives stages with the same keys (`engines.study.stages_by_key`).
    """

    def __call__(
        self, recipe: Recipe, stages: Sequence[Stage], wanted: Collection[str], watch: Watch, clock: StageClock
    ) -> None:
        """Run the wanted stages and what they need; errors are raised here, events go to `watch`."""
