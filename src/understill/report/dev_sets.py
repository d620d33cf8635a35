"""Dev sets: confusion, calibration, agreement, slices and examples, from the predictions kept of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understill.data.taskdata import TaskData
from understill.evaluate.agreement import Bools, agreement, by_quarter, by_value, retention, slices
from understill.evaluate.calibration import Calibration, calibration
from understill.evaluate.metrics import Array, Ints, score
from understill.evaluate.predict import KeptRows
from understill.report.facts import Cut, Example, Examples, Place
from understill.tasks import Task
from understill.tasks.classification import confidence
from understill.tasks.ranking import top

#: Rows of a dev set that are shown where two differ.
SHOWN = 2000
#: Characters of a text that are shown.
LONG = 3000
#: Labels that a confusion matrix and slices are made for.
MANY = 30


@dataclass(frozen=True)
class DevAnswers:
    """The predictions of a run's columns for one dev set, and its texts."""

    place: str
    data: TaskData
    kept: Mapping[str, KeptRows]  # by column, rows in the order of the data
    main: str

    @property
    def mine(self) -> KeptRows:
        """The predictions of the student or main model."""
        return self.kept[self.main]

    @property
    def taught(self) -> KeptRows | None:
        """The predictions of its teachers together."""
        return self.kept.get("teachers")


def place_facts(answers: DevAnswers, by: str | None = None, column: Sequence[str | None] | None = None) -> Place:
    """Gather what is shown of one dev set; the values of a column of the user's, named `by`, may slice it too."""
    task, mine, taught = answers.data.task, answers.mine, answers.taught
    classes = task.kind.has_classes
    calibrations: dict[str, Calibration] = {}
    for name, kept in answers.kept.items():
        if classes and (each := calibration(kept.settled, kept.predictions.logits)):
            calibrations[name] = each
    parts = _parts(answers)
    if column is not None:
        parts[f"column {by}"] = _by_column(column)
    gold, values = mine.gold, mine.predictions.values
    return Place(
        name=answers.place,
        task=task,
        rows=len(gold),
        confusion=_confusion(gold, values, len(task.labels)) if classes and len(task.labels) <= MANY else None,
        calibrations=calibrations,
        agreement=agreement(task, mine.predictions.logits, taught.predictions.logits, mine.groups) if taught else None,
        retention=_retention(answers),
        cuts=tuple(
            Cut(what, tuple(slices(task, gold, values, masks, mine.groups)))
            for what, masks in parts.items()
            if len(masks) > 1
        ),
        examples=_examples(answers),
    )


def _confusion(gold: Array, values: Array, count: int) -> Ints:
    """Count answers by gold label, [gold, answer]."""
    known = ~np.isnan(gold)
    pairs = gold[known].astype(np.int64) * count + values[known].astype(np.int64)
    return np.bincount(pairs, minlength=count * count).reshape(count, count)


def _retention(answers: DevAnswers) -> dict[str, float]:
    """Return the model's scores as shares of its teachers', over the rows that they answer."""
    if not answers.taught:
        return {}
    gold, both = answers.taught.settled, (answers.mine, answers.taught)
    return retention(*(score(answers.data.task, gold, kept.predictions.values, kept.groups) for kept in both))


# Slices ---------------------------------------------------------------------------------------------------------------


def _parts(answers: DevAnswers) -> dict[str, dict[str, Bools]]:
    """Slice the rows by length, by label and by the teachers' confidence."""
    table, task = answers.data.table(), answers.data.task
    lengths = pc.utf8_length(table["text1"])
    if task.pair and not task.kind.grouped:  # a query is in a part with all its candidates, so its own length counts
        lengths = pc.add(lengths, pc.utf8_length(table["text2"]))
    parts = {"length": by_quarter(np.asarray(lengths, dtype=np.float64), "characters")}
    gold = answers.mine.gold
    if task.kind.has_classes and len(task.labels) <= MANY:
        parts["label"] = {name: mine for number, name in enumerate(task.labels) if (mine := gold == number).any()}
    elif not task.kind.named and gold.ndim == 1 and not np.isnan(gold).any():
        parts["score"] = by_quarter(gold)
    if answers.taught and task.kind.has_classes and not np.isnan(answers.taught.settled).any():
        parts["confidence of the teachers"] = by_quarter(confidence(answers.taught.predictions.logits).round(3))
    return parts


def _by_column(column: Sequence[str | None]) -> dict[str, Bools]:
    """Slice rows by the user's column: many numbers in quarters, anything else by value, the commonest."""
    if len(set(column)) > MANY:
        with suppress(TypeError, ValueError):  # then they are not all numbers
            return _by_number(np.asarray(column, dtype=np.float64))
    return dict(list(by_value(column).items())[:MANY])


def _by_number(numbers: Array) -> dict[str, Bools]:
    """Slice rows in quarters; those without a number are a slice of their own."""
    known = np.isfinite(numbers)
    parts = {}
    for name, quarter in by_quarter(numbers[known]).items():
        parts[name] = np.zeros(len(numbers), dtype=np.bool_)
        parts[name][known] = quarter
    return parts if known.all() else {**parts, "none": ~known}


# Examples -------------------------------------------------------------------------------------------------------------


def _examples(answers: DevAnswers) -> Examples:
    """Find the rows on which a model differs from its teachers or, without any, from gold; the clearest first."""
    return _differing_tops(answers) if answers.data.task.kind.grouped else _differing_rows(answers)


def _differing_rows(answers: DevAnswers) -> Examples:
    mine, taught, task = answers.mine, answers.taught, answers.data.task
    logits, theirs = mine.predictions.logits, taught.predictions.logits if taught else None
    rows, total = _clearest(*task.kind.differing(task, logits, mine.gold, theirs))
    predicted = [task.kind.shown(task, each[rows]) for each in (logits, theirs) if each is not None]
    gold = [_gold(task, each) for each in mine.gold[rows]]
    shown = [Example(*each) for each in zip(_texts(answers, rows), gold, zip(*predicted, strict=True), strict=True)]
    return _examples_of(answers, total, len(logits), shown)


def _differing_tops(answers: DevAnswers) -> Examples:
    """Find queries with another candidate on top; each is shown with the candidates in question."""
    mine, taught = answers.mine, answers.taught
    assert mine.groups is not None
    own, groups = mine.predictions.values, mine.groups
    other = taught.predictions.values if taught else mine.gold
    tops, others = top(own, groups), top(other, groups)
    answered = np.bincount(groups, np.isnan(other)) == 0
    differ = answered & (other[tops] < other[others])
    queries, total = _clearest(differ, np.nan_to_num(own[tops] - own[others]))
    right = _texts(answers, tops[queries])
    wanted = _texts(answers, others[queries])
    shown = []
    for place, query in enumerate(queries.tolist()):
        gold = _gold(answers.data.task, mine.gold[tops[query]])
        tops_shown = (right[place][-1], *((wanted[place][-1],) if taught else ()))
        shown.append(Example(right[place][:1], gold if taught else wanted[place][-1], tops_shown))
    return _examples_of(answers, total, len(tops), shown)


def _clearest(differ: Bools, clear: Array) -> tuple[Ints, int]:
    """Return the rows that differ, the clearest first and only so many, and how many there are."""
    rows = np.flatnonzero(differ)
    return rows[np.argsort(-clear[rows], kind="stable")][:SHOWN], len(rows)


def _texts(answers: DevAnswers, rows: Ints) -> list[tuple[str, ...]]:
    table = answers.data.table().take(pa.array(rows))
    names = [f"text{number}" for number, _ in enumerate(answers.data.task.text, 1)]
    return list(zip(*([_beginning(text) for text in table[name].to_pylist()] for name in names), strict=True))


def _beginning(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]} … ({len(text):,} characters)"


def _gold(task: Task, gold: NDArray[np.float64]) -> str:
    return "–" if np.isnan(gold).any() else task.kind.gold_shown(task, gold)


def _examples_of(answers: DevAnswers, total: int, rows: int, shown: Sequence[Example]) -> Examples:
    against = "teachers" if answers.taught else "gold"
    by = (answers.main, "teachers") if answers.taught else (answers.main,)
    return Examples(total, rows, against, by, tuple(shown))
