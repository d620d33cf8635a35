"""Embedded demo data: a small support-inbox world of five tasks, made from a seed; no benchmark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from understill.data.demo import answer, follows, mood, queue, similar
from understill.data.demo.templates import SPLITS, Columns, Draws
from understill.errors import UserError, nearest
from understill.tasks import Task

#: Rows that are made together; row i is a pure function of seed, task, split and its block, i // BLOCK.
BLOCK = 2048

_MAKERS = {module.TASK.name: module.make for module in (mood, queue, follows, similar, answer)}
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in (mood, queue, follows, similar, answer)}


def splits(rows: int) -> dict[str, int]:
    """Say how many rows each split has beside this many training rows."""
    held_out = max(200, min(rows // 4, 10_000))
    return {"train": rows, "dev": held_out, "test": held_out, "unlabelled": 4 * rows}


def batches(name: str, split: str, rows: int, seed: int, size: int = 8192) -> Iterator[pa.RecordBatch]:
    """Make the first `rows` rows of a split, `size` at a time; memory does not grow with `rows`.

    The columns are the task's texts and "label" (none in the unlabelled split), and "group" for ranking.
    """
    for known, asked in ((TASKS, name), (SPLITS, split)):
        if asked not in known:
            raise UserError(f'the demo data has no "{asked}": {nearest(asked, known)}')
    waiting: list[pa.RecordBatch] = []
    count = 0
    for start in range(0, rows, BLOCK):
        waiting.append(block(name, split, seed, start // BLOCK, min(BLOCK, rows - start)))
        count += waiting[-1].num_rows
        while count >= size or (count and start + BLOCK >= rows):
            joined = pa.concat_batches(waiting)
            yield joined.slice(0, size)
            waiting = [joined.slice(size)]
            count = waiting[0].num_rows


def block(name: str, split: str, seed: int, number: int, rows: int = BLOCK) -> pa.RecordBatch:
    """Make one block alone, cut to its first `rows` rows."""
    task = TASKS[name]
    columns = _MAKERS[name](Draws.of(seed, name, split, number, BLOCK))
    if task.kind.grouped:
        columns["group"] = [
            f"{split}-{group}" for group in (columns["group"] + number * (BLOCK // answer.GROUP)).tolist()
        ]
        _complete(columns, rows)
    kept = [*task.columns, *([] if split == "unlabelled" else ["label"])]
    gold = pa.string() if task.kind.named else pa.float64()
    arrays = [pa.array(columns[key][:rows], gold if key == "label" else pa.string()) for key in kept]
    return pa.RecordBatch.from_arrays(arrays, names=kept)


def _complete(columns: Columns, rows: int) -> None:
    """Make sure that a group cut short at the end keeps its right answer, by moving that to its first place."""
    begin = rows - rows % answer.GROUP
    if begin == rows:
        return
    right = begin + int(np.argmax(columns["label"][begin : begin + answer.GROUP] == "1"))
    for key in ("answer", "label"):
        values = columns[key]
        values[begin], values[right] = values[right], values[begin]
