"""The plan: what a recipe comes to on this machine, checked before any training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from errno import EEXIST, ENOTDIR
from pathlib import Path
from typing import Any

from understill.data.load import LoadedTask, load_tasks, read_tasks
from understill.data.load import resolve as resolve_tasks
from understill.errors import Collector, UserError, nearest
from understill.events import Reading, Watch, silent
from understill.models.encoder import check_lengths, identity, resolve
from understill.recipe import Recipe, fingerprint
from understill.tasks import Task
from understill.train.device import check_trackers, pick_device, pick_precision

#: Goes up whenever the same recipe would train to another result.
TRAINING_VERSION = 1


@dataclass(frozen=True)
class ModelPlan:
    """One model that a recipe asks for."""

    name: str
    tasks: tuple[Task, ...]  # those with a head of their own
    scored: tuple[LoadedTask, ...]  # those whose dev sets it is scored on, diagnostic sets included
    fingerprint: str
    folder: Path

    @property
    def done(self) -> bool:
        """Whether it was trained before, to the end."""
        return (self.folder / "done.json").exists()

    @property
    def started(self) -> bool:
        """Whether a checkpoint is there to go on from."""
        return any((self.folder / "work").glob("checkpoint-*"))


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to on this machine."""

    recipe: Recipe
    loaded: Mapping[str, LoadedTask]
    models: tuple[ModelPlan, ...]
    encoder: str  # what the loaders take: a folder or a hub id


def cache_folder(recipe: Recipe) -> Path:
    """Return where data and tokens are kept between runs."""
    return recipe.output.path / "cache"


def read_data(recipe: Recipe, watch: Watch = silent) -> dict[str, LoadedTask]:
    """Read and check all data of a recipe, for which no encoder is needed."""
    writable(recipe.output.path)
    return load_tasks(recipe, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))


def make_plan(recipe: Recipe, watch: Watch = silent) -> Plan:
    """Check what is quickly checked, all of it at once, then read all data, and say which models are to be trained."""
    found = Collector()
    with found:
        writable(recipe.output.path)
    with found:
        pick_precision(recipe.training.precision, pick_device(recipe.machine))
    with found:
        check_trackers(recipe.output.trackers)
    with found:
        encoder = find_encoder(recipe)
    with found:
        tasks = resolve_tasks(recipe)
    found.raise_if_any()
    skip = recipe.data.on_bad_row == "skip"
    loaded = read_tasks(tasks, skip, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))
    # A diagnostic set's labels are in the order of the head that answers it, also where that task is the user's own.
    loaded = {name: as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}
    own = [name for name, task in loaded.items() if task.task.head == name]
    groups = {"multi": own} if recipe.models == "together" else {name: [name] for name in own}
    about = identity(encoder)
    models = tuple(
        _plan_model(recipe, name, [loaded[key] for key in keys], loaded, about) for name, keys in groups.items()
    )
    return Plan(recipe, loaded, models, encoder)


def find_encoder(recipe: Recipe) -> str:
    """Return what the loaders take for a recipe's encoder, when it can read as many tokens as are asked for."""
    there = recipe.find(recipe.encoder.name)
    encoder = resolve(str(there) if there.is_dir() else recipe.encoder.name)
    own_lengths = {f"tasks.{name}.max_length": spec.max_length for name, spec in recipe.tasks.items()}
    lengths = {place: length for place, length in own_lengths.items() if length}
    check_lengths(recipe.encoder.name, encoder, {"encoder.max_length": recipe.encoder.max_length, **lengths})
    return encoder


def max_length(recipe: Recipe, task: str) -> int:
    """Return how many tokens of a task's rows are read."""
    return recipe.tasks[task].max_length or recipe.encoder.max_length


def _plan_model(
    recipe: Recipe, name: str, mine: list[LoadedTask], loaded: Mapping[str, LoadedTask], about: Mapping[str, Any]
) -> ModelPlan:
    names = {task.task.name for task in mine}
    scored = tuple(task for task in loaded.values() if task.task.head in names)
    settings = recipe.training.model_dump(mode="json", exclude={"checkpoint"})
    settings["precision"] = pick_precision(recipe.training.precision, pick_device(recipe.machine))
    print_of = fingerprint(
        {
            "stage": "teach",
            "version": TRAINING_VERSION,
            "encoder": {**about, **recipe.encoder.model_dump(mode="json", exclude={"name", "max_length"})},
            "regression": recipe.heads.regression,
            "training": settings,
            "seed": recipe.seed,
            "tasks": [
                {
                    **task.task.to_dict(),
                    "weight": recipe.tasks[task.task.name].weight,
                    "max_length": max_length(recipe, task.task.name),
                    "dropout": recipe.heads.dropout_of(task.task.name),
                    "data": {
                        split: data.fingerprint
                        for split, data in sorted(task.splits.items())
                        if split in ("train", "dev")
                    },
                }
                for task in mine
            ],
        }
    )
    folder = recipe.output.path / "artifacts" / f"model-{name}-{print_of[:16]}"
    return ModelPlan(name, tuple(task.task for task in mine), scored, print_of, folder)


def as_trained(loaded: LoadedTask, trained: Task) -> LoadedTask:
    """Give a task the label order of the model; labels are joined by name."""
    strange = set(loaded.task.labels) - set(trained.labels)
    if loaded.task.kind != trained.kind or strange:
        what = (
            f"labels the model does not know: {', '.join(sorted(strange))}" if strange else f"kind {loaded.task.kind}"
        )
        raise UserError(f"task {loaded.task.name} does not fit the model: {what}")
    task = replace(loaded.task, labels=trained.labels, range=trained.range)
    return replace(loaded, task=task, splits={name: replace(data, task=task) for name, data in loaded.splits.items()})


def pick_models(plan: Plan, names: tuple[str, ...]) -> tuple[ModelPlan, ...]:
    """Return the models of a plan with these names, or all."""
    known = {model.name: model for model in plan.models}
    for name in names:
        if name not in known:
            raise UserError(f'this recipe trains no model "{name}"; {nearest(name, known)}')
    return tuple(known[name] for name in names) if names else plan.models


def writable(folder: Path) -> None:
    """Make sure results can be kept before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "there is a file of this name" if error.errno in (EEXIST, ENOTDIR) else error.strerror
        raise UserError(f"output.folder: {folder} cannot be made: {what} → name another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"output.folder: nothing may be written to {folder} → name another folder")
