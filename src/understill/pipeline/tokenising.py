"""Tokens and batches of a plan's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.data.batch import Batches, Stream, sizes_on
from understill.data.load import LoadedTask
from understill.data.tokens import Tokens, tokenise
from understill.errors import UserError
from understill.events import Tokenising, Watch
from understill.pipeline.plan import ModelPlan, Plan
from understill.targets.teachers import fold_of
from understill.tasks import Task
from understill.train.device import pick_device

#: What teachers say of every row, [rows, outputs], by task and split.
Joined = Mapping[tuple[str, str], NDArray[np.float32]]


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
    shares = model.lessons.unlabelled if model.lessons else {}

    def sources(task: Task, split: str) -> list[Tokens]:
        loaded = plan.loaded[task.name]
        both = training.both_orders and task.symmetric
        return [tokens(loaded, split), *([tokens(loaded, split, swapped=True)] if both else [])]

    streams = []
    for number, task in enumerate(model.tasks):
        rows = None
        if model.fold:
            fold = fold_of(plan.loaded[task.name].splits["train"], model.fold.count)
            rows = np.flatnonzero(fold != model.fold.number)
            if not len(rows):
                raise UserError(f"{task.name} has too few rows for {model.fold.count} folds → write fewer folds")
        answers = joined.get((task.name, "train"))
        if joined and answers is None:  # a task without a teacher still needs room for as many outputs as it has
            answers = np.broadcast_to(np.float32(np.nan), (plan.loaded[task.name].splits["train"].rows, task.outputs))
        streams.append(Stream(number, sources(task, "train"), rows, answers))
    for number, task in enumerate(model.tasks):
        answers = joined.get((task.name, "unlabelled"))
        if answers is not None:
            known = np.flatnonzero(~np.isnan(answers[:, 0]))
            streams.append(Stream(number, sources(task, "unlabelled"), known, answers, shares[task.name]))
    return Batches(
        streams,
        batch=training.batch,
        seed=model.seed,
        mode=training.batches,
        sampling=training.sampling,
        window=training.window,
        pad=tokens.tokenizer.pad_token_id,
        weights=[plan.recipe.tasks[task.name].weight for task in model.tasks],
        sizes=sizes_on(pick_device(plan.recipe.machine), max(tokens.lengths.values())),
    )
