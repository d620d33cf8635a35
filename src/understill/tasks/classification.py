"""Classification: one of several named classes for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from understill.tasks.base import KINDS, Array, Kind
from understill.tasks.cells import GoldReader, LabelReader, sorted_labels
from understill.tasks.task import Task

#: Labels that are shown before the rest are only counted.
SHOWN = 6


class Classification(Kind):
    """One of several named classes for each row."""

    name = "classification"
    metrics = ("accuracy", "f1", "macro_f1", "matthews")
    hard = "cross_entropy"
    soft = MappingProxyType({"cross_entropy": "soft_cross_entropy", "logits": "logits"})
    settings = frozenset({"labels"})
    named, has_classes, scaled = True, True, False
    noun, far = "label", ""
    plain_metric = "accuracy"
    probe = "logistic"
    why = "few different values; or regression, if the column holds scores"
    unfit = ""

    def outputs(self, task: Task) -> int:
        """A logit for each class."""
        return len(task.labels)

    def reader(self, task: Task, known: frozenset[str] | None, limits: tuple[float, float] | None) -> GoldReader:
        """Read names of labels."""
        return LabelReader(task.label, known, sorted_labels)

    def values(self, logits: Array) -> Array:
        """Return the numbers of the likeliest classes."""
        return logits.argmax(axis=1).astype("float64")

    def answers(self, task: Task, logits: Array) -> list[Any]:
        """Return the names of the likeliest classes."""
        return [task.labels[int(number)] for number in self.values(logits)]

    def in_json(self, task: Task, logits: Array) -> list[dict[str, Any]]:
        """Return the likeliest label with the probability of each."""
        rows = zip(self.answers(task, logits), probabilities(logits).tolist(), strict=True)
        return [{"label": label, "probabilities": dict(zip(task.labels, row, strict=True))} for label, row in rows]

    def answer_columns(self, task: Task) -> dict[str, type]:
        """Return the columns of the label and of its probability."""
        return {"predicted": str, "probability": float}

    def answer_cells(self, task: Task, logits: Array) -> list[Sequence[Any]]:
        """Return labels and their probabilities."""
        return [self.answers(task, logits), probabilities(logits).max(axis=1).tolist()]

    def same_choices(self, task: Task, other: Task) -> bool:
        """Tell whether both have the same labels, in any order."""
        return set(task.labels) == set(other.labels)

    def differ(self, task: Task, one: Mapping[str, Any], other: Mapping[str, Any], apart: float) -> bool:
        """Tell whether two answers have different labels."""
        return bool(one["label"] != other["label"])

    def measured_by(self, task: Task, metric: str) -> str:
        """There is no positive class among many: F1 is then the mean of all classes'."""
        return "macro_f1" if metric == "f1" and len(task.labels) > 2 else metric

    def simplest(self, task: Task, gold: Array) -> Any:
        """Return the commonest class."""
        import numpy as np

        return float(np.bincount(gold[~np.isnan(gold)].astype(np.int64), minlength=task.outputs).argmax())

    def alike(self, one: Array, other: Array, groups: Array | None) -> Array:
        """Tell of each row whether two models choose the same class."""
        return one.argmax(axis=1) == other.argmax(axis=1)

    def summary(self, task: Task) -> str:
        """Count the classes."""
        return f"{len(task.labels)} classes"

    def gold_range(self, task: Task) -> str:
        """Name the first labels."""
        return ", ".join(task.labels[:SHOWN]) + (f", … ({len(task.labels)})" if len(task.labels) > SHOWN else "")

    def answers_with(self, task: Task) -> str:
        """Name the labels."""
        return ", ".join(task.labels)

    def shown(self, task: Task, logits: Array) -> list[str]:
        """Show each label with how sure the model is of it."""
        rows = zip(self.answers(task, logits), confidence(logits), strict=True)
        return [f"{label} ({100 * sure:.0f} %)" for label, sure in rows]

    def differing(self, task: Task, logits: Array, gold: Array, taught: Array | None) -> tuple[Array, Array]:
        """Tell where labels differ, the clearer the surer both sides are."""
        answer, sure = self.values(logits), confidence(logits)
        if taught is None:
            return (gold == gold) & (answer != gold), sure
        other_sure, known = confidence(taught), gold == gold
        # Without any gold there is nothing that rows could be shown beside.
        there = other_sure == other_sure if known.any() else known
        return there & (answer != self.values(taught)), sure * other_sure

    def choices(self, task: Task) -> tuple[str, ...]:
        """Return the labels."""
        return task.labels

    def question(self, task: Task) -> str:
        """Ask for one of the labels."""
        return f"Which option describes the {'two texts' if task.pair else 'text'} best?"

    def from_choices(self, task: Task, logarithms: Array) -> Array:
        """Take the log-probabilities of labels as logits."""
        return logarithms

    def order(self, own: Task, task: Task) -> list[int]:
        """Join outputs by the names of their labels."""
        return [own.labels.index(label) for label in task.labels]


def probabilities(logits: Array) -> Array:
    """Return the probability of each class, [rows, classes]."""
    import numpy as np

    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def logit_columns(task: Task) -> list[str]:
    """Name the columns that hold the logits of each class in a labelled file; none of a task without classes."""
    return [f"{task.name}_logit_{label}" for label in task.labels] if task.kind.has_classes else []


def confidence(logits: Array) -> Array:
    """Return the probability that a model gives to its own answer, in full precision; NaN where it says nothing."""
    import numpy as np

    rest = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    sure: Array = np.exp(-np.log(np.exp(rest).sum(axis=1)))
    return sure


CLASSIFICATION = KINDS.own(Classification.name)(Classification())
