"""What a teacher is, what a type of teacher offers, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from understill.atomic import fingerprint
from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.errors import UserError, listed
from understill.plugins import TEACHERS
from understill.recipe import Recipe
from understill.recipe.schema import TeacherSpec
from understill.targets.store import LOGITS
from understill.train.device import pick_device

Progress = Callable[[int], None]
Floats = NDArray[np.float64]
Logits = NDArray[np.float32]


class Teacher(Protocol):
    """Something that gives logits for rows."""

    @property
    def name(self) -> str:
        """What the recipe calls it."""

    @property
    def digest(self) -> str:
        """The digest of everything that decides its answers."""

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return raw logits, [rows, outputs] in the order of the task's labels; scores on its scale for regression.

        A row that it does not answer is NaN. `progress` is called with the number of rows done since the last call.
        A teacher that knows more than logits has `columns` and `column` too, as `PluginTeacher` has.
        """


@dataclass(frozen=True)
class Opening:
    """What a teacher is opened with, besides its part of the recipe."""

    name: str  # in this run
    digest: str  # as it was planned
    recipe: Recipe
    data: LoadedTask  # the task that it teaches, with all splits
    models: tuple[Path, ...] = ()  # the folders of the models that were trained for it

    @property
    def cache(self) -> Path:
        """Where tokens are kept between runs."""
        return self.recipe.output.path / "cache"

    @property
    def batch(self) -> int:
        """How many rows are answered at once."""
        return self.recipe.evaluation.batch

    @property
    def device(self) -> str:
        """Where networks run."""
        return pick_device(self.recipe.machine)


class TeacherType(Protocol):
    """What is registered under the name of a type: its part of the recipe, and how it is digested and opened."""

    Spec: type[Any]

    def digest_of(self, spec: Any, recipe: Recipe) -> str:
        """Return the digest of all that decides its answers, without opening it."""

    def open(self, spec: Any, opening: Opening) -> Teacher:
        """Make it ready to answer."""


class PluginTeacher:
    """A type of teacher to derive from: it has a `Spec`, and `logits` that answer by it.

    Where more than its settings and its source decide its answers, such as files, it adds these in `digest_of`.
    """

    Spec: ClassVar[type[TeacherSpec]] = TeacherSpec
    columns: ClassVar[tuple[str, ...]] = ()  # what it can give besides logits, where a loss asks for it

    def __init__(self, spec: Any, opening: Opening) -> None:
        self.spec, self.task = spec, opening.data.task
        self.name, self.digest = opening.name, opening.digest

    @classmethod
    def digest_of(cls, spec: Any, recipe: Recipe) -> str:
        """Return the digest of what decides its answers besides its settings; there is nothing, as a rule."""
        return ""

    @classmethod
    def open(cls, spec: Any, opening: Opening) -> Teacher:
        """Make it ready to answer."""
        return cls(spec, opening)

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return raw logits, as `Teacher` has it."""
        raise NotImplementedError

    def column(self, name: str, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return one of its columns, [rows, …]; a row that it does not answer is NaN."""
        raise NotImplementedError


def digest_teacher(spec: TeacherSpec, recipe: Recipe) -> str:
    """Return the digest of all that decides the answers of a teacher that is not trained here."""
    own = _type(spec).digest_of(spec, recipe)
    if TEACHERS.is_own(spec.type):
        return own
    # A plug-in cannot forget its settings, nor the version it has.
    return fingerprint({"options": spec.options(), "own": own, "plugin": TEACHERS.facts(spec.type)})


def open_teacher(spec: TeacherSpec, opening: Opening) -> Teacher:
    """Make a teacher ready to answer; one that has changed since it was planned would be filed under a wrong name."""
    opened = _type(spec).open(spec, opening)
    now = opened.digest if TEACHERS.is_own(spec.type) else digest_teacher(spec, opening.recipe)
    if now != opening.digest:
        raise UserError(f"teacher {opening.name}: its files have changed since the run began; run the recipe again")
    return opened


def ask_column(teacher: Teacher, name: str, data: TaskData, progress: Progress | None = None) -> Logits:
    """Return one column of a teacher for every row, [rows, …]; NaN where it has no answer."""
    if name == LOGITS:
        return teacher.logits(data, progress)
    known: tuple[str, ...] = getattr(teacher, "columns", ())
    if name not in known:
        gives = listed([LOGITS, *known], "and")
        fix = "name another loss in student.distil, or leave this teacher out"
        raise UserError(
            f"teacher {teacher.name} gives {gives}, and a loss of task {data.task.name} needs {name} → {fix}"
        )
    column: Any = getattr(teacher, "column")  # noqa: B009
    return np.asarray(column(name, data, progress), np.float32)


def _type(spec: TeacherSpec) -> TeacherType:
    kind: TeacherType = TEACHERS[spec.type]
    return kind
