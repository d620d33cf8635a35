"""Ranking: which of a query's candidates is right."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from understill.tasks.base import KINDS, Array, Kind
from understill.tasks.cells import Fault, GoldReader, LabelReader
from understill.tasks.task import Task

#: Labels that say by themselves which candidates are wrong and which are right.
WRONG_AND_RIGHT = (("0", "1"), ("false", "true"), ("no", "yes"), ("wrong", "right"))
#: The labels of known pairs by which the second text is a right candidate for the first.
RIGHT = ("entailment", "paraphrase")


class Ranking(Kind):
    """Which of a query's candidates is right: a score for each row, compared among the rows of its query."""

    name = "ranking"
    metrics = ("precision_at_1", "mrr", "accuracy")
    hard = "listwise"
    soft = MappingProxyType({"cross_entropy": "soft_listwise", "logits": "logits"})
    settings = frozenset({"labels", "group", "candidates"})
    named, scaled, grouped = True, False, True
    units, noun, far = "queries", "label", ""
    probe = "difference"
    why = "or classification, if each pair is judged by itself"
    recast_needs = ", which needs pairs of texts that are right or wrong"
    unfit = "ranks candidates"

    def outputs(self, task: Task) -> int:
        """The candidate's score."""
        return 1

    def facts(self, task: Task) -> dict[str, Any]:
        """Return the column that names a row's query."""
        return {"group": task.group}

    def contradictions(self, spec: Any) -> Iterator[tuple[str, str]]:
        """Yield what does not go with ranking."""
        if len(spec.text) == 1:
            yield "text", "a ranking task has two texts → name the columns of query and candidate"
        if len(spec.labels) > 2:
            yield "labels", "candidates are wrong or right → name two labels, the right one last"
        if spec.symmetric:
            yield "symmetric", "a query and its candidate do not change places → leave it out"
        yield from super().contradictions(spec)

    def recast(self, task: Task) -> Task | None:
        """Return a known task as one of ranking second texts by the first, where its pairs are right or wrong."""
        right = [label for label in task.labels if label in RIGHT]
        wrong = [label for label in task.labels if label not in RIGHT]
        if not task.pair or not len(right) == len(wrong) == 1:
            return None
        return replace(task, kind=self, labels=(*wrong, *right), metrics=self.metrics, symmetric=False)

    def reader(self, task: Task, known: frozenset[str] | None, limits: tuple[float, float] | None) -> GoldReader:
        """Read names of two labels, of which the last is that of right candidates."""
        return LabelReader(task.label, known, _right_last)

    def counted(self, gold: Array, groups: Array | None) -> Array:
        """Count the rows of queries that leave a choice, and have gold throughout."""
        import numpy as np

        assert groups is not None
        count = int(groups.max(initial=-1)) + 1
        right, wrong = (np.bincount(groups[gold == label], minlength=count) for label in (1, 0))
        return ((right > 0) & (wrong > 0) & (right + wrong == np.bincount(groups, minlength=count)))[groups]

    def alike(self, one: Array, other: Array, groups: Array | None) -> Array:
        """Tell of each query whether two models put the same candidate on top."""
        return top(one[:, 0], groups) == top(other[:, 0], groups)

    def summary(self, task: Task) -> str:
        """Name it."""
        return "ranking"

    def gold_range(self, task: Task) -> str:
        """Name the labels."""
        return ", ".join(task.labels)

    def choices(self, task: Task) -> tuple[str, ...]:
        """Return no and yes, in the order of the labels."""
        return "no", "yes"

    def question(self, task: Task) -> str:
        """Ask whether a candidate is right."""
        return "Is the second text a right answer to the first?"

    def from_choices(self, task: Task, logarithms: Array) -> Array:
        """Score a candidate by the log-odds that it is right."""
        return logarithms[:, 1:] - logarithms[:, :1]

    def turned(self, own: Task, task: Task) -> bool:
        """Tell whether another label is the right one."""
        return own.labels != task.labels


def top(scores: Array, groups: Array) -> Array:
    """Return the row of each query that stands on top, the first of those that tie."""
    import numpy as np

    order = np.lexsort((np.arange(len(scores)), -scores, groups))
    return order[np.append(True, np.diff(groups[order]) != 0)]


def wrong_and_right(labels: Collection[str]) -> tuple[str, str] | None:
    """Put the label of right candidates last; None where the labels do not say which one it is."""
    spelt = {label.casefold().removesuffix(".0"): label for label in labels}
    for wrong, right in WRONG_AND_RIGHT:
        if len(labels) == 2 and spelt.keys() == {wrong, right}:
            return spelt[wrong], spelt[right]
    return None


def _right_last(labels: Collection[str], column: str | None) -> tuple[str, ...]:
    if len(labels) > 2:
        what = f'column "{column}" has {len(labels):,} different labels; candidates are wrong or right'
        raise Fault(what, "name a column with two labels, or write kind: classification")
    if known := wrong_and_right(labels):
        return known
    one, two = sorted(labels)
    what = f'column "{column}" has the labels {one} and {two}, and does not say which of them is right'
    raise Fault(what, f"write labels, the right one last: [{one}, {two}] if {two} is right, else [{two}, {one}]")


RANKING = KINDS.own(Ranking.name)(Ranking())
