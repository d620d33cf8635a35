"""Metrics: the ones GLUE names, through scikit-learn and scipy, and those of rankings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from understill.tasks import Task

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def _correlation(function: Callable[[Array, Array], float]) -> Callable[[Array, Array], float]:
    """Wrap a correlation so that a constant, which correlates with nothing, gives 0, not NaN and not a warning."""

    def measured(gold: Array, predicted: Array) -> float:
        if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
            return 0.0
        return float(function(gold, predicted))

    return measured


pearson = _correlation(lambda gold, predicted: stats.pearsonr(gold, predicted).statistic)
spearman = _correlation(lambda gold, predicted: stats.spearmanr(gold, predicted).statistic)
matthews = _correlation(metrics.matthews_corrcoef)

#: Each takes gold and predicted values: class numbers, or scores.
FUNCTIONS: dict[str, Callable[[Array, Array], float]] = {
    "accuracy": lambda gold, predicted: float(metrics.accuracy_score(gold, predicted)),
    "macro_f1": lambda gold, predicted: float(metrics.f1_score(gold, predicted, average="macro", zero_division=0)),
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": lambda gold, predicted: (pearson(gold, predicted) + spearman(gold, predicted)) / 2,
    "mse": lambda gold, predicted: float(metrics.mean_squared_error(gold, predicted)),
    # The last label is the positive one: "paraphrase" in GLUE.
    "f1": lambda gold, predicted: float(metrics.f1_score(gold, predicted, average="binary", zero_division=0)),
}


def score(task: Task, gold: Array, predicted: Array, groups: Ints | None = None) -> dict[str, float]:
    """Return a task's metrics over the rows that have gold; nothing when no row has.

    A ranking needs the number of each row's query; it is scored over queries that leave a choice, and have gold
    throughout.
    """
    if task.kind == "ranking":
        assert groups is not None
        ranked = ranking(gold, predicted, groups)
        return {name: RANKING[name](ranked) for name in task.metrics} if len(ranked.right) else {}
    known = ~np.isnan(gold)
    if not known.any():
        return {}
    gold, predicted = gold[known], predicted[known]
    return {name: _measure(name, task, gold, predicted) for name in task.metrics}


def _measure(name: str, task: Task, gold: Array, predicted: Array) -> float:
    if name == "f1" and len(task.labels) > 2:
        name = "macro_f1"  # there is no positive class among many
    return FUNCTIONS[name](gold, predicted)


def primary(task: Task, scores: dict[str, float]) -> float:
    """Return the value models are compared by; higher is better."""
    value = scores[task.metrics[0]]
    return -value if task.metrics[0] == "mse" else value


def majority(task: Task, train_gold: Array, gold: Array, groups: Ints | None = None) -> dict[str, float]:
    """Score the simplest guess there is: the commonest class, or the mean score, of the training rows.

    The simplest ranking is one in any order; its scores are what is to be expected of that.
    """
    if task.kind == "ranking":
        assert groups is not None
        ranked = shuffled(ranking(gold, np.zeros(len(gold)), groups))
        return {name: RANKING[name](ranked) for name in task.metrics} if len(ranked.right) else {}
    return score(task, gold, np.full(len(gold), simplest(task, train_gold)))


def simplest(task: Task, train_gold: Array) -> float:
    """Return the commonest class, or the mean score, of the training rows."""
    train = train_gold[~np.isnan(train_gold)]
    if task.kind == "classification":
        return float(np.bincount(train.astype(np.int64), minlength=task.outputs).argmax())
    return float(train.mean())


# Rankings -------------------------------------------------------------------------------------------------------------


class Ranking(NamedTuple):
    """What became of each query that has a right candidate and a wrong one, [queries] each."""

    right: Ints  # right candidates
    wrong: Ints
    first: Array  # 1 where a right candidate is on top, or how likely that is
    reciprocal: Array  # 1 / the rank of the first right one, or what to expect of it


#: "accuracy" is that of calling each query's top candidate right and all others wrong.
RANKING: dict[str, Callable[[Ranking], float]] = {
    "precision_at_1": lambda found: float(found.first.mean()),
    "mrr": lambda found: float(found.reciprocal.mean()),
    "accuracy": lambda found: float((found.wrong - 1 + 2 * found.first).sum() / (found.right + found.wrong).sum()),
}


def ranking(gold: Array, predicted: Array, groups: Ints) -> Ranking:
    """Rank the candidates of each query; a right one that ties with a wrong one ranks behind it."""
    count = int(groups.max(initial=-1)) + 1
    right, wrong = (np.bincount(groups[gold == label], minlength=count) for label in (1, 0))
    scored = (right > 0) & (wrong > 0) & (right + wrong == np.bincount(groups, minlength=count))
    # A score that is no number counts against whoever gave it.
    predicted = np.where(np.isnan(predicted), np.where(gold == 1, -np.inf, np.inf), predicted)
    best = np.full(count, -np.inf)
    np.maximum.at(best, groups[gold == 1], predicted[gold == 1])
    ahead = (gold == 0) & (predicted >= best[groups])
    rank = 1 + np.bincount(groups[ahead], minlength=count)[scored]
    return Ranking(right[scored], wrong[scored], (rank == 1).astype(np.float64), 1 / rank)


def shuffled(ranked: Ranking) -> Ranking:
    """Return what to expect of the same queries where every order of their candidates is equally likely."""
    pairs, place = np.unique(np.stack([ranked.right, ranked.wrong]), axis=1, return_inverse=True)
    reciprocal = np.array([_expected_reciprocal(*pair) for pair in pairs.T.tolist()])
    first = ranked.right / (ranked.right + ranked.wrong)
    return ranked._replace(first=first, reciprocal=reciprocal[place.reshape(-1)])


def _expected_reciprocal(right: int, wrong: int) -> float:
    """Return the mean of 1 / the rank of the first right candidate over all orders."""
    drawn = np.arange(wrong)
    later = np.cumprod((wrong - drawn) / (right + wrong - drawn))  # that the first 1, 2, … are all wrong
    chance = np.append(1.0, later) - np.append(later, 0.0)
    return float((chance / np.arange(1, wrong + 2)).sum())
