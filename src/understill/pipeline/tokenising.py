"""Tokens and batches of a plan's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understill.data.batch import Batches
from understill.data.load import LoadedTask
from understill.data.tokens import Tokens, tokenise
from understill.events import Tokenising, Watch
from understill.pipeline.planning import ModelPlan, Plan
from understill.recipe import Recipe


class Tokeniser:
    """Turns splits into tokens, once each."""

    def __init__(self, tokenizer: Any, lengths: Mapping[str, int], cache: Path, watch: Watch) -> None:
        self.tokenizer = tokenizer
        self.lengths = lengths  # tokens read of each task's rows
        self.cache = cache
        self.watch = watch

    def __call__(self, task: LoadedTask, split: str, *, swapped: bool = False) -> Tokens:
        """Return the tokens of one split."""
        data, name = task.splits[split], task.task.name
        what, done = f"{name}/{split}", 0

        def progress(rows: int) -> None:
            nonlocal done
            done += rows
            self.watch(Tokenising(what, done, data.rows))

        length = self.lengths[task.task.head]
        return tokenise(data, self.tokenizer, length, self.cache, swapped=swapped, progress=progress)


def make_batches(recipe: Recipe, model: ModelPlan, plan: Plan, tokens: Tokeniser, pad: int) -> Batches:
    """Tokenise the training rows of a model and put them into batches."""
    training, sources = recipe.training, []
    for task in model.tasks:
        loaded = plan.loaded[task.name]
        orders = [tokens(loaded, "train")]
        if training.both_orders and task.symmetric:
            orders.append(tokens(loaded, "train", swapped=True))
        sources.append(orders)
    return Batches(
        sources,
        batch=training.batch,
        seed=recipe.seed,
        mode=training.batches,
        sampling=training.sampling,
        window=training.window,
        pad=pad,
        weights=[recipe.tasks[task.name].weight for task in model.tasks],
    )
