"""Facts: all that a report shows of a run, as plain values without layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from understill.bench.efficiency import Efficiency
from understill.evaluate.agreement import Agreement, Slice
from understill.evaluate.calibration import Calibration
from understill.evaluate.metrics import Ints
from understill.evaluate.significance import Summary
from understill.pipeline.comparison import Comparison, Retention
from understill.recipe import Recipe
from understill.tasks import Task


@dataclass(frozen=True)
class ScoreRow:
    """One dev set and metric, with the scores of each column; intervals are over rows and, of several, seeds."""

    place: str
    metric: str
    scores: Mapping[str, Summary]  # by column


@dataclass(frozen=True)
class Curve:
    """How the training of one model went."""

    name: str
    total: int  # steps
    losses: tuple[tuple[int, float], ...]  # by step
    mixes: tuple[tuple[int, float], ...]  # λ by step; empty without annealing
    looks: tuple[tuple[int, float], ...]  # the mean of the tasks' primary metrics on dev, by step


@dataclass(frozen=True)
class Measured:
    """How large and fast one model is, beside how well it does."""

    efficiency: Efficiency
    score: float  # the mean of the primary metrics of the tasks that all measured models have


@dataclass(frozen=True)
class Timing:
    """Models measured side by side."""

    models: tuple[Measured, ...]  # the student or main model first
    tasks: tuple[str, ...]  # those whose scores count
    task: str  # whose texts were read
    texts: int


@dataclass(frozen=True)
class Cut:
    """The rows of a dev set in slices, and the scores of the model on each."""

    by: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Example:
    """One row on which a model and its teachers, or a model and the gold label, differ."""

    texts: tuple[str, ...]
    gold: str
    answers: tuple[str, ...]  # each with its confidence


@dataclass(frozen=True)
class Examples:
    """The rows of a dev set on which two differ, the clearest differences first."""

    total: int
    rows: int  # of the whole dev set; queries of a ranking
    against: str  # "teachers", or "gold"
    answered_by: tuple[str, ...]
    shown: tuple[Example, ...]


@dataclass(frozen=True)
class Place:
    """One dev set, answered by the first seed of the student or main model."""

    name: str
    task: Task
    rows: int
    confusion: Ints | None  # of classes: rows by gold, columns by answer
    calibrations: Mapping[str, Calibration]  # of classes, by column
    agreement: Agreement | None
    retention: Mapping[str, float]  # by metric
    cuts: tuple[Cut, ...]
    examples: Examples


@dataclass(frozen=True)
class Facts:
    """All that a report shows of a run."""

    name: str
    folder: str
    recipe: Recipe
    started: float
    finished: float
    made_with: Mapping[str, str]
    training_seconds: float
    tasks: Mapping[str, Task]
    train_rows: Mapping[str, int]  # by task
    seeds: int
    runs: int
    main: str  # the column of the student or main model
    columns: tuple[str, ...]
    aid: str  # what the baseline does without
    scores: tuple[ScoreRow, ...]
    means: Mapping[str, Summary]  # over tasks, by column; empty where there is one task
    versus: tuple[Comparison, ...]
    retention: Retention | None  # of the teachers, by the student
    tried: int  # other trainings beside this run that were scored on the same dev sets
    timing: Timing | None
    curves: tuple[Curve, ...]
    findings: Mapping[str, Any]  # as in the record; empty for a single run
    places: tuple[Place, ...]
    asked: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)  # of language models, by task
