"""Bootstrap: how far a score, or a difference of scores, would vary with other rows and other seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from understill.evaluate.metrics import Array, Ints
from understill.evaluate.uncertainty import SeedScores
from understill.evaluate.weighted import Counts, unit_rows, weighted
from understill.tasks import Task
from understill.tasks.metric import is_error

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
    units: int  # rows, queries of a ranking, or clusters of them
    discordant: int  # those that not all models answer alike
    error: bool = False  # the metric is one, and no share of the units

    def seeds(self, start: int, count: int) -> SeedScores:
        """Return some of the models as the seeds of one side."""
        mine = slice(start, start + count)
        return SeedScores(self.scores[mine], self.drawn[mine], self.units, np.inf if self.error else None)


def resample(
    task: Task,
    gold: Array,
    predicted: Array,
    groups: Ints | None = None,
    clusters: Ints | None = None,
    *,
    metric: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Resampled:
    """Score several models, [models, rows], on the rows that have gold and on resamples of them, the same for all.

    A ranking is resampled by queries. Rows of a cluster are drawn together; a query is in the cluster of its first row.
    """
    metric = metric or task.metrics[0]
    times, measure, discordant, plain = weighted(task, metric, gold, predicted, groups, merge=clusters is None)
    resamples = min(resamples, PLAIN_RESAMPLES) if plain else resamples
    if not len(times):
        raise ValueError(f"{task.name} has no row with gold to resample")
    scores = measure(times[None])[:, 0]
    if clusters is None:
        drawn = np.hstack([measure(counts) for counts in draw_counts(times, resamples, seed)])
        return Resampled(scores, drawn, int(times.sum()), int(times[discordant].sum()), is_error(metric))
    home = np.unique(clusters[unit_rows(task, gold, groups)], return_inverse=True)[1]
    whole = np.ones(int(home.max()) + 1, np.int64)
    drawn = np.hstack([measure(counts[:, home]) for counts in draw_counts(whole, resamples, seed, len(home))])
    return Resampled(scores, drawn, len(whole), len(np.unique(home[discordant])), is_error(metric))


def draw_counts(times: Ints, resamples: int, seed: int, width: int = 0) -> Iterator[Counts]:
    """Yield resamples, each as how often every distinct unit was drawn; `width` numbers will be made of each."""
    rng = np.random.Generator(np.random.SFC64(seed))
    units, kinds = int(times.sum()), len(times)
    kind = np.repeat(np.arange(kinds), times)
    step = max(1, AT_ONCE // max(kinds, width))
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
