"""Groups: which rows of a ranking task are candidates of the same query."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understill.data.encode import all_gold
from understill.data.taskdata import TaskData

Ints = NDArray[np.int64]


def groups_of(data: TaskData) -> Ints:
    """Number the groups of a ranking task's split, [rows], in the order in which they first appear."""
    parts = [batch.column("group") for batch in data.batches()]
    names = pc.dictionary_encode(pa.chunked_array(parts, pa.string())).combine_chunks()
    return np.asarray(names.indices, np.int64)


def grouping(data: TaskData) -> Ints | None:
    """Number the groups of a split; None where the task is no ranking, and every row stands alone."""
    return groups_of(data) if data.task.kind.grouped else None


def contested(groups: Ints, gold: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Say of each row whether its group has a right candidate and a wrong one: only then is there a choice to make."""
    count = int(groups.max(initial=-1)) + 1
    right, wrong = np.zeros(count, bool), np.zeros(count, bool)
    right[groups[gold == 1]] = True
    wrong[groups[gold == 0]] = True
    return (right & wrong)[groups]


def teaching(data: TaskData, groups: Ints) -> NDArray[np.bool_]:
    """Say of each row whether its group teaches something: without labels, two candidates are enough for that."""
    return np.bincount(groups)[groups] > 1 if data.split == "unlabelled" else contested(groups, all_gold(data))


def units_in(data: TaskData) -> int:
    """Count what a model is trained on: rows, or in a ranking the groups that teach something."""
    groups = grouping(data)
    return data.rows if groups is None else len(np.unique(groups[teaching(data, groups)]))


def count_queries(data: TaskData) -> tuple[int, int]:
    """Count the groups of a split that teach something or can be scored, and all groups."""
    groups = groups_of(data)
    return len(np.unique(groups[teaching(data, groups)])), int(groups.max(initial=-1)) + 1
