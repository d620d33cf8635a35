"""Guess test: the p-value of a teacher's dev score against guessing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from understill.evaluate.metrics import primary, score
from understill.tasks import Task
from understill.teachers.protocol import Floats

Groups = NDArray[np.int64] | None

#: Random draws of what guessing gives, where no formula says it.
DRAWS = 999
#: Scores no further apart than this are equal up to rounding.
EQUAL = 1e-10


def p_against_guess(task: Task, gold: Floats, predicted: Floats, constant: Floats, groups: Groups = None) -> float:
    """Return the one-sided p-value of a teacher's first metric against the best guess.

    Accuracy: an exact sign test on the rows that either the teacher or the best constant answer has right; no guess
    is expected to be righter than that constant. Other metrics: the teacher's own answers, dealt out to the rows at
    random (a ranking's within each query), and for classes the constant as well; the higher p counts.
    """
    if not task.kind.has_classes:
        return _dealt_out(task, gold, predicted, groups)
    if task.kind.measured_by(task, task.metrics[0]) != "accuracy":
        return max(_dealt_out(task, gold, predicted, groups), _exchanged(task, gold, predicted, constant))
    better = int(((predicted == gold) & (gold != constant)).sum())
    worse = int(((predicted != gold) & (gold == constant)).sum())
    return float(bdtrc(better - 1, better + worse, 0.5)) if better else 1.0


def _dealt_out(task: Task, gold: Floats, predicted: Floats, groups: Groups) -> float:
    """Test by permutation whether answers have to do with the rows they are given to."""
    rng, homes = np.random.default_rng(0), np.zeros(len(gold), np.int64) if groups is None else groups
    place, dealt = np.argsort(homes, kind="stable"), np.empty_like(predicted)

    def draw() -> float:
        dealt[place] = predicted[np.lexsort((rng.random(len(gold)), homes))]
        return primary(task, score(task, gold, dealt, groups))

    return _share(draw, primary(task, score(task, gold, predicted, groups)))


def _exchanged(task: Task, gold: Floats, predicted: Floats, constant: Floats) -> float:
    """Test by randomisation whether answers score better than a constant, row by row as good as they."""
    rng = np.random.default_rng(0)

    def lead(own: NDArray[np.bool_]) -> float:
        sides = np.where(own, predicted, constant), np.where(own, constant, predicted)
        one, other = (primary(task, score(task, gold, side)) for side in sides)
        return one - other

    return _share(lambda: lead(rng.integers(0, 2, len(gold)) == 1), lead(np.ones(len(gold), bool)))


def _share(draw: Callable[[], float], reached: float) -> float:
    """Return how often a draw reaches as much; the answers as they are count as one more, so that p is never 0."""
    return (1 + sum(draw() >= reached - EQUAL for _ in range(DRAWS))) / (DRAWS + 1)
