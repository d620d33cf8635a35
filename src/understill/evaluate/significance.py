"""Significance: tests and intervals of differences over seeds, factors and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
Real = Any  # a float, or an array of them

#: The confidence level of every interval.
LEVEL = 0.95

#: The p-value below which each number of stars stands, as in the BAM paper.
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))

#: A permutation test is exact up to so many orders of the seeds; beyond, it draws so many.
ORDERS = 20_000

#: From so many discordant pairs on, McNemar's test uses the chi-square distribution.
DISCORDANT = 25

#: Scores no further apart than this are equal up to rounding.
EQUAL = 1e-10


class Interval(NamedTuple):
    """Where a value lies, with `LEVEL` confidence."""

    low: float
    high: float


class Summary(NamedTuple):
    """One score over several seeds."""

    values: tuple[float, ...]
    median: float
    mean: float
    spread: float  # the sample standard deviation; 0 for one value
    interval: Interval | None  # of the mean, by Student's t; None for one value


class Difference(NamedTuple):
    """The difference of two sides, and how significant it is; None is what cannot be computed."""

    delta: float
    interval: Interval | None
    p: float | None  # two-sided
    effect: float | None  # an effect size; which one, the function says
    test: str
    detectable: float | None = None  # the minimal detectable effect, see `uncertainty.POWER`
    error: float | None = None  # the standard error
    degrees: tuple[float, float] | None = None  # of freedom, of the variance by rows and of that by seeds
    parts: tuple[float, ...] = ()  # of the squared error: by rows, by one side's seeds, by the other's
    limit_units: float | None = None  # where no unit brought any variance, those that bound what was not seen

    @property
    def alike(self) -> bool:
        """Tell whether no row speaks for one side or the other."""
        return self.delta == 0 and self.p == 1 and self.error is None

    def at(self, level: float) -> Interval | None:
        """Return the interval at another level, for several that are read together."""
        if self.degrees is None:
            if not self.interval or not self.limit_units:
                return self.interval
            more = unseen(self.limit_units, level) - unseen(self.limit_units)
            return Interval(self.interval.low - more, self.interval.high + more)
        far = float(reach(self.parts[0], sum(self.parts[1:]), self.degrees, level))
        return Interval(self.delta - far, self.delta + far)


def unseen(units: float, level: float = LEVEL) -> float:
    """Return how far an interval of a score that is a share reaches where no unit of so many brought any variance.

    It is the largest share of units that differ of which none is seen with the level's probability (Clopper and
    Pearson's limit): resamples know nothing of such units.
    """
    return float(-np.expm1(np.log((1 - level) / 2) / units))


def stars(p: float | None) -> str:
    """Return the stars of a p-value, three at most."""
    return next((mark for below, mark in STARS if p is not None and p < below), "")


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p-values by Holm's step-down method; those that are None are not counted and stay None."""
    order = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    highest = 0.0
    for done, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - done)))
        corrected[place] = highest
    return corrected


# Seeds ----------------------------------------------------------------------------------------------------------------


def summarise(values: Sequence[float]) -> Summary:
    """Return median, mean, spread and interval of one score over seeds."""
    scores = np.asarray(values, dtype=np.float64)
    if not len(scores):
        raise ValueError("there is nothing to summarise")
    mean = float(scores.mean())
    spread, interval = 0.0, None
    if len(scores) > 1:
        spread = float(scores.std(ddof=1))
        interval = _t_interval(mean, spread / len(scores) ** 0.5, len(scores) - 1)
    return Summary(tuple(scores.tolist()), float(np.median(scores)), mean, spread, interval)


def compare_seeds(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """Compare two models by the scores of their seeds, which are not paired: ones minus others.

    The p-value is that of the Mann-Whitney U test, exact with and without ties as far as `ORDERS` goes, the interval
    Welch's, the effect Cliff's delta: how much more often a seed of the ones wins than loses.
    """
    if not len(ones) or not len(others):
        raise ValueError("both sides need a value")
    one, other = np.asarray(ones, dtype=np.float64), np.asarray(others, dtype=np.float64)
    delta, cliff = float(one.mean() - other.mean()), float(np.sign(one[:, None] - other).mean())
    p = interval = None
    if min(len(one), len(other)) > 1:
        from scipy import stats  # half a second, which every run would wait

        tied = len(np.unique(np.concatenate([one, other]))) < len(one) + len(other)
        # scipy's exact distribution knows of no ties; all orders of the seeds give it for tied ones too.
        method = stats.PermutationMethod(n_resamples=ORDERS, rng=np.random.default_rng(0)) if tied else "exact"
        p = float(stats.mannwhitneyu(one, other, method=method).pvalue)
        interval = _welch(one, other, delta)
    return Difference(delta, interval, p, cliff, "Mann-Whitney U over seeds")


def _welch(one: Array, other: Array, delta: float) -> Interval:
    """Return Welch's interval of a difference of means; each side has two values at least."""
    parts = np.array([one.var(ddof=1) / len(one), other.var(ddof=1) / len(other)])
    free = np.array([len(one) - 1, len(other) - 1])
    total = float(parts.sum())
    # Without spread the interval has no width, whatever the degrees of freedom.
    degrees = total**2 / float((parts**2 / free).sum()) if (parts**2).any() else 1.0
    return _t_interval(delta, total**0.5, degrees)


def _t_interval(middle: float, error: float, degrees: float) -> Interval:
    far = float(quantile(LEVEL, degrees)) * error
    return Interval(middle - far, middle + far)


def reach(rows: Real, seeds: Real, degrees: tuple[float, Real], level: Real = LEVEL) -> Real:
    """Return how far an interval reaches where a variance has a part by rows and a part estimated from few seeds.

    Welch's and Satterthwaite's t of the sum is too sure: with two seeds it covers as little as 87 %. This square of a
    quantile runs between those of the two parts and has, at either end, the value and the slope that are exact there.
    """
    many, few = quantile(level, degrees[0]) ** 2, quantile(level, degrees[1]) ** 2
    share = seeds / np.maximum(rows + seeds, np.finfo(np.float64).tiny)
    # What is left to the variance by rows where that by seeds outweighs it: coverage does not depend on it there.
    beside = few * (1 - (1 + few) / (degrees[1] + few))
    by_rows, by_seeds = many * (1 - share) ** 2 * (1 + 2 * share), few * share**2 * (2 - share)
    return np.sqrt((rows + seeds) * (by_rows + by_seeds + beside * share**2 * (1 - share)))


def quantile(level: Real, degrees: Real) -> Real:
    """Return how many standard errors an interval by Student's t reaches to each side."""
    return -special.stdtrit(degrees, (1 - level) / 2)


# Factors --------------------------------------------------------------------------------------------------------------


def factor_effects(
    cells: Mapping[tuple[str, ...], Sequence[float]], factors: Mapping[str, Sequence[str]]
) -> dict[str, Difference]:
    """Return what each factor of a full factorial design does, and each pair of two-level factors together.

    A cell is named by one level of each factor, in the factors' order, and holds the scores of its seeds.

    - "labels": of a two-level factor, the second level minus the first, as the mean over all else.
    - "labels: soft": of one with more levels, each level minus the first.
    - "labels × augmentation": the difference of differences, **not halved**: the effect of one factor at the second
      level of the other, minus that at the first.

    Every cell counts the same, however many seeds it has. The variance is pooled within cells, with as many degrees
    of freedom as there are seeds beyond one per cell; without any there is no interval and no p. The effect is the
    delta in pooled standard deviations.
    """
    names = list(product(*factors.values()))
    if set(names) != set(cells):
        odd = sorted(set(names) ^ set(cells))
        raise ValueError(f"the cells are not those of the factors: {odd}")
    scores = [np.asarray(cells[name], dtype=np.float64) for name in names]
    if not all(len(values) for values in scores):
        raise ValueError("every cell needs a value")
    weights: dict[str, tuple[str, Array]] = {}
    two: dict[str, Array] = {}
    for place, (factor, levels) in enumerate(factors.items()):
        for level in levels[1:]:
            weight = _against(names, place, levels[0], level)
            if len(levels) == 2:
                two[factor] = weight
            weights[factor if len(levels) == 2 else f"{factor}: {level}"] = ("t", weight)
    for one, other in combinations(two, 2):
        # Signs times signs are the signs of the interaction. Both weights have the size 2 / cells, theirs is 4 / cells.
        weight = np.sign(two[one]) * np.sign(two[other]) * 4 / len(names)
        weights[f"{one} × {other}"] = ("t, difference of differences, not halved", weight)
    return {name: _contrast(scores, weight, test) for name, (test, weight) in weights.items()}


def _against(names: Sequence[tuple[str, ...]], place: int, first: str, level: str) -> Array:
    """Return each cell's weight in the mean over all cells of a level, minus that of the first level."""
    sign = np.array([(name[place] == level) - float(name[place] == first) for name in names])
    return sign / float((sign > 0).sum())


def _contrast(cells: Sequence[Array], weights: Array, test: str) -> Difference:
    """Return a weighted sum of cells' means, tested against 0 by the variance within the cells."""
    sizes = np.array([len(values) for values in cells])
    delta = float(weights @ np.array([values.mean() for values in cells]))
    degrees = int(sizes.sum() - len(cells))
    if degrees == 0:
        return Difference(delta, None, None, None, test)
    spread = (sum(float(((values - values.mean()) ** 2).sum()) for values in cells) / degrees) ** 0.5
    error = spread * float((weights**2 / sizes).sum()) ** 0.5
    interval = _t_interval(delta, error, degrees)
    if spread <= EQUAL:  # seeds without variance allow no test
        return Difference(delta, interval, None, None, test)
    return Difference(delta, interval, 2 * float(special.stdtr(degrees, -abs(delta) / error)), delta / spread, test)


# Rows -----------------------------------------------------------------------------------------------------------------


def mcnemar(one_right: ArrayLike, other_right: ArrayLike) -> Difference:
    """Compare two models by discordant pairs, rows on which exactly one is right: one's accuracy minus the other's.

    Below `DISCORDANT` pairs the p-value is binomial and exact, else that of a chi-square with continuity correction.
    The interval is Wald's; the effect, from −1 to 1, is the share of pairs that one wins minus the share it loses.
    """
    one, other = np.asarray(one_right, dtype=bool), np.asarray(other_right, dtype=bool)
    if one.shape != other.shape or not one.size:
        raise ValueError("McNemar's test needs the same rows of both, one at least")
    wins, losses, rows = int((one & ~other).sum()), int((other & ~one).sum()), one.size
    discordant, delta = wins + losses, (wins - losses) / rows
    if discordant < DISCORDANT:
        p, test = min(1.0, 2 * float(special.bdtr(min(wins, losses), discordant, 0.5))), "McNemar, exact"
    else:
        p, test = float(special.chdtrc(1, max(abs(wins - losses) - 1, 0) ** 2 / discordant)), "McNemar, chi-square"
    far = float(special.ndtri((1 + LEVEL) / 2)) * max(discordant - rows * delta**2, 0) ** 0.5 / rows
    effect = (wins - losses) / discordant if discordant else 0.0
    return Difference(delta, Interval(delta - far, delta + far), p, effect, test)
