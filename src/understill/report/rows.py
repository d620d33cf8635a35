"""Rows: what the answers to one dev set show, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import log_softmax

from understill.data.taskdata import TaskData
from understill.evaluate.agreement import Bools, agreement, by_quarter, by_value, retention, slices
from understill.evaluate.calibration import Calibration, calibration
from understill.evaluate.metrics import Array, Ints, score
from understill.evaluate.predict import KeptRows
from understill.report.facts import Cut, Example, Examples, Place
from understill.tasks import Task

#: Rows of a dev set that are shown where two differ.
SHOWN = 2000
#: Characters of a text that are shown.
LONG = 3000
#: Labels that a confusion matrix and slices are made for.
MANY = 30


@dataclass(frozen=True)
class Said:
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


def place_facts(said: Said, by: str | None = None, column: Sequence[str | None] | None = None) -> Place:
    """Gather what is shown of one dev set; a column of the user's, named `by`, may part the rows too."""
    task, mine, taught = said.task, said.mine, said.taught
    classes = task.kind == "classification"
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


def _retention(said: Said) -> dict[str, float]:
    """Return the share of its teachers' scores that a model has, over the rows that they answer."""
    if not said.taught:
        return {}
    gold = said.taught.settled
    one, other = (score(said.task, gold, kept.predictions.values, kept.groups) for kept in (said.mine, said.taught))
    return retention(one, other)


# Slices ---------------------------------------------------------------------------------------------------------------


def _parts(said: Said) -> dict[str, dict[str, Bools]]:
    """Part the rows by length, by label and by how sure the teachers are."""
    table, task = said.data.table(), said.task
    lengths = pc.utf8_length(table["text1"])
    if (
        task.pair and task.kind != "ranking"
    ):  # a query is in a part with all its candidates, so that its own length counts
        lengths = pc.add(lengths, pc.utf8_length(table["text2"]))
    found = {"length": by_quarter(np.asarray(lengths, dtype=np.float64), "characters")}
    gold = said.mine.gold
    known = ~np.isnan(gold)
    if task.kind == "classification" and len(task.labels) <= MANY:
        found["label"] = {name: mine for number, name in enumerate(task.labels) if (mine := gold == number).any()}
    elif task.kind == "regression" and known.all():
        found["score"] = by_quarter(gold)
    if said.taught and task.kind == "classification":
        heard = ~np.isnan(said.taught.settled)
        if heard.all():
            found["confidence of the teachers"] = by_quarter(np.round(_sure(said.taught), 3).astype(np.float64))
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


def _sure(kept: KeptRows) -> Array:
    """Return the probability that a model gives to its own answer."""
    sure: Array = np.exp(log_softmax(kept.predictions.logits.astype(np.float64), axis=1).max(axis=1))
    return sure


# Examples -------------------------------------------------------------------------------------------------------------


def _examples(said: Said) -> Examples:
    """Find the rows on which a model differs from its teachers or, without any, from gold; the clearest first."""
    find: dict[str, Callable[[Said], Examples]] = {
        "classification": _differing_classes,
        "regression": _differing_scores,
        "ranking": _differing_tops,
    }
    return find[said.task.kind.name](said)


def _differing_classes(said: Said) -> Examples:
    mine, taught, labels = said.mine, said.taught, said.task.labels
    answer, sure = mine.predictions.values, _sure(mine)
    if taught:
        other, other_sure = taught.predictions.values, _sure(taught)
        differ = ~np.isnan(taught.settled if np.isnan(mine.gold).all() else other_sure) & (answer != other)
        clear = sure * other_sure
    else:
        other, differ = mine.gold, ~np.isnan(mine.gold) & (answer != mine.gold)
        clear = sure
    rows, total = _clearest(differ, clear)
    texts = _texts(said, rows)
    shown = []
    for place, row in enumerate(rows.tolist()):
        own = f"{labels[int(answer[row])]} ({100 * sure[row]:.0f} %)"
        theirs = (f"{labels[int(other[row])]} ({100 * other_sure[row]:.0f} %)",) if taught else ()
        shown.append(Example(texts[place], _label(said.task, mine.gold[row]), (own, *theirs)))
    return _found(said, total, len(answer), shown)


def _differing_scores(said: Said) -> Examples:
    mine, taught = said.mine, said.taught
    own = mine.predictions.values
    other = taught.predictions.values if taught else mine.gold
    apart = np.abs(own - other)
    low, high = said.task.range or (float(np.nanmin(mine.gold)), float(np.nanmax(mine.gold)))
    rows, total = _clearest(apart > (high - low) / 10, apart)
    texts = _texts(said, rows)
    shown = [
        Example(
            texts[place],
            _label(said.task, mine.gold[row]),
            (f"{own[row]:.2f}", *((f"{other[row]:.2f}",) if taught else ())),
        )
        for place, row in enumerate(rows.tolist())
    ]
    return _found(said, total, len(own), shown)


def _differing_tops(said: Said) -> Examples:
    """Find queries with another candidate on top; each is shown with the candidates in question."""
    mine, taught = said.mine, said.taught
    assert mine.groups is not None
    own = mine.predictions.values
    other = taught.predictions.values if taught else mine.gold
    groups = mine.groups
    order = np.lexsort((-own, groups))
    tops = order[np.append(True, np.diff(groups[order]) != 0)]
    order = np.lexsort((-other, groups))
    others = order[np.append(True, np.diff(groups[order]) != 0)]
    heard = np.bincount(groups, np.isnan(other)) == 0
    differ = heard & (other[tops] < other[others])
    queries, total = _clearest(differ, np.nan_to_num(own[tops] - own[others]))
    right = _texts(said, tops[queries])
    wanted = _texts(said, others[queries])
    shown = []
    for place, query in enumerate(queries.tolist()):
        gold = _label(said.task, mine.gold[tops[query]])
        answers = (right[place][-1], *((wanted[place][-1],) if taught else ()))
        shown.append(Example(right[place][:1], gold if taught else wanted[place][-1], answers))
    return _found(said, total, len(tops), shown)


def _clearest(differ: Bools, clear: Array) -> tuple[Ints, int]:
    """Return the rows that differ, the clearest first and only so many, and how many there are."""
    rows = np.flatnonzero(differ)
    return rows[np.argsort(-clear[rows], kind="stable")][:SHOWN], len(rows)


def _texts(said: Said, rows: Ints) -> list[tuple[str, ...]]:
    table = said.data.table().take(pa.array(rows))
    columns = [
        [_beginning(text) for text in table[f"text{number + 1}"].to_pylist()] for number in range(len(said.task.text))
    ]
    return list(zip(*columns, strict=True))


def _beginning(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]} … ({len(text):,} characters)"


def _label(task: Task, gold: float) -> str:
    if np.isnan(gold):
        return "–"
    return f"{gold:.2f}" if task.kind == "regression" else task.labels[int(gold)]


def _found(said: Said, total: int, rows: int, shown: Sequence[Example]) -> Examples:
    against = "teachers" if said.taught else "gold"
    by = (said.main, "teachers") if said.taught else (said.main,)
    return Examples(total, rows, against, by, tuple(shown))
