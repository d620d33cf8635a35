"""Folds: every training row is answered by a model that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understill.data.encode import all_gold
from understill.data.taskdata import TaskData, source_rows, text_keys
from understill.teachers.protocol import Logits, Progress


def fold_of(data: TaskData, folds: int) -> NDArray[np.int64]:
    """Return each row's fold, by its texts alone; of a ranking by the first one, so that groups are not divided.

    Equal texts share a fold in every task, and so do pairs turned round. What augmentation has made of a row is in the
    row's fold.
    """
    return (_keys_of(data) % np.uint64(folds)).astype(np.int64)


def fold_by_class(data: TaskData, folds: int) -> NDArray[np.int64]:
    """Return each row's fold, so that every fold has its share of each class."""
    numbers = np.empty(data.rows, np.int64)
    numbers[np.argsort(all_gold(data), kind="stable")] = np.arange(data.rows) % folds
    return numbers


def _keys_of(data: TaskData) -> NDArray[np.uint64]:
    """Return a number for what each row must stay together with, [rows]: an augmented row has that of its source."""
    sources, done = source_rows(data), 0
    own, keys = sources == np.arange(data.rows), [np.zeros(0, np.uint64)]
    for batch in data.batches():
        keys.append(text_keys(batch.filter(pa.array(own[done : done + batch.num_rows])), data.task))
        done += batch.num_rows
    every: NDArray[np.uint64] = np.concatenate(keys)[np.cumsum(own)[sources] - 1]
    return every


class PartTeacher(Protocol):
    """A teacher that can be asked about some of the rows."""

    def logits(self, data: TaskData, progress: Progress | None = None, rows: NDArray[np.bool_] | None = None) -> Logits:
        """Return the logits of these rows; the others are NaN."""


@dataclass(frozen=True)
class FoldedTeacher:
    """Models that each left out one fold: a training row is answered by the one that has not seen it.

    So is every candidate of a query that train has: scores of two models are not to be ranked among each other.
    """

    name: str
    digest: str
    models: Sequence[Callable[[], PartTeacher]]  # opened one at a time
    train: TaskData  # what the models were trained on

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return the logits of a training row's own fold, in whatever split it is; else the mean of all models."""
        folds = fold_of(data, len(self.models))
        seen = np.isin(_keys_of(data), _keys_of(self.train))
        logits = np.zeros((data.rows, data.task.outputs))
        for fold, model in enumerate(self.models):
            weight = np.where(seen, folds == fold, 1 / len(self.models))
            asked = weight > 0
            if asked.any():
                # Rows of several models are counted with the last.
                last = fold == len(self.models) - 1
                own = model().logits(data, progress if last or seen.all() else None, asked)
                logits[asked] += weight[asked, None] * own[asked]
        return logits.astype(np.float32)
