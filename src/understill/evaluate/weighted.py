"""Weighted metrics: scores of several models on many resamples at once, each given as the counts of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understill.evaluate.metrics import RANKED, Array, Ints, ranking
from understill.tasks import METRICS, Task

Counts = NDArray[Any]  # [resamples, distinct units], whole numbers: how often each resample holds each
Measure = Callable[[Counts], Array]  # gives scores, [models, resamples]
Bools = NDArray[np.bool_]


class Weighted(NamedTuple):
    """A metric that is ready to be measured on any resample of its units: rows, or the queries of a ranking.

    Units with identical (gold, answers) tuples are merged into one with a count.
    """

    times: Ints  # [distinct units]: how many units each stands for
    measure: Measure
    discordant: Bools  # [distinct units]: whether not all models answer it alike
    plain: bool = False  # each resample is scored by itself, which is slow


def unit_rows(task: Task, gold: Array, groups: Ints | None = None) -> Ints:
    """Return the first row of each unit, in the order of units that are not merged."""
    rows = np.flatnonzero(task.kind.counted(gold, groups))
    return rows if groups is None else rows[np.unique(groups[rows], return_index=True)[1]]


def weighted(
    task: Task, metric: str, gold: Array, predicted: Array, groups: Ints | None = None, *, merge: bool = True
) -> Weighted:
    """Make a task's metric ready for the predictions of several models, [models, rows].

    Rows and queries that `score` does not count are no units. Without `merge` every unit stands by itself.
    """
    metric = task.kind.measured_by(task, metric)
    fast = metric in RANKED if task.kind.grouped else metric in RATIOS or metric in MEASURES
    if not fast or not METRICS.is_own(metric) or gold.ndim > 1:
        return _plain(task, metric, gold, predicted, groups)
    ready: Callable[[Array], Measure] = _ratio
    if task.kind.grouped:
        assert groups is not None
        ranked = [RANKED[metric](ranking(gold, each, groups)) for each in predicted]
        columns = [ranked[0][1], *(over for over, _ in ranked)]
    else:
        known = ~np.isnan(gold)
        gold, predicted = gold[known], predicted[:, known]
        if metric in RATIOS:
            columns = [np.ones(len(gold)), *RATIOS[metric](gold, predicted)]
        else:
            ready, columns = MEASURES[metric], [gold, *predicted]
    kinds = np.stack(columns).astype(np.float64)
    times = np.ones(kinds.shape[1], np.int64)
    if merge:
        kinds, times = np.unique(kinds, axis=1, return_counts=True)
    return Weighted(times, ready(kinds), (kinds[1:] != kinds[1]).any(axis=0))


def _plain(task: Task, metric: str, gold: Array, predicted: Array, groups: Ints | None) -> Weighted:
    """Make a metric ready that has no vectorised form: it is called for each model and resample."""
    known = np.flatnonzero(task.kind.counted(gold, groups))
    gold, predicted = gold[known], predicted[:, known]
    unit = np.arange(len(known)) if groups is None else np.unique(groups[known], return_inverse=True)[1]
    order, sizes = np.argsort(unit, kind="stable"), np.bincount(unit)
    members = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []

    def measure(counts: Counts) -> Array:
        scores = np.empty((len(predicted), len(counts)))
        for place, times in enumerate(counts):
            drawn = np.repeat(np.arange(len(sizes)), times)
            rows = np.concatenate([members[number] for number in drawn])
            # A query that is drawn twice counts as two queries.
            queries = [np.repeat(np.arange(len(drawn)), sizes[drawn])] if groups is not None else []
            for model, values in enumerate(predicted):
                scores[model, place] = METRICS[metric](gold[rows], values[rows], *queries)
        return scores

    differ = (predicted != predicted[:1]).any(axis=0).reshape(len(known), -1).any(axis=1)
    discordant = np.bincount(unit[differ], minlength=len(sizes)) > 0
    return Weighted(np.ones(len(sizes), np.int64), measure, discordant, plain=True)


def _ratio(columns: Array) -> Measure:
    """Return the measure that divides each model's sum by a sum of sizes, the first column."""

    def measure(counts: Counts) -> Array:
        size, *sums = columns @ counts.T.astype(np.float64)
        scores: Array = np.stack(sums) / size
        return scores

    return measure


def _divided(over: Array, under: Array) -> Array:
    """Divide, with 0 for what has nothing to divide by."""
    quotient: Array = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
    return quotient


# Classes: the columns are gold and the models' answers, as class numbers ----------------------------------------------


def _mean_f1(members: Bools) -> Measure:
    """Return the measure of the mean F1 of some classes, [1 + models, classes, distinct units]: who is in each."""
    gold, *answers = members

    def measure(counts: Counts) -> Array:
        times, scores = counts.T.astype(np.float64), []
        for each in answers:
            seen = _count(gold, times) + _count(each, times)  # [classes, resamples]
            f1 = _divided(2 * _count(gold & each, times), seen)
            # A class that is neither gold nor answer in a resample does not count there; one class alone always does.
            scores.append(f1.sum(axis=0) / ((seen > 0).sum(axis=0) if len(f1) > 1 else 1))
        return np.stack(scores)

    return measure


def _matthews(columns: Array) -> Measure:
    gold, *answers = columns[:, None] == np.unique(columns)[:, None]

    def measure(counts: Counts) -> Array:
        times, scores = counts.T.astype(np.float64), []
        rows, of_gold = times.sum(axis=0), _count(gold, times)
        for each in answers:
            right, of_answers = _count(gold & each, times).sum(axis=0), _count(each, times)
            over = right * rows - (of_gold * of_answers).sum(axis=0)
            under = np.sqrt(rows**2 - (of_gold**2).sum(axis=0)) * np.sqrt(rows**2 - (of_answers**2).sum(axis=0))
            scores.append(_divided(over, under))
        return np.stack(scores)

    return measure


def _count(where: Bools, times: Array) -> Array:
    counted: Array = where.astype(np.float64) @ times
    return counted


# Scores: the columns are gold and the models' scores ------------------------------------------------------------------


def _pearson(columns: Array) -> Measure:
    # Centred and scaled to 1, sums of squares lose no precision by cancellation.
    middle = columns - columns.mean(axis=1, keepdims=True)
    gold, *answers = middle / np.maximum(np.abs(middle).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    parts = np.stack(
        [np.ones_like(gold), gold, gold**2, *(part for each in answers for part in (each, each**2, each * gold))]
    )

    def measure(counts: Counts) -> Array:
        rows, of_gold, gold_squares, *rest = parts @ counts.T.astype(np.float64)
        spread, scores = _spread(of_gold, gold_squares, rows), []
        for own, squares, both in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            under = np.sqrt(spread) * np.sqrt(_spread(own, squares, rows))
            scores.append(_divided(both - own * of_gold / rows, under))
        return np.clip(np.stack(scores), -1, 1)

    return measure


def _spread(sums: Array, squares: Array, rows: Array) -> Array:
    """Return the sum of squares about the mean, exactly 0 for a constant in spite of rounding."""
    spread = squares - sums**2 / rows
    return np.where(spread > 1e-12 * squares, spread, 0.0)


def _spearman(columns: Array) -> Measure:
    """Return the measure that correlates ranks with ties, which are running sums of the counts of sorted values.

    Until the end all is in whole numbers: twice the rank, less twice the mean rank.
    """
    gold = _Sorted(columns[0])
    answers = [_Sorted(column) for column in columns[1:]]

    def measure(counts: Counts) -> Array:
        rows = counts.sum(axis=1, keepdims=True, dtype=np.int64)
        # Squares of numbers of rows have to fit.
        times = counts.astype(np.int32 if rows.max() < 40_000 else np.int64, copy=False)
        untied = _cubes(times)
        ranks, under = gold.ranks(times, rows, untied)
        pull, scores = times * gold.spread_out(ranks), []
        for each in answers:
            own, squares = each.ranks(times, rows, untied)
            over = np.einsum("ij,ij->i", each.added(pull), own, dtype=np.float64)
            scores.append(_divided(over, np.sqrt(under) * np.sqrt(squares)))
        return np.clip(np.stack(scores), -1, 1)

    return measure


class _Sorted:
    """A column in order, with its runs of equal values."""

    def __init__(self, values: Array) -> None:
        self.order = np.argsort(values, kind="stable")
        new = np.append(True, np.diff(values[self.order]) != 0)
        self.tied = not new.all()
        self.starts = np.flatnonzero(new)
        self.run = np.empty(len(values), dtype=np.int64)  # the number of the run that each value is in
        self.run[self.order] = np.cumsum(new) - 1
        self.in_order = bool((np.diff(self.order) > 0).all())

    def added(self, numbers: Counts) -> Counts:
        """Put a number per value into order, and add up those of a run."""
        if not self.in_order:
            numbers = numbers.take(self.order, axis=1)
        return np.add.reduceat(numbers, self.starts, axis=1) if self.tied else numbers

    def spread_out(self, numbers: Counts) -> Counts:
        """Give each value the number of its run."""
        return numbers if self.in_order and not self.tied else numbers.take(self.run, axis=1)

    def ranks(self, times: Counts, rows: Counts, untied: Array) -> tuple[Counts, Array]:
        """Return twice the rank of each run, about the mean, and the sum of its square over all rows."""
        times = self.added(times)
        ranks = 2 * np.cumsum(times, axis=1, dtype=times.dtype) - times - rows.astype(times.dtype)
        return ranks, (rows[:, 0].astype(np.float64) ** 3 - (_cubes(times) if self.tied else untied)) / 3


def _cubes(times: Counts) -> Array:
    cubes: Array = np.einsum("ij,ij->i", times * times, times, dtype=np.float64)
    return cubes


def _both(columns: Array) -> Measure:
    pearson, spearman = _pearson(columns), _spearman(columns)
    return lambda counts: (pearson(counts) + spearman(counts)) / 2


#: What each row adds to a metric that is a mean over rows, [models, rows].
RATIOS: dict[str, Callable[[Array, Array], Array]] = {
    "accuracy": lambda gold, predicted: (predicted == gold).astype(np.float64),
    "mse": lambda gold, predicted: (predicted - gold) ** 2,
}
#: Those that are no ratio of sums; each takes gold and predictions, [1 + models, kinds].
MEASURES: dict[str, Callable[[Array], Measure]] = {
    "f1": lambda columns: _mean_f1((columns == 1)[:, None]),
    "macro_f1": lambda columns: _mean_f1(columns[:, None] == np.unique(columns)[:, None]),
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
    "pearson_spearman": _both,
}
