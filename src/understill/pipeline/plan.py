"""The plan's types: models, teachers and tables of soft targets, each with the fingerprint of all that goes into it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from understill.data.groups import units_in
from understill.data.load import LoadedTask
from understill.data.sampling import Part, shares
from understill.data.taskdata import TaskData
from understill.recipe import Cell, Recipe
from understill.recipe.schema import Distil, Settings, TargetsSpec, TeacherSpec, Training, WordsSpec
from understill.targets.store import MANIFEST
from understill.tasks import Task

Role = Literal["model", "teacher", "student", "baseline", "finetuned", "finetuned baseline"]


@dataclass(frozen=True)
class Fold:
    """One part of the training rows that a model does not see."""

    number: int
    count: int

    @property
    def facts(self) -> tuple[int | str, ...]:
        """What decides the rows of the part, for fingerprints."""
        return self.number, self.count, "by text"


@dataclass(frozen=True)
class WordSource:
    """Where the words of a recipe's network come from, besides the training rows."""

    vectors: Path | None
    tokenizer: str  # the folder of the encoder that lends its tokeniser; empty where words are words
    digests: Mapping[str, str] = field(repr=False)  # of what these hold


@dataclass(frozen=True)
class Words:
    """What a network over words begins with: its vocabulary, sizes and first vectors, as a folder in the cache."""

    network: str  # which of our own
    spec: WordsSpec
    tasks: tuple[str, ...]  # whose training rows the words are taken from
    fold: Fold | None
    source: WordSource
    fingerprint: str
    folder: Path


@dataclass(frozen=True)
class Start:
    """Where a model's first weights come from: an encoder, or another model of the plan."""

    name: str  # as the recipe has it
    place: str  # what the loaders take: a folder
    model: ModelPlan | None = None  # the model that is to be trained first
    heads: bool = False  # its heads are taken over too
    words: Words | None = None  # what is made at `place` before, for a network of our own


@dataclass(frozen=True, eq=False)
class TeacherPlan:
    """One teacher of one task."""

    name: str
    task: str
    spec: TeacherSpec
    digest: str
    models: tuple[ModelPlan, ...]  # trained here: one, or one for each fold
    place: str  # of a checkpoint
    verdict: Path  # the folder that keeps how it does on dev


@dataclass(frozen=True)
class TargetsPlan:
    """The soft targets of one split of one task."""

    task: str
    split: str
    teachers: tuple[TeacherPlan, ...]
    fingerprint: str
    folder: Path

    @property
    def done(self) -> bool:
        """Whether they were written before."""
        return (self.folder / MANIFEST).exists()


@dataclass(frozen=True)
class Lessons:
    """What a student learns from its teachers, and how."""

    distil: Distil
    rule: TargetsSpec
    targets: tuple[TargetsPlan, ...]
    unlabelled: Mapping[str, float]  # by task, the share of its rows in a batch
    judged: tuple[TeacherPlan, ...]  # those whose dev scores decide who teaches, where the recipe names tasks for it

    @property
    def teachers(self) -> Iterator[TeacherPlan]:
        """Every teacher of every task, once."""
        seen = {(teacher.task, teacher.name): teacher for targets in self.targets for teacher in targets.teachers}
        yield from seen.values()


@dataclass(frozen=True)
class ModelPlan:
    """One model that a recipe asks for."""

    name: str
    role: Role
    tasks: tuple[Task, ...]  # those with a head of their own
    scored: tuple[LoadedTask, ...] = field(repr=False)  # those whose dev sets it is scored on, diagnostic sets included
    settings: Settings = field(repr=False)
    seed: int
    start: Start
    fold: Fold | None
    lessons: Lessons | None = field(repr=False)
    fingerprint: str
    folder: Path
    augmented: tuple[str, ...] = ()  # the tasks whose augmented rows it is trained on

    def split(self, task: str) -> str:
        """Name the split of a task that it is trained on."""
        return "augmented" if task in self.augmented else "train"

    @property
    def done(self) -> bool:
        """Whether it was trained before, to the end."""
        return (self.folder / "done.json").exists()

    @property
    def started(self) -> bool:
        """Whether a checkpoint is there to go on from."""
        return any((self.folder / "work").glob("checkpoint-*"))

    @property
    def awaits_choice(self) -> bool:
        """Whether it hangs on which candidates teach, where that is open: it learns from them, or is one of them."""
        start = self.start.model
        return (
            self.lessons is not None
            or (self.role == "teacher" and self.start.heads)
            or bool(start and start.awaits_choice)
        )

    @property
    def needs(self) -> Iterator[ModelPlan]:
        """The models that are trained before it."""
        if self.start.model:
            yield self.start.model
        if self.lessons:
            for teacher in (*self.lessons.teachers, *self.lessons.judged):
                yield from teacher.models


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to on this machine."""

    recipe: Recipe
    loaded: Mapping[str, LoadedTask]
    models: tuple[ModelPlan, ...]  # in the order they are trained in
    candidates: tuple[ModelPlan, ...]  # to be trained before it is known which of them go on to teach
    again: Callable[[], Plan] = field(repr=False)  # lays the same out as things stand then

    @property
    def targets(self) -> tuple[TargetsPlan, ...]:
        """Every table of soft targets, once."""
        return tuple({targets.folder: targets for lessons in self.lessons for targets in lessons.targets}.values())

    @property
    def lessons(self) -> tuple[Lessons, ...]:
        """The lessons of all students."""
        return tuple(model.lessons for model in self.models if model.lessons)

    @property
    def augmented(self) -> tuple[TaskData, ...]:
        """Every augmented split that a model is trained on, once."""
        names = dict.fromkeys(name for model in self.models for name in model.augmented)
        return tuple(self.loaded[name].splits["augmented"] for name in names)

    @property
    def outsiders(self) -> tuple[TeacherPlan, ...]:
        """The teachers that are not trained here."""
        return tuple(teacher for lessons in self.lessons for teacher in lessons.teachers if not teacher.models)


class Wanted(NamedTuple):
    """A model that is to be there, and what it is called among those of all runs."""

    plan: Plan
    model: ModelPlan
    title: str


@dataclass(frozen=True)
class Study:
    """What a recipe comes to that may stand for several runs; they share what has the same fingerprint."""

    recipe: Recipe
    cells: tuple[tuple[Cell, Plan], ...]  # the recipe as it is, with its first seed, comes first

    @property
    def plan(self) -> Plan:
        """The plan of the recipe as it is."""
        return self.cells[0][1]

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """Every model of every run, in the order of training; one that several runs have is called the same in all."""
        titles = self._titles()
        return tuple(Wanted(plan, model, titles[model.folder]) for _, plan in self.cells for model in plan.models)

    @property
    def models(self) -> tuple[Wanted, ...]:
        """Every model, once: runs may have the same, and so may one run."""
        return once_each(self.wanted)

    @property
    def candidates(self) -> tuple[Wanted, ...]:
        """Those to be trained before it is known which of them go on to teach."""
        titles = self._titles()
        return tuple(Wanted(plan, model, titles[model.folder]) for _, plan in self.cells for model in plan.candidates)

    @property
    def targets(self) -> tuple[TargetsPlan, ...]:
        """Every table of soft targets, once."""
        return tuple({targets.folder: targets for _, plan in self.cells for targets in plan.targets}.values())

    @property
    def outsiders(self) -> tuple[tuple[Plan, TeacherPlan], ...]:
        """The teachers that are not trained here, once each."""
        found = {each.verdict: (plan, each) for _, plan in self.cells for each in plan.outsiders}
        return tuple(found.values())

    def again(self) -> Study:
        """Lay the same out as things stand now."""
        return Study(self.recipe, tuple((cell, plan.again()) for cell, plan in self.cells))

    def _titles(self) -> dict[Path, str]:
        """Call a model that all runs have by its name, and any other after the first run that has it."""
        homes: dict[Path, dict[str, str]] = {}
        for cell, plan in self.cells:
            for model in plan.models:
                homes.setdefault(model.folder, {})[cell.name] = model.name
        titles = {}
        for folder, names in homes.items():
            first, name = next(iter(names.items()))
            titles[folder] = name if len(names) == len(self.cells) else f"{first}/{name}"
        return titles


def once_each(wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Return models without those that are there already."""
    found: dict[Path, Wanted] = {}
    for each in wanted:
        found.setdefault(each.model.folder, each)
    return tuple(found.values())


def cache_folder(recipe: Recipe) -> Path:
    """Return where data and tokens are kept between runs."""
    return recipe.output.path / "cache"


def max_length(recipe: Recipe, settings: Settings, task: str) -> int:
    """Return how many tokens of a task's rows a model reads."""
    return recipe.tasks[task].max_length or settings.encoder.max_length


def dev_sets(loaded: Mapping[str, LoadedTask], head: str) -> list[tuple[LoadedTask, str]]:
    """Return the dev sets that a task's head answers, diagnostic ones included."""
    tasks = [task for task in loaded.values() if task.task.head == head]
    return [(task, split) for task in tasks for split in task.splits if split.startswith("dev")]


def dev_figure(model: ModelPlan, task: Task) -> float:
    """Return what a finished model is compared by on a task's dev set, higher is better; NaN where it has no score."""
    facts = json.loads((model.folder / "done.json").read_text(encoding="utf-8"))
    scores = facts["scores"].get(f"{task.name}/dev")
    from understill.evaluate.metrics import primary  # which brings scikit-learn, and listing data does without

    return primary(task, scores) if scores else math.nan


def parts_of(
    tasks: tuple[Task, ...],
    loaded: Mapping[str, LoadedTask],
    settings: Settings,
    unlabelled: Mapping[str, float],
    augmented: Collection[str] = (),
) -> list[Part]:
    """Count the rows, or queries, a model is trained on: labelled ones first, then those that teachers label."""
    parts = []
    for split in ("train", "unlabelled"):
        for number, task in enumerate(tasks):
            share = unlabelled.get(task.name, 0.0) if split == "unlabelled" else 0.0
            if split == "train" or share:
                orders = 2 if settings.training.both_orders and task.symmetric else 1
                name = "augmented" if split == "train" and task.name in augmented else split
                parts.append(Part(number, units_in(loaded[task.name].splits[name]) * orders, share))
    return parts


def epoch_of(parts: list[Part], training: Training) -> int:
    """Return how many steps an epoch of these units takes."""
    return int(shares(parts, training.batch, training.batches, training.sampling).draws.sum()) // training.batch
