"""Rows: what the answers to one dev set show, row by row."""

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
    """What the columns of a run say of one dev set, and its texts."""

    place: str
    task: Task
    data: TaskData
    kept: Mapping[str, KeptRows]  # by column, rows in the order of the data
    main: str

    @property
    def mine(self) -> KeptRows:
        """What the model that the recipe is made for says."""
        return self.kept[self.main]

    @property
    def taught(self) -> KeptRows | None:
        """What its teachers say together."""
        return self.kept.get("teachers")


def place_facts(said: DevAnswers, by: str | None = None, column: Sequence[str | None] | None = None) -> Place:
    """Gather what is shown of one dev set; a column of the user's, named `by`, may part the rows too."""
    task, mine, taught = said.task, said.mine, said.taught
    classes = task.kind.has_classes
    calibrations: dict[str, Calibration] = {}
    for name, kept in said.kept.items():
        if classes and (found := calibration(kept.settled, kept.predictions.logits)):
            calibrations[name] = found
    parts = _parts(said)
    if column is not None:
        parts[f"column {by}"] = _by_column(column)
    gold, values = mine.gold, mine.predictions.values
    return Place(
        name=said.place,
        task=task,
        rows=len(gold),
        confusion=_confusion(gold, values, len(task.labels)) if classes and len(task.labels) <= MANY else None,
        calibrations=calibrations,
        agreement=agreement(task, mine.predictions.logits, taught.predictions.logits, mine.groups) if taught else None,
        retention=_retention(said),
        cuts=tuple(
            Cut(what, tuple(slices(task, gold, values, masks, mine.groups)))
            for what, masks in parts.items()
            if len(masks) > 1
        ),
        examples=_examples(said),
    )


def _confusion(gold: Array, values: Array, count: int) -> Ints:
    """Count answers by gold label, [gold, answer]."""
    known = ~np.isnan(gold)
    pairs = gold[known].astype(np.int64) * count + values[known].astype(np.int64)
    return np.bincount(pairs, minlength=count * count).reshape(count, count)


def _retention(said: DevAnswers) -> dict[str, float]:
    """Return the share of its teachers' scores that a model has, over the rows that they answer."""
    if not said.taught:
        return {}
    gold = said.taught.settled
    one, other = (score(said.task, gold, kept.predictions.values, kept.groups) for kept in (said.mine, said.taught))
    return retention(one, other)


# Slices ---------------------------------------------------------------------------------------------------------------


def _parts(said: DevAnswers) -> dict[str, dict[str, Bools]]:
    """Part the rows by length, by label and by how sure the teachers are."""
    table, task = said.data.table(), said.task
    lengths = pc.utf8_length(table["text1"])
    if task.pair and not task.kind.grouped:  # a query is in a part with all its candidates, so its own length counts
        lengths = pc.add(lengths, pc.utf8_length(table["text2"]))
    found = {"length": by_quarter(np.asarray(lengths, dtype=np.float64), "characters")}
    gold = said.mine.gold
    known = ~np.isnan(gold)
    if task.kind.has_classes and len(task.labels) <= MANY:
        found["label"] = {name: mine for number, name in enumerate(task.labels) if (mine := gold == number).any()}
    elif not task.kind.named and gold.ndim == 1 and known.all():
        found["score"] = by_quarter(gold)
    if said.taught and task.kind.has_classes:
        heard = ~np.isnan(said.taught.settled)
        if heard.all():
            sure: Array = confidence(said.taught.predictions.logits).round(3)
            found["confidence of the teachers"] = by_quarter(sure)
    return found


def _by_column(column: Sequence[str | None]) -> dict[str, Bools]:
    """Part rows by what the user's column says: many numbers in quarters, anything else by value, the commonest."""
    if len(set(column)) > MANY:
        with suppress(TypeError, ValueError):  # then they are not all numbers
            return _by_number(np.asarray(column, dtype=np.float64))
    return dict(list(by_value(column).items())[:MANY])


def _by_number(numbers: Array) -> dict[str, Bools]:
    """Part rows in quarters; those without a number are a part of their own."""
    known = np.isfinite(numbers)
    parts = {}
    for name, quarter in by_quarter(numbers[known]).items():
        parts[name] = np.zeros(len(numbers), dtype=np.bool_)
        parts[name][known] = quarter
    return parts if known.all() else {**parts, "none": ~known}


# Examples -------------------------------------------------------------------------------------------------------------


def _examples(said: DevAnswers) -> Examples:
    """Find the rows on which a model differs from its teachers or, without any, from gold; the clearest first."""
    return _differing_tops(said) if said.task.kind.grouped else _differing_rows(said)


def _differing_rows(said: DevAnswers) -> Examples:
    mine, taught, task = said.mine, said.taught, said.task
    logits, theirs = mine.predictions.logits, taught.predictions.logits if taught else None
    rows, total = _clearest(*task.kind.differing(task, logits, mine.gold, theirs))
    answers = [task.kind.shown(task, each[rows]) for each in (logits, theirs) if each is not None]
    gold = [_gold(task, each) for each in mine.gold[rows]]
    shown = [Example(*each) for each in zip(_texts(said, rows), gold, zip(*answers, strict=True), strict=True)]
    return _found(said, total, len(logits), shown)


def _differing_tops(said: DevAnswers) -> Examples:
    """Find queries with another candidate on top; each is shown with the candidates in question."""
    mine, taught = said.mine, said.taught
    assert mine.groups is not None
    own = mine.predictions.values
    other = taught.predictions.values if taught else mine.gold
    groups = mine.groups
    tops, others = top(own, groups), top(other, groups)
    heard = np.bincount(groups, np.isnan(other)) == 0
    differ = heard & (other[tops] < other[others])
    queries, total = _clearest(differ, np.nan_to_num(own[tops] - own[others]))
    right = _texts(said, tops[queries])
    wanted = _texts(said, others[queries])
    shown = []
    for place, query in enumerate(queries.tolist()):
        gold = _gold(said.task, mine.gold[tops[query]])
        answers = (right[place][-1], *((wanted[place][-1],) if taught else ()))
        shown.append(Example(right[place][:1], gold if taught else wanted[place][-1], answers))
    return _found(said, total, len(tops), shown)


def _clearest(differ: Bools, clear: Array) -> tuple[Ints, int]:
    """Return the rows that differ, the clearest first and only so many, and how many there are."""
    rows = np.flatnonzero(differ)
    return rows[np.argsort(-clear[rows], kind="stable")][:SHOWN], len(rows)


def _texts(said: DevAnswers, rows: Ints) -> list[tuple[str, ...]]:
    table = said.data.table().take(pa.array(rows))
    columns = [
        [_beginning(text) for text in table[f"text{number + 1}"].to_pylist()] for number in range(len(said.task.text))
    ]
    return list(zip(*columns, strict=True))


def _beginning(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]} … ({len(text):,} characters)"


def _gold(task: Task, gold: NDArray[np.float64]) -> str:
    return "–" if np.isnan(gold).any() else task.kind.gold_shown(task, gold)


def _found(said: DevAnswers, total: int, rows: int, shown: Sequence[Example]) -> Examples:
    against = "teachers" if said.taught else "gold"
    by = (said.main, "teachers") if said.taught else (said.main,)
    return Examples(total, rows, against, by, tuple(shown))
