"""Tokens and batches of a plan's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.data.batch import Batches, Stream, sizes_on
from understill.data.groups import grouping, teaching
from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens, tokenise
from understill.errors import UserError
from understill.events import Tokenising, Watch
from understill.pipeline.plan import Fold, ModelPlan, Plan
from understill.targets.columns import LOGITS
from understill.tasks import Task
from understill.teachers.folds import fold_of
from understill.train.device import pick_device

#: What teachers say of every row, [rows, …] by column, of each task and split.
Joined = Mapping[tuple[str, str], Mapping[str, NDArray[np.float32]]]


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


def make_batches(plan: Plan, model: ModelPlan, tokens: Tokeniser, joined: Joined) -> Batches:
    """Tokenise the training rows of a model, lay the teachers' answers beside them, and put them into batches."""
    training = model.settings.training
    shares = model.distillation.unlabelled if model.distillation else {}

    def sources(task: Task, split: str) -> list[Tokens]:
        loaded = plan.loaded[task.name]
        both = training.both_orders and task.symmetric
        return [tokens(loaded, split), *([tokens(loaded, split, swapped=True)] if both else [])]

    def stream(number: int, task: Task, split: str, columns: Mapping[str, NDArray[np.float32]]) -> Stream:
        data = plan.loaded[task.name].splits[split]
        groups, most = grouping(data), plan.recipe.tasks[task.name].candidates
        rows = chosen_rows(data, groups, columns.get(LOGITS), model.fold)
        share = shares[task.name] if split == "unlabelled" else 0.0
        return Stream(number, sources(task, split), rows, columns, share, groups, most)

    streams = []
    for number, task in enumerate(model.tasks):
        split = model.split(task.name)
        columns = joined.get((task.name, split), {})
        if joined and not columns:  # a task without a teacher still needs room for as many outputs as it has
            rows = plan.loaded[task.name].splits[split].rows
            columns = {LOGITS: np.broadcast_to(np.float32(np.nan), (rows, task.outputs))}
        streams.append(stream(number, task, split, columns))
    for number, task in enumerate(model.tasks):
        if columns := joined.get((task.name, "unlabelled"), {}):
            streams.append(stream(number, task, "unlabelled", columns))
    return Batches(
        streams,
        batch=training.batch,
        seed=model.seed,
        mode=training.batches,
        sampling=training.sampling,
        window=training.window,
        pad=tokens.tokenizer.pad_token_id,
        weights=[plan.recipe.tasks[task.name].weight for task in model.tasks],
        sizes=sizes_on(
            pick_device(plan.recipe.machine), max(tokens.lengths.values()), light=model.settings.encoder.own
        ),
    )


def chosen_rows(
    data: TaskData, groups: NDArray[np.int64] | None, answers: NDArray[np.float32] | None, fold: Fold | None
) -> NDArray[np.int64] | None:
    """Choose the rows that a model learns from; None where it is all of them."""
    chosen = np.ones(data.rows, bool) if groups is None else teaching(data, groups)
    if data.split == "unlabelled" and answers is not None:
        chosen = chosen & ~np.isnan(answers[:, 0])
        if not chosen.any():
            what = "no query has two candidates that teachers speak of"
            raise UserError(f"{data.task.name}/unlabelled: {what} → name other files, or set student.unlabelled: 0")
    if fold:
        chosen = chosen & (fold_of(data, fold.count) != fold.number)
        if not chosen.any():
            raise UserError(f"{data.task.name} has too few rows for {fold.count} folds → write fewer folds")
    return None if chosen.all() else np.flatnonzero(chosen)
