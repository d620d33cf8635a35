"""Overlap: how many rows that a model is scored on are also among those that it learns from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understill.data.taskdata import TaskData, id_keys

#: Batches of train that are looked up at once: building the table of what is looked for takes time, too.
TOGETHER = 32


def overlap(train: TaskData, other: TaskData) -> int:
    """Count the rows of a split whose texts are also in another split of the same task."""
    known = np.sort(id_keys(train.table().column("id")))
    if not len(known):
        return 0
    count = 0
    for batch in other.batches():
        keys = id_keys(batch.column("id"))
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        count += int((known[places] == keys).sum())
    return count


def shared_across(tasks: Mapping[str, Mapping[str, TaskData]]) -> Iterator[tuple[TaskData, TaskData, int]]:
    """Yield each dev or test split that shares rows with another task's train, that train, and how many.

    The texts of a pair may stand in either order.
    """
    splits = [data for parts in tasks.values() for data in parts.values()] if len(tasks) > 1 else []
    for texts in (1, 2):
        alike = [data for data in splits if len(data.task.text) == texts]
        scored = [data for data in alike if data.split.startswith(("dev", "test"))]
        wanted = pa.chunked_array([_texts(batch) for data in scored for batch in data.batches()], pa.large_string())
        values = pc.unique(wanted)
        places = np.asarray(pc.index_in(wanted, value_set=values), np.int64)
        starts = np.cumsum([0, *(data.rows for data in scored)])
        for train in (data for data in alike if data.split == "train"):
            known = _known(train, values)
            for data, start in zip(scored, starts, strict=False):
                count = int(known[places[start : start + data.rows]].sum())
                if count and data.task.name != train.task.name:
                    yield data, train, count


def _known(train: TaskData, values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Say of each of some different texts whether train has it."""
    known = np.zeros(len(values), bool)
    every = train.batches()
    while batches := list(islice(every, TOGETHER)):
        texts = pa.chunked_array([_texts(batch) for batch in batches], pa.large_string())
        known[pc.index_in(texts, value_set=values).drop_null().to_numpy()] = True
    return known


def _texts(rows: Any) -> Any:
    """Return the texts of a batch, those of a pair as one in an order of their own."""
    one = rows.column("text1").cast(pa.large_string())
    if "text2" not in rows.schema.names:
        return one
    two, between = rows.column("text2").cast(pa.large_string()), pa.scalar("\0", pa.large_string())
    return pc.binary_join_element_wise(pc.min_element_wise(one, two), pc.max_element_wise(one, two), between)
