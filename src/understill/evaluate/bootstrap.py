"""Bootstrap: how far a score, or a difference of scores, would move on other rows and other seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from understill.evaluate.metrics import Array, Ints
from understill.evaluate.significance import EQUAL, LEVEL, Difference, Interval
from understill.evaluate.weighted import Counts, weighted
from understill.tasks import Task

RESAMPLES = 10_000
#: At most so many where a metric, such as a plug-in's, has to be computed anew for each.
PLAIN_RESAMPLES = 1_000

#: Counts that are held at once: so few that they stay in the cache, and that their memory is not mapped anew each time.
AT_ONCE = 1 << 15

#: Drawing how often a kind of rows occurs takes as long as drawing so many rows.
KIND_COST = 8


class Resampled(NamedTuple):
    """The scores of several models on the rows themselves, and on resamples of them."""

    scores: Array  # [models]
    drawn: Array  # [models, resamples]
    units: int  # rows, or queries of a ranking
    apart: int  # those that not all models answer alike


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
    """Compare two models by one metric over the same rows, by default the task's first: one's score minus the other's.

    A ranking is drawn by queries. The effect is the delta in standard deviations of what one row adds to it.
    """
    found = resample(task, gold, np.stack([one, other]), groups, metric=metric, resamples=resamples, seed=seed)
    drawn = found.drawn[0] - found.drawn[1]
    return _difference(float(found.scores[0] - found.scores[1]), drawn, drawn, found, "paired bootstrap")


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
    make too little of it. How much seeds vary is itself a guess from a few, so the drawn deltas are spread out as
    Student's t is, by Welch's degrees of freedom. One seed alone stands for itself, so the answer is about that very
    model. The effect is that of the rows, as in `paired_bootstrap`.
    """
    found = resample(task, gold, np.concatenate([ones, others]), groups, metric=metric, resamples=resamples, seed=seed)
    rng, resamples = np.random.default_rng([seed, 1]), found.drawn.shape[1]
    delta, drawn, by_row, doubt = 0.0, np.zeros(resamples), np.zeros(resamples), 0.0
    for sign, mine in ((1, slice(0, len(ones))), (-1, slice(len(ones), None))):
        scores = found.drawn[mine]
        seeds = len(scores)
        times = rng.multinomial(max(seeds - 1, 1), np.full(seeds, 1 / seeds), size=resamples).T
        delta += sign * float(found.scores[mine].mean())
        drawn += sign * (scores * times).sum(axis=0) / max(seeds - 1, 1)
        by_row += sign * scores.mean(axis=0)
        if seeds > 1:
            doubt += float(found.scores[mine].var(ddof=1) / seeds) ** 2 / (seeds - 1)
    if doubt:
        degrees = max(float(drawn.var()) ** 2 / doubt, 1.0)
        drawn = delta + (drawn - delta) * np.sqrt(degrees / rng.chisquare(degrees, size=resamples))
    return _difference(delta, drawn, by_row, found, "bootstrap of seeds and rows")


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
    """Return where one model's score would lie on other rows like these."""
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
    times, measure, apart, plain = weighted(task, metric or task.metrics[0], gold, predicted, groups)
    resamples = min(resamples, PLAIN_RESAMPLES) if plain else resamples
    if not len(times):
        raise ValueError(f"{task.name} has no row with gold to resample")
    drawn = np.hstack([measure(counts) for counts in _drawn(times, resamples, seed)])
    return Resampled(measure(times[None])[:, 0], drawn, int(times.sum()), apart)


def _drawn(times: Ints, resamples: int, seed: int) -> Iterator[Counts]:
    """Draw as many units as there are, again and again, and give how often each kind of them came."""
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


def _difference(delta: float, drawn: Array, by_row: Array, found: Resampled, test: str) -> Difference:
    """Judge a delta by the drawn ones, and size it by those that other rows alone would give."""
    # No test can make more of the units that tell the sides apart than of as many coins that fall alike.
    least = min(1.0, max(2.0 ** (1 - found.apart), 1 / (len(drawn) + 1)))
    if drawn.std() <= EQUAL:
        p = 1.0 if abs(delta) <= EQUAL else least
        return Difference(delta, Interval(delta, delta), p, 0.0 if p == 1 else None, test)
    spread = float(by_row.std()) * found.units**0.5
    effect = delta / spread if spread > EQUAL else None
    return Difference(delta, _interval(drawn), max(least, _p_value(delta, drawn, effect or 0.0)), effect, test)


def _p_value(delta: float, drawn: Array, effect: float) -> float:
    """Return how often chance alone is as far from nothing as the delta, as the drawn ones are from the delta.

    Were there no difference, what a unit adds would vary about 0 and not about the delta: a little more, by the effect.
    Scores over rows move in steps, and the delta lies on one of them. What is exactly as far counts by half, or
    else p-values would be too large by half a step; the data itself counts as one more draw, so that none is 0.
    """
    far, near = np.abs(drawn - delta), EQUAL * max(1.0, abs(delta))
    tied = np.abs(far - abs(delta)) <= near
    further = (far * (1 + effect**2) ** 0.5 > abs(delta) + near) & ~tied
    return float((1 + further.sum() + 0.5 * tied.sum()) / (len(drawn) + 1))


def _interval(drawn: Array) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
