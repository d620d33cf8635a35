"""Uncertainty: how far mean scores, their differences and ratios would vary with other rows and other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from understill.evaluate.metrics import Array, Ints
from understill.evaluate.significance import EQUAL, LEVEL, Difference, Interval, reach, unseen

#: The probability with which a true difference of the minimal detectable size is significant.
POWER = 0.8


class SeedSpread(NamedTuple):
    """How a mean over seeds varies by them, in squared standard errors; not at all for one seed."""

    error: float  # what Welch's t has, the noise of seed × row included
    by_row: float  # the noise of seed × row, which is in `error` and in resamples, and must count once
    seeds: int

    @property
    def added(self) -> float:
        """What other seeds add to what other rows bring.

        Few seeds may be alike by chance, so less of seed × row is taken out of their variance: the share with which
        no luck of seeds makes more than 5 % of false positives where both sides have it alike.
        """
        return max(self.error - self.by_row * ((self.seeds - 1) / self.seeds) ** 2, 0.0)

    def interval(self, mean: float, by_rows: float, units: float) -> Interval:
        """Return the interval of the mean, which resamples of so many units vary by so much.

        The variance by rows is what resamples bring to all seeds alike; all in which seeds differ is in `error`.
        """
        rows, many = _sampled(max(by_rows - self.by_row, 0.0), units)
        far = float(reach(rows, self.error, (many, self.seeds - 1)))
        return Interval(mean - far, mean + far)


@dataclass(frozen=True, eq=False)
class SeedScores:
    """The scores of one side's seeds on the rows themselves, and on resamples of them."""

    scores: Array  # [seeds]
    drawn: Array  # [seeds, resamples]
    units: float = np.inf  # how many rows, queries or clusters were resampled
    bounding: float | None = None  # units for `unseen`, where these are others

    def of(self, seeds: Ints) -> SeedScores:
        """Return some of the seeds, by their places."""
        return SeedScores(self.scores[seeds], self.drawn[seeds], self.units, self.bounding)

    @property
    def limit_units(self) -> float:
        """The units that bound what no resample shows."""
        return self.units if self.bounding is None else self.bounding

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(self.scores.mean())

    @cached_property
    def by_rows(self) -> Array:
        """The mean over seeds on each resample, [resamples]."""
        mean: Array = self.drawn.mean(axis=0)
        return mean

    @property
    def count(self) -> int:
        """How many seeds there are."""
        return len(self.scores)

    @cached_property
    def spread(self) -> SeedSpread:
        """How the mean varies by its seeds.

        Each seed's resamples vary by rows and by seed × row; the mean's vary by rows and a share of seed × row.
        """
        if self.count == 1:
            return SeedSpread(0.0, 0.0, 1)
        free = self.count - 1
        by_row = (float(self.drawn.var(axis=1).mean()) - float(self.by_rows.var())) / free
        return SeedSpread(float(self.scores.var(ddof=1)) / self.count, by_row, self.count)

    def interval(self) -> Interval:
        """Return the interval of the mean over other rows and, where there are several, other seeds."""
        if float(np.ptp(self.by_rows)) <= EQUAL and self.spread.error <= EQUAL:  # all right, or all wrong
            far = unseen(self.limit_units)
            return Interval(max(self.mean - far, min(self.mean, 0.0)), min(self.mean + far, max(self.mean, 1.0)))
        if self.count == 1:
            return _middle(self.by_rows)
        return self.spread.interval(self.mean, float(self.by_rows.var()), self.units)


def _middle(drawn: Array) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def mean_of_tasks(tasks: Sequence[SeedScores]) -> SeedScores:
    """Return the mean over tasks of each seed: a seed of a multi-task model is one unit, and tasks are fixed.

    What no resample shows may all be in the smallest task, which is one part of the mean.
    """
    resamples = min(each.drawn.shape[1] for each in tasks)
    drawn = np.mean([each.drawn[:, :resamples] for each in tasks], axis=0)
    fewest = len(tasks) * min(each.limit_units for each in tasks)
    scores = np.mean([each.scores for each in tasks], axis=0)
    return SeedScores(scores, drawn, sum(each.units for each in tasks), fewest)


@dataclass(frozen=True, eq=False)
class WeightedMean:
    """A weighted sum of sides' mean scores, and the variance that other rows and other seeds would bring."""

    value: float
    drawn: Array  # [resamples], by rows alone
    rows: float  # variance by rows
    seeds: tuple[float, ...]  # variance by the seeds of each side; 0 for one seed, which stands for itself
    degrees: tuple[float, float]  # of freedom, of the variance by rows and, Welch's, of that by seeds

    @property
    def error(self) -> float:
        """The standard error."""
        return float((self.rows + sum(self.seeds)) ** 0.5)

    def reach(self, level: float = LEVEL) -> float:
        """Return how far the interval of a level reaches to each side."""
        return float(reach(self.rows, sum(self.seeds), self.degrees, level))

    def p(self) -> float:
        """Return the p-value of the value against 0: that of the interval that ends there, in ever finer steps."""
        powers = np.linspace(-16, 0, 65)
        for _ in range(4):
            far = reach(self.rows, sum(self.seeds), self.degrees, 1 - 10**powers)  # the larger p, the shorter
            end = np.clip(int((far > abs(self.value)).sum()), 1, len(powers) - 1)
            powers = np.linspace(powers[end - 1], powers[end], 65)
        return float(10 ** powers[-1])


def estimate(sides: Sequence[SeedScores], weights: Sequence[float]) -> WeightedMean:
    """Return a weighted sum of sides' mean scores over the rows, or other units, that all of them answered."""
    weighted = list(zip(weights, sides, strict=True))
    value = float(sum(weight * side.mean for weight, side in weighted))
    drawn: Array = np.sum([weight * side.by_rows for weight, side in weighted], axis=0)
    spreads = [(weight, side.spread) for weight, side in weighted]
    return weigh(value, drawn, float(drawn.var()), sides[0].units, spreads)


def weigh(
    value: float, drawn: Array, by_rows: float, units: float, spreads: Sequence[tuple[float, SeedSpread]]
) -> WeightedMean:
    """Return a weighted sum of means over seeds, which resamples of so many units vary by so much."""
    rows, many = _sampled(by_rows, units)
    several = [(weight**2 * side.error, side.seeds - 1) for weight, side in spreads if side.seeds > 1]
    # Welch: a variance that is estimated from few seeds is itself uncertain.
    doubt = sum(error**2 / free for error, free in several)
    least = min((free for _, free in several), default=many)
    few = sum(error for error, _ in several) ** 2 / doubt if doubt else least
    seeds = tuple(weight**2 * side.added for weight, side in spreads)
    return WeightedMean(value, drawn, rows, seeds, (many, float(few)))


def _sampled(variance: float, units: float) -> tuple[float, float]:
    """Return a variance by rows as it is of so few of them, where a resample's is of those rows; and its degrees."""
    many = max(units - 1, 1.0)
    return variance * (1 + 1 / many), many


def difference(one: SeedScores, other: SeedScores, discordant: int) -> Difference:
    """Compare two sides over the same rows: one's mean minus the other's.

    With one seed a side it is the paired bootstrap, and about these very models. With more, p follows from the
    variance by rows and by seeds. The effect is the delta in standard deviations of one unit's contribution.
    """
    result = estimate([one, other], [1.0, -1.0])
    several = max(one.count, other.count) > 1
    test = "bootstrap, Welch's t" if several else "paired bootstrap"
    # p is bounded below by a sign test on the discordant rows: no resampling can be surer than that.
    least = min(1.0, max(2.0 ** (1 - discordant), 1 / (len(result.drawn) + 1)))
    delta, error = result.value, result.error
    if error <= EQUAL:
        units = min(one.limit_units, other.limit_units)
        same, far = abs(delta) <= EQUAL, unseen(units)
        delta = 0.0 if same else delta
        interval = Interval(max(delta - far, min(delta, -1.0)), min(delta + far, max(delta, 1.0)))
        p, effect = (1.0, 0.0) if same else (least, None)
        return Difference(delta, interval, p, effect, test, limit_units=units if np.isfinite(units) else None)
    spread = (result.rows * one.units) ** 0.5
    effect = delta / spread if spread > EQUAL else None
    far = result.reach()
    if several:
        interval, p = Interval(delta - far, delta + far), result.p()
    else:
        interval, p = _middle(result.drawn), _resampled_p(delta, result.drawn, effect or 0.0)
    # A true difference of this size is significant with probability POWER.
    detectable = far + result.reach(2 * POWER - 1)
    parts = (result.rows, *result.seeds)
    return Difference(delta, interval, max(least, p), effect, test, detectable, error, result.degrees, parts)


def _resampled_p(delta: float, drawn: Array, effect: float) -> float:
    """Return the two-sided p-value: the share of draws that are as far from the delta as the delta is from 0.

    Under the null hypothesis a unit's contribution varies about 0 and not about the delta: a little more, by the
    effect. Scores over rows are discrete, so a draw that is exactly as far counts by half (mid-p), or else p-values
    would be too large by half a step; the data itself counts as one more draw, so that none is 0.
    """
    far, near = np.abs(drawn - delta), EQUAL * max(1.0, abs(delta))
    tied = np.abs(far - abs(delta)) <= near
    further = (far * (1 + effect**2) ** 0.5 > abs(delta) + near) & ~tied
    return float((1 + further.sum() + 0.5 * tied.sum()) / (len(drawn) + 1))


class Ratio(NamedTuple):
    """A ratio of scores; its interval is None where the denominator may be 0."""

    value: float
    interval: Interval | None

    def keeps(self, share: float) -> bool | None:
        """Tell whether a share is kept, by the interval; None where that is undecided."""
        if self.interval is None or self.interval.low < share <= self.interval.high:
            return None
        return self.interval.low >= share


def ratio(
    sides: Sequence[SeedScores], over: Sequence[float], under: Sequence[float], floor: float = 0.0
) -> Ratio | None:
    """Return the ratio of two weighted sums of sides' mean scores, each above a floor, with Fieller's interval.

    None where the denominator is not positive.
    """
    top, bottom = estimate(sides, over), estimate(sides, under)
    above, below = top.value - floor, bottom.value - floor
    if below <= EQUAL:
        return None
    value = above / below
    rest = [one - value * other for one, other in zip(over, under, strict=True)]
    tested = estimate(sides, rest)
    if tested.error <= EQUAL:
        far = unseen(min(side.limit_units for side in sides)) / below
        return Ratio(value, Interval(value - far, value + far) if below > bottom.reach() else None)
    limit = (tested.reach() / tested.error) ** 2
    shared = float(np.cov(top.drawn, bottom.drawn, ddof=0)[0, 1])
    shared += sum(a * b * side.spread.added for a, b, side in zip(over, under, sides, strict=True))
    # The interval holds every ratio r for which the numerator less r times the denominator may be 0.
    a, b, c = below**2 - limit * bottom.error**2, above * below - limit * shared, above**2 - limit * top.error**2
    if a <= 0:
        return Ratio(value, None)
    reach = max(b**2 - a * c, 0.0) ** 0.5
    return Ratio(value, Interval((b - reach) / a, (b + reach) / a))
