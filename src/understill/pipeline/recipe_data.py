"""The data of a recipe, read without torch and without an encoder."""

from __future__ import annotations

import os
from dataclasses import replace
from errno import EEXIST, ENOTDIR
from pathlib import Path

from understill.data.load import LoadedTask, load_tasks
from understill.errors import UserError
from understill.events import Reading, Watch, silent
from understill.pipeline.plan.parts import cache_folder
from understill.recipe import Recipe
from understill.tasks import Task


def read_data(recipe: Recipe, watch: Watch = silent) -> dict[str, LoadedTask]:
    """Read and check all data of a recipe."""
    writable(recipe.output.path)
    return load_tasks(recipe, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))


def read_labelled(recipe: Recipe, watch: Watch = silent) -> dict[str, LoadedTask]:
    """Read the data of a recipe that score models; texts without labels do not, so their files need not be there."""
    student = recipe.student.model_copy(update={"unlabelled": 0.0})
    return read_data(recipe.model_copy(update={"student": student}), watch)


def writable(folder: Path) -> None:
    """Make sure results can be kept before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "there is a file of this name" if error.errno in (EEXIST, ENOTDIR) else error.strerror
        raise UserError(f"output.folder: {folder} cannot be made: {what} → name another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"output.folder: nothing may be written to {folder} → name another folder")


def as_trained(loaded: LoadedTask, trained: Task) -> LoadedTask:
    """Give a task the label order of the model; labels are joined by name."""
    strange = set(loaded.task.labels) - set(trained.labels)
    if strange or loaded.task.kind is not trained.kind:
        what = (
            f"labels the model does not know: {', '.join(sorted(strange))}" if strange else f"kind {loaded.task.kind}"
        )
        raise UserError(f"task {loaded.task.name} does not fit the model: {what}")
    if trained.kind.turned(loaded.task, trained):
        what = f'which takes "{trained.labels[-1]}" to be right'
        raise UserError(f"task {loaded.task.name} does not fit the model, {what} → turn the labels round")
    task = replace(loaded.task, labels=trained.labels, range=trained.range)
    return replace(loaded, task=task, splits={name: replace(data, task=task) for name, data in loaded.splits.items()})
