"""The parts of a plan: models, teachers and tables of soft targets, each with the fingerprint of what goes into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from understill.artifact import Artifact
from understill.data.load import LoadedTask
from understill.disk import fault_of
from understill.recipe.schema import Best, Distil, Settings, TargetsSpec, TeacherSpec, WordsSpec
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
    artifact: Artifact


@dataclass(frozen=True)
class Start:
    """Where a model's first weights come from: an encoder, or another model of the plan."""

    name: str  # as the recipe has it
    place: str  # what the loaders take: a folder
    model: ModelPlan | None = None  # the model that is to be trained first
    heads: bool = False  # its heads are taken over too
    words: Words | None = None  # what is made at `place` before, for a network of our own


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
class TargetsPlan:
    """The soft targets of one split of one task."""

    task: str
    split: str
    candidates: tuple[TeacherPlan, ...]
    columns: tuple[str, ...]  # that the student's losses need
    artifact: Artifact

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return self.artifact.folder

    @property
    def teachers(self) -> tuple[TeacherPlan, ...]:
        """The teachers that answer; while a choice is open, all its candidates."""
        return tuple(teacher for teacher in self.candidates if not teacher.dropped)

    @property
    def done(self) -> bool:
        """Whether they were written before."""
        return self.artifact.done


@dataclass(frozen=True)
class Distillation:
    """What a student learns from its teachers, and how."""

    distil: Distil
    rule: TargetsSpec
    targets: tuple[TargetsPlan, ...]
    unlabelled: Mapping[str, float]  # by task, the share of its rows in a batch
    judged: tuple[TeacherPlan, ...]  # those whose dev scores decide who teaches, where the recipe names tasks for it
    choice: ChoicePlan | None = None  # made before, among the teachers

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
    distillation: Distillation | None = field(repr=False)
    artifact: Artifact
    augmented: tuple[str, ...] = ()  # the tasks whose augmented rows it is trained on
    choice: ChoicePlan | None = field(
        default=None, repr=False
    )  # where it is trained only for a candidate that is chosen

    @property
    def fingerprint(self) -> str:
        """What all that goes into it comes to."""
        return self.artifact.fingerprint

    @property
    def folder(self) -> Path:
        """Where it lies, with all that belongs to it."""
        return self.artifact.folder

    def split(self, task: str) -> str:
        """Name the split of a task that it is trained on."""
        return "augmented" if task in self.augmented else "train"

    @property
    def done(self) -> bool:
        """Whether it was trained before, to the end."""
        return self.artifact.done

    @property
    def started(self) -> bool:
        """Whether a sound checkpoint is there to go on from."""
        return any(not fault_of(path) for path in (self.folder / "work").glob("checkpoint-*"))

    @property
    def dropped(self) -> bool:
        """Whether it would be the fine-tuned form of a candidate that was not chosen."""
        return self.choice is not None and self.start.model is not None and self.choice.drops(self.start.model.name)

    @property
    def awaits_choice(self) -> bool:
        """Whether it hangs on which candidates teach: it learns from them, is one, or goes on from such a one."""
        start = self.start.model
        return bool(self.choice or (self.distillation and self.distillation.choice) or (start and start.awaits_choice))

    @property
    def odds(self) -> float:
        """How likely it is trained: a candidate is fine-tuned only where it is chosen."""
        if self.choice is None or self.choice.chosen is not None:
            return 0.0 if self.dropped else 1.0
        return self.choice.rule.count / len(self.choice.candidates)

    @property
    def needs(self) -> Iterator[ModelPlan]:
        """The models that are trained before it."""
        if self.choice:
            yield from self.choice.candidates.values()
        if self.start.model:
            yield self.start.model
        if self.distillation:
            for teacher in (*self.distillation.teachers, *self.distillation.judged):
                yield from teacher.models
