"""What a model reads: lengths, dev sets, and how many rows an epoch has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from understill.data.groups import units_in
from understill.data.load import LoadedTask
from understill.data.sampling import Part, shares
from understill.recipe import Recipe
from understill.recipe.schema import Settings, Training
from understill.tasks import Task


def cache_folder(recipe: Recipe) -> Path:
    """Return where data and tokens are kept between runs."""
    return recipe.output.path / "cache"


def max_length(recipe: Recipe, settings: Settings, task: str) -> int:
    """Return how many tokens of a task's rows a model reads."""
    return recipe.tasks[task].max_length or settings.encoder.max_length


def dev_sets(loaded: Mapping[str, LoadedTask], head: str) -> list[tuple[LoadedTask, str]]:
    """Return the dev sets that a task's head answers, diagnostic ones included."""
    tasks = [task for task in loaded.values() if task.task.head == head]
    return [(task, split) for task in tasks for split in task.splits if split.startswith("dev")]


def parts_of(
    tasks: tuple[Task, ...],
    loaded: Mapping[str, LoadedTask],
    settings: Settings,
    unlabelled: Mapping[str, float],
    augmented: Collection[str] = (),
) -> list[Part]:
    """Count the rows, or queries, a model is trained on: labelled ones first, then those that teachers label."""
    parts = []
    for split in ("train", "unlabelled"):
        for number, task in enumerate(tasks):
            share = unlabelled.get(task.name, 0.0) if split == "unlabelled" else 0.0
            if split == "train" or share:
                orders = 2 if settings.training.both_orders and task.symmetric else 1
                name = "augmented" if split == "train" and task.name in augmented else split
                parts.append(Part(number, units_in(loaded[task.name].splits[name]) * orders, share))
    return parts


def epoch_of(parts: list[Part], training: Training) -> int:
    """Return how many steps an epoch of these units takes."""
    return int(shares(parts, training.batch, training.batches, training.sampling).draws.sum()) // training.batch
