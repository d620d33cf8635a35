"""The parts of a plan: models, teachers and tables of soft targets, each with the fingerprint of what goes into it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from understill.artifact import Artifact
from understill.atomic import fault_of
from understill.data.groups import units_in
from understill.data.load import LoadedTask
from understill.data.sampling import Part, shares
from understill.data.taskdata import TaskData
from understill.recipe import Cell, Recipe
from understill.recipe.schema import Best, Distil, Settings, TargetsSpec, TeacherSpec, Training, WordsSpec
from understill.tasks import Task

Role = Literal["model", "teacher", "student", "baseline", "finetuned", "finetuned baseline"]


@dataclass(frozen=True)
class Planned:
    """Something that is made, as an artifact."""

    artifact: Artifact

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all that goes into it."""
        return self.artifact.fingerprint

    @property
    def folder(self) -> Path:
        """Where it lies, with all that belongs to it."""
        return self.artifact.folder

    @property
    def done(self) -> bool:
        """Whether it was made before, to the end."""
        return self.artifact.done


@dataclass(frozen=True)
class Fold:
    """One part of the training rows that a model does not see."""

    number: int
    count: int
    by_class: bool = False  # every part has its share of each class; otherwise by text

    @property
    def facts(self) -> tuple[int | str, ...]:
        """What decides the rows of the part, for fingerprints."""
        return self.number, self.count, "by class" if self.by_class else "by text"


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
    artifact: Artifact


@dataclass(frozen=True)
class Start:
    """Where a model's first weights come from: an encoder, or another model of the plan."""

    name: str  # as the recipe has it
    place: str  # what the loaders take: a folder
    model: ModelPlan | None = None  # the model that is to be trained first
    heads: bool = False  # its heads are taken over too
    words: Words | None = None  # what is made at `place` before, for a network of our own

    @property
    def root(self) -> Start:
        """Where the first of the models begins that this one goes on from."""
        return self.model.start.root if self.model else self


@dataclass(frozen=True)
class ChoicePlan:
    """Which of several candidates go on to teach: the best by dev, before any of them is fine-tuned."""

    rule: Best
    candidates: Mapping[str, ModelPlan] = field(repr=False)  # by teacher, in the recipe's order
    artifact: Artifact

    @property
    def chosen(self) -> tuple[str, ...] | None:
        """The teachers that were chosen; None while that is open."""
        choice = self.artifact.read("choice.json")
        return None if choice is None else tuple(name for name in self.candidates if name in choice["chosen"])

    def drops(self, name: str) -> bool:
        """Tell whether a candidate is known not to be among the chosen."""
        chosen = self.chosen
        return chosen is not None and name not in chosen


@dataclass(frozen=True, eq=False)
class TeacherPlan:
    """One teacher of one task."""

    name: str
    task: str
    spec: TeacherSpec
    digest: str
    models: tuple[ModelPlan, ...]  # trained here: one, or one for each fold
    verdict: Artifact  # how it does on dev
    choice: ChoicePlan | None = None  # which it teaches by, where it is a candidate

    @property
    def dropped(self) -> bool:
        """Whether others were chosen to teach in its place."""
        return self.choice is not None and self.choice.drops(self.name)


@dataclass(frozen=True)
class TargetsPlan(Planned):
    """The soft targets of one split of one task."""

    task: str
    split: str
    candidates: tuple[TeacherPlan, ...]
    columns: tuple[str, ...]  # that the student's losses need

    @property
    def teachers(self) -> tuple[TeacherPlan, ...]:
        """The teachers that answer; while a choice is open, all its candidates."""
        return tuple(teacher for teacher in self.candidates if not teacher.dropped)


@dataclass(frozen=True)
class Distillation:
    """What a student learns from its teachers, and how."""

    distil: Distil
    rule: TargetsSpec
    targets: tuple[TargetsPlan, ...]
    unlabelled: Mapping[str, float]  # by task, the share of its rows in a batch
    judged: tuple[TeacherPlan, ...]  # those whose dev scores decide who teaches, where the recipe names tasks for it

    @property
    def candidates(self) -> tuple[TeacherPlan, ...]:
        """Every teacher of every task, once, with those that a choice may drop."""
        seen = {(teacher.task, teacher.name): teacher for targets in self.targets for teacher in targets.candidates}
        return tuple(seen.values())

    @property
    def teachers(self) -> tuple[TeacherPlan, ...]:
        """Every teacher of every task, once; while a choice is open, all its candidates."""
        return tuple(teacher for teacher in self.candidates if not teacher.dropped)


@dataclass(frozen=True)
class ModelPlan(Planned):
    """One model that a recipe asks for."""

    name: str
    role: Role
    tasks: tuple[Task, ...]  # those with a head of their own
    scored: tuple[LoadedTask, ...] = field(repr=False)  # those whose dev sets it is scored on, diagnostic sets included
    settings: Settings = field(repr=False)
    seed: int
    start: Start
    fold: Fold | None
    distillation: Distillation | None = field(repr=False)
    augmented: tuple[str, ...] = ()  # the tasks whose augmented rows it is trained on
    choice: ChoicePlan | None = field(default=None, repr=False)  # where it is trained only if its candidate is chosen

    def split(self, task: str) -> str:
        """Name the split of a task that it is trained on."""
        return "augmented" if task in self.augmented else "train"

    def orders(self, task: Task) -> tuple[bool, ...]:
        """Tell in which orders it learns from the texts of a row: as they are, and swapped where both are wanted."""
        return (False, True) if self.settings.training.both_orders and task.symmetric else (False,)

    @property
    def unlabelled(self) -> Mapping[str, float]:
        """By task, the share of rows in a batch that teachers alone label."""
        return self.distillation.unlabelled if self.distillation else {}

    @property
    def own(self) -> dict[str, LoadedTask]:
        """Its tasks with their rows, by name."""
        loaded = {task.task.name: task for task in self.scored}
        return {task.name: loaded[task.name] for task in self.tasks}

    @property
    def rows(self) -> dict[str, int]:
        """How many rows of each task it is trained on."""
        return {name: task.splits[self.split(name)].rows for name, task in self.own.items()}

    @property
    def started(self) -> bool:
        """Whether a sound checkpoint is there to go on from."""
        return any(not fault_of(path) for path in (self.folder / "work").glob("checkpoint-*"))

    @property
    def dropped(self) -> bool:
        """Whether it would be the fine-tuned form of a candidate that was not chosen."""
        return self.choice is not None and self.start.model is not None and self.choice.drops(self.start.model.name)

    @property
    def odds(self) -> float:
        """How likely it is trained: a candidate is fine-tuned only where it is chosen."""
        if self.choice is None or self.choice.chosen is not None:
            return 0.0 if self.dropped else 1.0
        return self.choice.rule.count / len(self.choice.candidates)


# Runs and studies -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The models, teachers and soft targets that a recipe asks for on this machine."""

    recipe: Recipe
    loaded: Mapping[str, LoadedTask]
    all_models: tuple[ModelPlan, ...]  # in the order they are trained in; a choice may drop some
    choice: ChoicePlan | None = None  # of the teachers, where it is made before they are fine-tuned

    @property
    def models(self) -> tuple[ModelPlan, ...]:
        """Every model that is trained; while a choice is open, also those that it may drop."""
        return tuple(model for model in self.all_models if not model.dropped)

    @property
    def candidates(self) -> tuple[ModelPlan, ...]:
        """Those to be trained before it is known which of them go on to teach; none once that is known."""
        return tuple(self.choice.candidates.values()) if self.choice and self.choice.chosen is None else ()

    @property
    def targets(self) -> tuple[TargetsPlan, ...]:
        """Every table of soft targets, once."""
        return tuple({targets.folder: targets for each in self.distillations for targets in each.targets}.values())

    @property
    def distillations(self) -> tuple[Distillation, ...]:
        """What all students learn from teachers."""
        return tuple(model.distillation for model in self.all_models if model.distillation)

    @property
    def augmented(self) -> tuple[TaskData, ...]:
        """Every augmented split that a model is trained on, once."""
        names = dict.fromkeys(name for model in self.all_models for name in model.augmented)
        return tuple(self.loaded[name].splits["augmented"] for name in names)

    @property
    def external(self) -> tuple[TeacherPlan, ...]:
        """The teachers that are not trained here."""
        return tuple(teacher for each in self.distillations for teacher in each.teachers if not teacher.models)


class Wanted(NamedTuple):
    """A model that is to be there, and what it is called among those of all runs."""

    plan: Plan
    model: ModelPlan
    title: str


@dataclass(frozen=True)
class Study:
    """The plans of all runs of a recipe (seeds, variants); they share what has the same fingerprint."""

    recipe: Recipe
    cells: tuple[tuple[Cell, Plan], ...]  # the recipe as it is, with its first seed, comes first

    @property
    def plan(self) -> Plan:
        """The plan of the recipe as it is."""
        return self.cells[0][1]

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """Every model of every run, in the order of training; one that several runs have is called the same in all."""
        titles = self.titles()
        return tuple(Wanted(plan, model, titles[model.folder]) for _, plan in self.cells for model in plan.models)

    @property
    def models(self) -> tuple[Wanted, ...]:
        """Every model, once: runs may have the same, and so may one run."""
        return once_each(self.wanted)

    @property
    def external(self) -> tuple[tuple[Plan, TeacherPlan], ...]:
        """The teachers that are not trained here, once each."""
        pairs = {each.verdict.folder: (plan, each) for _, plan in self.cells for each in plan.external}
        return tuple(pairs.values())

    def titles(self) -> dict[Path, str]:
        """Call a model that all runs have by its name, and any other after the first run that has it."""
        homes: dict[Path, dict[str, str]] = {}
        for cell, plan in self.cells:
            for model in plan.all_models:
                homes.setdefault(model.folder, {})[cell.name] = model.name
        titles = {}
        for folder, names in homes.items():
            first, name = next(iter(names.items()))
            titles[folder] = name if len(names) == len(self.cells) else f"{first}/{name}"
        return titles


def once_each(wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Return models without those that are there already."""
    firsts: dict[Path, Wanted] = {}
    for each in wanted:
        firsts.setdefault(each.model.folder, each)
    return tuple(firsts.values())


# What a model reads ---------------------------------------------------------------------------------------------------


def cache_folder(recipe: Recipe) -> Path:
    """Return where data and tokens are kept between runs."""
    return recipe.output.path / "cache"


def max_length(recipe: Recipe, settings: Settings, task: str) -> int:
    """Return how many tokens of a task's rows a model reads."""
    return recipe.tasks[task].max_length or settings.encoder.max_length


def dev_sets(loaded: Mapping[str, LoadedTask], head: str) -> list[TaskData]:
    """Return the dev sets that a task's head answers, diagnostic ones included."""
    tasks = [task for task in loaded.values() if task.task.head == head]
    return [data for task in tasks for split, data in task.splits.items() if split.startswith("dev")]


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
