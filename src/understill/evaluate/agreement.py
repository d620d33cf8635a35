"""Agreement of a student with its teacher, and scores on slices of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from understill.evaluate.bootstrap import resample
from understill.evaluate.calibration import wilson
from understill.evaluate.metrics import Array, Ints, pearson, score
from understill.evaluate.significance import Interval
from understill.tasks import Task
from understill.tasks.metric import is_error

#: Resamples for an interval alone, which needs fewer than a p-value.
INTERVAL_RESAMPLES = 2_000

Bools = NDArray[np.bool_]
Logits = NDArray[np.floating]


class Agreement(NamedTuple):
    """How far a student and its teacher agree; None is what a kind of task does not have."""

    rows: int  # those that the teacher answers; queries of a ranking
    same: float | None  # the share of rows with the same class, or of queries with the same top candidate
    interval: Interval | None  # of that share, Wilson's
    divergence: float | None  # of classes: the mean of KL(teacher‖student), in nats, at temperature 1
    correlation: float | None  # of scores: Pearson's


def agreement(task: Task, student: Logits, teacher: Logits, groups: Ints | None = None) -> Agreement | None:
    """Compare the raw logits of a student with its teacher's, [rows, outputs]; None where the teacher has none.

    Rows without teacher logits, which have NaN, do not count, and neither do queries that hold one.
    """
    labelled = ~np.isnan(teacher).any(axis=1)
    if groups is not None:
        labelled &= np.bincount(groups, ~labelled)[groups] == 0
        groups = groups[labelled]
    if not labelled.any():
        return None
    one, other = student[labelled].astype(np.float64), teacher[labelled].astype(np.float64)
    alike, divergence = task.kind.alike(one, other, groups), None
    if alike is None:
        correlations = [pearson(theirs, mine) for theirs, mine in zip(other.T, one.T, strict=True)]
        return Agreement(len(one), None, None, None, float(np.mean(correlations)))
    if task.kind.has_classes:
        log_p, log_q = log_softmax(one, axis=1), log_softmax(other, axis=1)
        divergence = float((np.exp(log_q) * (log_q - log_p)).sum(axis=1).mean())
    hits, rows = int(alike.sum()), len(alike)
    return Agreement(rows, hits / rows, wilson(hits, rows), divergence, None)


def retention(student: Mapping[str, float], teacher: Mapping[str, float]) -> dict[str, float]:
    """Return the student's score as a share of the teacher's, by metric.

    An error, which is better when it is less, has no such share, and neither has a teacher that scores nothing.
    """
    return {
        metric: student[metric] / value
        for metric, value in teacher.items()
        if metric in student and not is_error(metric) and value > 0
    }


# Slices ---------------------------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """Some rows of a split, and the scores of a model on them."""

    name: str
    rows: int
    scores: dict[str, float]  # empty where nothing in it can be scored
    interval: Interval | None  # of the primary metric


def slices(
    task: Task, gold: Array, values: Array, parts: Mapping[str, Bools], groups: Ints | None = None
) -> list[Slice]:
    """Score a model on slices of the rows: classes or scores, [rows], and for each slice's name whether a row is in it.

    On rows of one label alone F1 and correlations mean nothing: of those, only accuracy or the error is given. A query
    of a ranking is in a slice when all its candidates are.
    """
    scored = []
    for name, mine in parts.items():
        if groups is not None:
            mine = np.bincount(groups, ~mine)[groups] == 0
        own = gold[mine]
        own_groups = None if groups is None else np.unique(groups[mine], return_inverse=True)[1]
        measured = task
        if task.kind.plain_metric and len(np.unique(own[~np.isnan(own)])) < 2:
            measured = replace(task, metrics=(task.kind.plain_metric,))
        scores = score(measured, own, values[mine], own_groups)
        interval = interval_of(measured, own, values[None, mine], own_groups) if scores else None
        scored.append(Slice(name, int(mine.sum()), scores, interval))
    return scored


def counts_hits(task: Task) -> bool:
    """Tell whether the primary metric is accuracy, whose interval and test need no resamples."""
    return task.kind.has_classes and task.metrics[0] == "accuracy"


def interval_of(
    task: Task, gold: Array, predicted: Array, groups: Ints | None = None, clusters: Ints | None = None
) -> Interval:
    """Return the interval of the primary metric of a model's seeds, [seeds, rows], over rows and seeds.

    Of one seed's accuracy it is Wilson's: resamples of rows that are all right never vary.
    """
    if counts_hits(task) and len(predicted) == 1 and clusters is None:
        known = ~np.isnan(gold)
        return wilson(int((predicted[0] == gold)[known].sum()), int(known.sum()))
    resampled = resample(task, gold, predicted, groups, clusters, resamples=INTERVAL_RESAMPLES)
    return resampled.seeds(0, len(predicted)).interval()


def by_quarter(numbers: Array, unit: str = "") -> dict[str, Bools]:
    """Slice rows by the quartiles of a number, such as a length or a confidence, lowest first.

    Equal numbers stay together, so there may be fewer than four slices.
    """
    cuts = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75, 1.0], method="inverted_cdf"))
    place = np.searchsorted(cuts, numbers, side="left")
    bounds = [
        (float(numbers[mine].min()), float(numbers[mine].max()), mine) for mine in place == np.unique(place)[:, None]
    ]
    for digits in (4, 17):  # bounds that look alike get all their digits
        parts = {_named(low, high, digits, unit): mine for low, high, mine in bounds}
        if len(parts) == len(bounds):
            break
    return parts


def _named(low: float, high: float, digits: int, unit: str) -> str:
    # From 10,000 on four digits would come with an exponent; the whole number is easier to read.
    whole = max(abs(low), abs(high)) < 1e15
    ends = dict.fromkeys(
        f"{end:.0f}" if whole and abs(end) >= 10**digits else f"{end:.{digits}g}" for end in (low, high)
    )
    return " to ".join(ends) + (unit and f" {unit}")


def by_value(values: Sequence[object]) -> dict[str, Bools]:
    """Slice rows by the values of a column, such as the label, the commonest first; None is shown as "none"."""
    names = np.asarray(["none" if value is None else str(value) for value in values])
    kinds, times = np.unique(names, return_counts=True)
    return {str(kinds[place]): names == kinds[place] for place in np.argsort(-times, kind="stable")}
