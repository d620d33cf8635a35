"""Columns: what teachers know of each row, by name; `logits` of every teacher, others of those that have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from understill.data.taskdata import TaskData
from understill.errors import UserError, listed
from understill.tasks import Task

#: The column that every teacher has.
LOGITS = "logits"
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Column:
    """A column: its name and the shape of one row of it; numbers are kept in the recipe's `targets.dtype`."""

    name: str
    shape: tuple[int, ...] = ()  # () is one number a row

    @property
    def numbers(self) -> int:
        """How many numbers one row has."""
        return math.prod(self.shape)


class Answering(Protocol):
    """The part of a teacher that columns are read from; one with more than logits has `columns` and `column` too."""

    @property
    def name(self) -> str:
        """What the recipe calls it."""

    def logits(self, data: TaskData, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return raw logits, [rows, outputs]."""


def columns_of(task: Task, answers: Mapping[str, Sequence[NDArray[np.float32]]]) -> tuple[Column, ...]:
    """Return the columns that arrays of teachers make up, [rows, …] each, after making sure that they agree."""
    columns = []
    for name, arrays in answers.items():
        shapes = {values.shape[1:] for values in arrays}
        if name == LOGITS:
            shapes = {(task.outputs,)}
        elif len(shapes) != 1:
            raise UserError(f"task {task.name}: teachers give the column {name} in different shapes, {sorted(shapes)}")
        columns.append(Column(name, shapes.pop()))
    return tuple(columns)


def ask(teacher: Answering, name: str, data: TaskData, progress: Progress | None = None) -> NDArray[np.float32]:
    """Return what a teacher knows of every row, [rows, …]; NaN where it says nothing."""
    if name == LOGITS:
        return teacher.logits(data, progress)
    known: Sequence[str] = getattr(teacher, "columns", ())
    if name not in known:
        gives = listed([LOGITS, *known], "and")
        raise UserError(
            f"teacher {teacher.name} gives {gives}, and a loss of task {data.task.name} needs {name} → name another "
            "loss in student.distil, or leave this teacher out"
        )
    column: Any = getattr(teacher, "column")  # noqa: B009
    return np.asarray(column(name, data, progress), np.float32)
