"""The data loader: the rows that a model learns from as tokens, with soft targets beside them, in batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.data.batch import Stream, sizes_on
from understill.data.batches import Batches
from understill.data.groups import grouping, teaching
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens, tokenise
from understill.errors import UserError
from understill.events import Tokenising, Watch, counting
from understill.models.folder import ModelFolder
from understill.pipeline.plan.parts import Fold, ModelPlan, Plan, cache_folder
from understill.recipe import Recipe
from understill.targets.store import LOGITS
from understill.tasks import Task
from understill.teachers.folds import fold_by_class, fold_of
from understill.train.device import pick_device

#: The teachers' joint answers to every row, [rows, …] by column, of each task and split.
Joined = Mapping[tuple[str, str], Mapping[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class Tokeniser:
    """Turns splits into tokens, once each."""

    tokenizer: Any
    lengths: Mapping[str, int]  # tokens read of each task's rows
    cache: Path
    watch: Watch

    def __call__(self, data: TaskData, *, swapped: bool = False) -> Tokens:
        """Return the tokens of one split."""
        progress = counting(self.watch, lambda rows: Tokenising(data.place, rows, data.rows))
        length = self.lengths[data.task.head]
        return tokenise(data, self.tokenizer, length, self.cache, swapped=swapped, progress=progress)


def tokeniser_of(folder: ModelFolder, recipe: Recipe, watch: Watch) -> Tokeniser:
    """Return what turns rows into the tokens of a saved model."""
    return Tokeniser(folder.tokenizer, folder.max_lengths, cache_folder(recipe), watch)


@dataclass(frozen=True)
class ModelInputs:
    """What a model is trained from, and who watches."""

    plan: Plan
    model: ModelPlan
    title: str
    tokens: Tokeniser
    joined: Joined
    watch: Watch


def make_batches(plan: Plan, model: ModelPlan, tokens: Tokeniser, joined: Joined) -> Batches:
    """Tokenise the training rows of a model, lay the teachers' answers beside them, and put them into batches."""
    training = model.settings.training

    def stream(number: int, task: Task, split: str) -> Stream:
        data = plan.loaded[task.name].splits[split]
        groups, columns = grouping(data), joined.get((task.name, split), {})
        if joined and not columns:  # a task without a teacher still needs room for as many outputs as it has
            columns = {LOGITS: np.broadcast_to(np.float32(np.nan), (data.rows, task.outputs))}
        return Stream(
            number,
            [tokens(data, swapped=swapped) for swapped in model.orders(task)],
            chosen_rows(data, groups, columns.get(LOGITS), model.fold),
            columns,
            model.unlabelled[task.name] if split == "unlabelled" else 0.0,
            groups,
            plan.recipe.tasks[task.name].candidates,
        )

    tasks = list(enumerate(model.tasks))
    streams = [stream(number, task, model.split(task.name)) for number, task in tasks]
    streams += [stream(number, task, "unlabelled") for number, task in tasks if (task.name, "unlabelled") in joined]
    device, longest = pick_device(plan.recipe.machine), max(tokens.lengths.values())
    return Batches(
        streams,
        batch=training.batch,
        seed=model.seed,
        mode=training.batches,
        sampling=training.sampling,
        window=training.window,
        pad=tokens.tokenizer.pad_token_id,
        weights=[plan.recipe.tasks[task.name].weight for task in model.tasks],
        sizes=sizes_on(device, longest, light=model.settings.encoder.own),
    )


def held_out(data: TaskData, fold: Fold) -> NDArray[np.bool_]:
    """Return which rows a fold leaves out."""
    numbers = fold_by_class(data, fold.count) if fold.by_class else fold_of(data, fold.count)
    held: NDArray[np.bool_] = numbers == fold.number
    return held


def chosen_rows(
    data: TaskData, groups: NDArray[np.int64] | None, answers: NDArray[np.float32] | None, fold: Fold | None
) -> NDArray[np.int64] | None:
    """Choose the rows that a model learns from; None where it is all of them."""
    chosen = np.ones(data.rows, bool) if groups is None else teaching(data, groups)
    if data.split == "unlabelled" and answers is not None:
        chosen = chosen & ~np.isnan(answers[:, 0])
        if not chosen.any():
            what = "the teachers score no two candidates of any query"
            raise UserError(f"{data.task.name}/unlabelled: {what} → name other files, or set student.unlabelled: 0")
    if fold:
        chosen = chosen & ~held_out(data, fold)
        if not chosen.any():
            raise UserError(f"{data.task.name} has too few rows for {fold.count} folds → write fewer folds")
    return None if chosen.all() else np.flatnonzero(chosen)
