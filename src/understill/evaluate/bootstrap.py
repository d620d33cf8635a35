"""Bootstrap: how far a score, or a difference of scores, would vary with other rows and other seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from understill.evaluate.metrics import Array, Ints
from understill.evaluate.significance import EQUAL, LEVEL, Difference, Interval
from understill.evaluate.weighted import Counts, weighted
from understill.tasks import Task

RESAMPLES = 10_000
#: At most so many for a metric, such as a plug-in's, that has no vectorised form.
PLAIN_RESAMPLES = 1_000

#: Counts that are held at once: so few that they stay in the CPU cache, and that their memory is reused.
AT_ONCE = 1 << 15

#: A multinomial draw of one distinct row's count costs as much as drawing so many rows.
KIND_COST = 8


class Resampled(NamedTuple):
    """The scores of several models on the rows themselves, and on resamples of them."""

    scores: Array  # [models]
    drawn: Array  # [models, resamples]
    units: int  # rows, or queries of a ranking
    discordant: int  # those that not all models answer alike


def paired_bootstrap(
    task: Task,
    gold: Array,
    one: Array,
    other: Array,
    groups: Ints | None = None,
    *,
    metric: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Compare two models by one metric over the same rows, by default the primary one: one's score minus the other's.

    A ranking is resampled by queries. The effect is the delta in standard deviations of one row's contribution to it.
    """
    resampled = resample(task, gold, np.stack([one, other]), groups, metric=metric, resamples=resamples, seed=seed)
    drawn = resampled.drawn[0] - resampled.drawn[1]
    return _difference(float(resampled.scores[0] - resampled.scores[1]), drawn, drawn, resampled, "paired bootstrap")


def nested_bootstrap(
    task: Task,
    gold: Array,
    ones: Array,
    others: Array,
    groups: Ints | None = None,
    *,
    metric: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Compare two models by the mean scores of their seeds, [seeds, rows], drawing seeds and rows together.

    Of n seeds, n − 1 are drawn: then the drawn means vary by as much as means of n seeds do, where drawing n would
    underestimate that. The variance of a few seeds is itself uncertain, so the drawn deltas are widened as Student's t
    is, by Welch's degrees of freedom. One seed alone stands for itself, so the answer is about that very model. The
    effect is that of the rows, as in `paired_bootstrap`.
    """
    resampled = resample(
        task, gold, np.concatenate([ones, others]), groups, metric=metric, resamples=resamples, seed=seed
    )
    rng, resamples = np.random.default_rng([seed, 1]), resampled.drawn.shape[1]
    delta, drawn, by_row, doubt = 0.0, np.zeros(resamples), np.zeros(resamples), 0.0
    for sign, mine in ((1, slice(0, len(ones))), (-1, slice(len(ones), None))):
        scores = resampled.drawn[mine]
        seeds = len(scores)
        times = rng.multinomial(max(seeds - 1, 1), np.full(seeds, 1 / seeds), size=resamples).T
        delta += sign * float(resampled.scores[mine].mean())
        drawn += sign * (scores * times).sum(axis=0) / max(seeds - 1, 1)
        by_row += sign * scores.mean(axis=0)
        if seeds > 1:
            doubt += float(resampled.scores[mine].var(ddof=1) / seeds) ** 2 / (seeds - 1)
    if doubt:
        degrees = max(float(drawn.var()) ** 2 / doubt, 1.0)
        drawn = delta + (drawn - delta) * np.sqrt(degrees / rng.chisquare(degrees, size=resamples))
    return _difference(delta, drawn, by_row, resampled, "bootstrap of seeds and rows")


def score_interval(
    task: Task,
    gold: Array,
    values: Array,
    groups: Ints | None = None,
    *,
    metric: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the interval of one model's score over resamples of the rows."""
    return _interval(resample(task, gold, values[None], groups, metric=metric, resamples=resamples, seed=seed).drawn[0])


def resample(
    task: Task,
    gold: Array,
    predicted: Array,
    groups: Ints | None = None,
    *,
    metric: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Resampled:
    """Score several models, [models, rows], on the rows that have gold and on resamples of them, the same for all."""
    times, measure, discordant, plain = weighted(task, metric or task.metrics[0], gold, predicted, groups)
    resamples = min(resamples, PLAIN_RESAMPLES) if plain else resamples
    if not len(times):
        raise ValueError(f"{task.name} has no row with gold to resample")
    drawn = np.hstack([measure(counts) for counts in _drawn(times, resamples, seed)])
    return Resampled(measure(times[None])[:, 0], drawn, int(times.sum()), discordant)


def _drawn(times: Ints, resamples: int, seed: int) -> Iterator[Counts]:
    """Yield resamples, each as how often every distinct unit was drawn."""
    rng = np.random.Generator(np.random.SFC64(seed))
    units, kinds = int(times.sum()), len(times)
    kind = np.repeat(np.arange(kinds), times)
    step = max(1, AT_ONCE // kinds)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if kinds * KIND_COST < units:
            yield rng.multinomial(units, times / units, size=size)
        else:
            rows = rng.integers(0, units, size=(size, units))
            drawn = rows if kinds == units else kind[rows]
            counts = np.empty((size, kinds), dtype=np.int32)
            for place, each in enumerate(drawn):
                counts[place] = np.bincount(each, minlength=kinds)
            yield counts


def _difference(delta: float, drawn: Array, by_row: Array, resampled: Resampled, test: str) -> Difference:
    """Return interval and p-value of a delta from the drawn ones, and its effect size from resamples of rows alone."""
    # p is bounded below by a sign test on the discordant rows: no resampling can be surer than that.
    least = min(1.0, max(2.0 ** (1 - resampled.discordant), 1 / (len(drawn) + 1)))
    if drawn.std() <= EQUAL:
        p = 1.0 if abs(delta) <= EQUAL else least
        return Difference(delta, Interval(delta, delta), p, 0.0 if p == 1 else None, test)
    spread = float(by_row.std()) * resampled.units**0.5
    effect = delta / spread if spread > EQUAL else None
    return Difference(delta, _interval(drawn), max(least, _p_value(delta, drawn, effect or 0.0)), effect, test)


def _p_value(delta: float, drawn: Array, effect: float) -> float:
    """Return the two-sided p-value: the share of draws that are as far from the delta as the delta is from 0.

    Under the null hypothesis a unit's contribution varies about 0 and not about the delta: a little more, by the
    effect. Scores over rows are discrete, so a draw that is exactly as far counts by half (mid-p), or else p-values
    would be too large by half a step; the data itself counts as one more draw, so that none is 0.
    """
    far, near = np.abs(drawn - delta), EQUAL * max(1.0, abs(delta))
    tied = np.abs(far - abs(delta)) <= near
    further = (far * (1 + effect**2) ** 0.5 > abs(delta) + near) & ~tied
    return float((1 + further.sum() + 0.5 * tied.sum()) / (len(drawn) + 1))


def _interval(drawn: Array) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
