"""Kinds of tasks: a kind knows all that is particular to its tasks, so that a further one is one module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from understill.plugins import Registry
from understill.tasks.cells import GoldReader, ScoreReader

if TYPE_CHECKING:
    from understill.tasks.task import Task

#: Arrays, which no light module names: gold is [rows] or [rows, numbers], logits are [rows, outputs].
Array = Any

#: Settings of a recipe's task that only some kinds have, and what to say where another has one.
SETTINGS = {
    "group": "only ranking tasks have this → leave it out, or set kind: ranking",
    "candidates": "only ranking tasks have this → leave it out, or set kind: ranking",
    "range": "range is for scores → leave it out, or set kind: regression",
    "decimal": "decimal is for scores → leave it out, or set kind: regression",
    "labels": "a {kind} task has scores, not labels → leave labels out, or make it classification",
}


class Kind:
    """A kind of task: everything the rest of the package asks about tasks that differs between kinds.

    What is declared here is that of a kind whose rows have scores; a method is overridden where a kind differs.
    """

    name: str
    metrics: tuple[str, ...]  # those a task may name; the first is its default
    hard: str  # the loss term against gold, by its name in `losses`
    soft: Mapping[str, str]  # the loss term against teachers, for each `distil.loss` of a recipe
    settings: frozenset[str] = frozenset()  # which of SETTINGS its tasks may have
    named: bool = False  # gold is the name of one of the task's labels; else it is a number, or several
    has_classes: bool = False  # there is an output for each label, and answers have probabilities
    scaled: bool = True  # outputs are on the task's scale, by way of `heads.regression`
    grouped: bool = False  # rows belong to units (queries), which are learnt from and scored as a whole
    units: str = "rows"  # what is resampled and counted
    noun: str = "score"  # what a row's gold is called
    far: str = " by more than a tenth of the range"  # how answers differ where they count as different
    plain_metric: str | None = None  # what can be measured where all rows have the same gold
    probe: Literal["logistic", "ridge", "difference"] | None = None  # what fits a linear head; nothing does
    why: str = ""  # what `init` says where it guesses this kind
    recast_needs: str = ""  # what a known task must have to be recast as this kind
    unfit: str = "has a kind of its own"  # why no sequence classifier of Hugging Face can hold it

    # What a task is ------------------------------------------------------------------------------------------------

    def outputs(self, task: Task) -> int:
        """Return how many numbers the head gives for one row."""
        raise NotImplementedError

    def gold_numbers(self, task: Task) -> int:
        """Return how many numbers the gold of one row is; from 2 on, gold is an array [rows, numbers]."""
        return 1

    def facts(self, task: Task) -> dict[str, Any]:
        """Return what a task of this kind writes down besides what every task does."""
        return {}

    def contradictions(self, spec: Any) -> Iterator[tuple[str, str]]:
        """Yield what a recipe's task has that does not go with this kind: the key, and what to do."""
        for key, what in SETTINGS.items():
            if getattr(spec, key) and key not in self.settings:
                yield key, what.format(kind=self)

    def recast(self, task: Task) -> Task | None:
        """Return a known task of another kind as one of this; None where it cannot be."""
        return None

    def settled(self, task: Task) -> bool:
        """Tell whether all is known that training rows would else show: labels or range."""
        return bool(task.labels if self.named else task.range)

    def reader(self, task: Task, known: frozenset[str] | None, limits: tuple[float, float] | None) -> GoldReader:
        """Return what reads gold cells, where labels are among the known ones and scores within limits."""
        return ScoreReader(limits)

    # What a model answers ------------------------------------------------------------------------------------------

    def values(self, logits: Array) -> Array:
        """Return what metrics compare with gold: class numbers or scores, shaped as gold."""
        return logits[:, 0].astype("float64") if logits.shape[1] == 1 else logits.astype("float64")

    def answers(self, task: Task, logits: Array) -> list[Any]:
        """Return the answer to each row as plain values."""
        # A line goes on past the ends of the scale, which an answer does not.
        low, high = task.range or (float("-inf"), float("inf"))
        answers: list[Any] = self.values(logits).clip(low, high).tolist()
        return answers

    def in_json(self, task: Task, logits: Array) -> list[dict[str, Any]]:
        """Return the answer to each row as fields of an `Answer`."""
        return [{"score": answer} for answer in self.answers(task, logits)]

    def answer_columns(self, task: Task) -> dict[str, type]:
        """Return the columns of answers in a file, by what their names end with."""
        return {"predicted": float}

    def answer_cells(self, task: Task, logits: Array) -> list[Sequence[Any]]:
        """Return the cells of those columns, column by column."""
        return [self.answers(task, logits)]

    def same_choices(self, task: Task, other: Task) -> bool:
        """Tell whether two models' tasks of this kind have the same answers to choose from."""
        return True

    def differ(self, task: Task, one: Mapping[str, Any], other: Mapping[str, Any], apart: float) -> bool:
        """Tell whether two answers differ; scores do by a share of the range, without which they have no scale."""
        return task.range is not None and abs(one["score"] - other["score"]) > apart * (task.range[1] - task.range[0])

    # How it is scored ----------------------------------------------------------------------------------------------

    def measured_by(self, task: Task, metric: str) -> str:
        """Return the metric that is meant by a name."""
        return metric

    def counted(self, gold: Array, groups: Array | None) -> Array:
        """Tell of each row whether it can be scored: it has gold."""
        known = gold == gold  # NaN is not equal to itself
        return known if known.ndim == 1 else known.all(axis=1)

    def simplest(self, task: Task, gold: Array) -> Any:
        """Return the simplest guess there is by training rows: the mean."""
        mean = gold[self.counted(gold, None)].mean(axis=0)
        return float(mean) if mean.ndim == 0 else mean

    def alike(self, one: Array, other: Array, groups: Array | None) -> Array | None:
        """Tell of each unit whether two models answer the same; None where answers are too fine for that."""
        return None

    # How it is shown -----------------------------------------------------------------------------------------------

    def summary(self, task: Task) -> str:
        """Say in a word or two what is asked."""
        return "scores"

    def gold_range(self, task: Task) -> str:
        """Say what gold may be."""
        return f"{task.range[0]:g} to {task.range[1]:g}" if task.range else "any score"

    def answers_with(self, task: Task) -> str:
        """Say what an answer is."""
        return "a score" + (f" from {task.range[0]:g} to {task.range[1]:g}" if task.range else "")

    def shown(self, task: Task, logits: Array) -> list[str]:
        """Show the answer to each row to people."""
        return [self._numbers(value) for value in self.values(logits).tolist()]

    def gold_shown(self, task: Task, gold: Any) -> str:
        """Show the gold of a row, which has some."""
        return task.labels[int(gold)] if self.named else self._numbers(gold.tolist())

    def differing(self, task: Task, logits: Array, gold: Array, taught: Array | None) -> tuple[Array, Array]:
        """Tell of each row whether the answer differs from the teachers', or else from gold, and how clearly."""
        apart = abs(self.values(logits) - (gold if taught is None else self.values(taught)))
        apart = apart if apart.ndim == 1 else apart.max(axis=1)
        known = gold[gold == gold]
        low, high = task.range or ((known.min(), known.max()) if known.size else (0.0, 0.0))
        return apart > (high - low) / 10, apart

    def _numbers(self, value: Any) -> str:
        return ", ".join(f"{each:.2f}" for each in value) if isinstance(value, list) else f"{value:.2f}"

    # How a prompt asks for it --------------------------------------------------------------------------------------

    def choices(self, task: Task) -> tuple[str, ...]:
        """Return the answers that a language model chooses from: the whole numbers of the range, or ten steps of it."""
        low, high = task.range or (0.0, 1.0)
        if 0 <= low < high <= 9 and float(low).is_integer() and float(high).is_integer():
            return tuple(str(score) for score in range(int(low), int(high) + 1))
        return tuple("0123456789")

    def question(self, task: Task) -> str:
        """Ask what is wanted, where the recipe has no question of its own."""
        first, *_, last = self.choices(task)
        how = "alike are the two texts in meaning" if task.pair else f'is the text rated as to "{task.name}"'
        return f"How {how}? {first} is lowest, {last} is highest."

    def from_choices(self, task: Task, logarithms: Array) -> Array:
        """Turn log-probabilities of the choices, [rows, choices], into what a teacher gives: the expected score."""
        import numpy as np

        low, high = task.range or (0.0, 1.0)
        scores = np.linspace(low, high, logarithms.shape[1])
        return (np.exp(logarithms) @ scores)[:, None]

    # What others know of it ----------------------------------------------------------------------------------------

    def order(self, own: Task, task: Task) -> list[int]:
        """Return which of the outputs of a model's own task are those of the task asked for."""
        return list(range(task.outputs))

    def turned(self, own: Task, task: Task) -> bool:
        """Tell whether equal labels mean something else because of their order."""
        return False

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return _named, (self.name,)  # a copy is the kind itself


#: Every kind there is, by its name; a module for each, and those of plug-ins.
KINDS: Registry[Kind] = Registry("kind of task", "understill.kinds")


def _named(name: str) -> Kind:
    return KINDS[name]
