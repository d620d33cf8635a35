"""Metrics: the ones GLUE names, and those of rankings.

A metric is a function of gold and predicted values, [rows], as numbers of classes or scores, or [rows, numbers] of a
kind that has several; where rows belong to queries, the number of each row's query comes third. It returns a float,
higher being better unless it is registered as an error. Rows without gold never reach it. `understill.tasks.metric`
registers further ones, also for the entry points `understill.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understill.tasks import METRICS, Metric, Task
from understill.tasks.metric import is_error

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def _correlation(function: Callable[[Array, Array], float]) -> Callable[[Array, Array], float]:
    """Wrap a correlation so that a constant, which correlates with nothing, gives 0, not NaN and not a warning."""

    def measured(gold: Array, predicted: Array) -> float:
        if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
            return 0.0
        return float(function(gold, predicted))

    return measured


def _pearson(gold: Array, predicted: Array) -> float:
    one, two = (values - values.mean() for values in (gold.astype(np.float64), predicted.astype(np.float64)))
    # Each by its length first: products of tiny numbers would vanish.
    return float(np.clip((one / np.linalg.norm(one)) @ (two / np.linalg.norm(two)), -1, 1))


def _ranks(values: Array) -> Array:
    """Return the ranks of values; equal ones share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks


def _matthews(gold: Array, predicted: Array) -> float:
    """Return the correlation of classes, by their own indicators: R_K, Matthews' where there are two."""
    there, right, answered = _counts(gold, predicted)
    rows = len(gold)
    spread = (rows**2 - answered @ answered) * (rows**2 - there @ there)
    return float((right.sum() * rows - answered @ there) / np.sqrt(spread))


def _counts(gold: Array, predicted: Array) -> tuple[Array, Array, Array]:
    """Return how often each class that occurs is gold, rightly predicted, and predicted."""
    classes, numbers = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    own, other = numbers[: len(gold)], numbers[len(gold) :]
    counts = (np.bincount(which, minlength=len(classes)) for which in (own, own[own == other], other))
    there, right, answered = (count.astype(np.float64) for count in counts)
    return there, right, answered


pearson = _correlation(_pearson)
spearman = _correlation(lambda gold, predicted: _pearson(_ranks(gold), _ranks(predicted)))
matthews = _correlation(_matthews)

#: The chance level of a ranking metric without a formula is a mean over so many random orders.
ORDERS = 100


def _own(name: str, kinds: Iterable[str], function: Callable[..., float], error: bool = False) -> None:
    METRICS.own(name)(Metric(function, kinds, error))


def accuracy(gold: Array, predicted: Array, groups: Ints | None = None) -> float:
    """Return the share of right classes; of rankings, that of calling each query's top right and all others wrong."""
    if groups is not None:
        return _ranked("accuracy", ranking(gold, predicted, groups))
    return float(np.mean(gold == predicted))


def f1(gold: Array, predicted: Array) -> float:
    """Return F1 of class 1; 0 where nobody names it."""
    there, answered = gold == 1, predicted == 1
    return float(2 * (there & answered).sum() / max(there.sum() + answered.sum(), 1))


def macro_f1(gold: Array, predicted: Array) -> float:
    """Return the mean F1 of all classes that occur."""
    there, right, answered = _counts(gold, predicted)
    return float((2 * right / (there + answered)).mean())


_own("accuracy", ("classification", "ranking"), accuracy)
# The last label is the positive one: "paraphrase" in GLUE.
_own("f1", ("classification",), f1)
_own("macro_f1", ("classification",), macro_f1)
_own("matthews", ("classification",), matthews)
_own("pearson", ("regression",), pearson)
_own("spearman", ("regression",), spearman)
_own(
    "pearson_spearman",
    ("regression",),
    lambda gold, predicted: (pearson(gold, predicted) + spearman(gold, predicted)) / 2,
)
_own("mse", ("regression",), lambda gold, predicted: float(np.mean((gold - predicted) ** 2)), error=True)


def score(task: Task, gold: Array, predicted: Array, groups: Ints | None = None) -> dict[str, float]:
    """Return a task's metrics over the rows that can be scored; nothing when none can.

    Where rows belong to queries, `groups` has the number of each row's.
    """
    known = task.kind.counted(gold, groups)
    if not known.any():
        return {}
    values: list[Array | Ints] = [gold[known], predicted[known]]
    if task.kind.grouped:
        assert groups is not None
        values.append(np.unique(groups[known], return_inverse=True)[1])
    return {name: METRICS[task.kind.measured_by(task, name)](*values) for name in task.metrics}


def primary(task: Task, scores: dict[str, float]) -> float:
    """Return the primary metric, by which models are compared; higher is better."""
    value = scores[task.metrics[0]]
    return -value if is_error(task.metrics[0]) else value


def majority(task: Task, train_gold: Array, gold: Array, groups: Ints | None = None) -> dict[str, float]:
    """Score the majority guess: the commonest class, or the mean score, of the training rows.

    For a ranking it is the expected score of a random order.
    """
    if not task.kind.grouped:
        return score(task, gold, np.full(gold.shape, task.kind.simplest(task, train_gold)))
    assert groups is not None
    ranked = shuffled(ranking(gold, np.zeros(len(gold)), groups))
    if not len(ranked.right):
        return {}
    by_chance = {} if set(task.metrics) <= set(RANKED) else _any_order(task, gold, groups)
    return {name: _ranked(name, ranked) if name in RANKED else by_chance[name] for name in task.metrics}


def best_constant(task: Task, gold: Array, groups: Ints | None = None) -> tuple[Array, dict[str, float]]:
    """Return the constant answer that scores best on these very rows, and its scores; of a ranking, an order's."""
    if task.kind.grouped:
        return np.zeros(gold.shape), majority(task, gold, gold, groups)
    values = range(task.outputs) if task.kind.has_classes else [task.kind.simplest(task, gold)]
    answers = [np.full(gold.shape, value, np.float64) for value in values]
    scored = [(answer, score(task, gold, answer)) for answer in answers]
    return max(scored, key=lambda each: primary(task, each[1]))


def _any_order(task: Task, gold: Array, groups: Ints) -> dict[str, float]:
    """Return the mean scores of candidates in random orders."""
    rng = np.random.default_rng(0)
    scores = [score(task, gold, rng.random(len(gold)), groups) for _ in range(ORDERS)]
    return {name: float(np.mean([each[name] for each in scores])) for name in task.metrics}


# Rankings -------------------------------------------------------------------------------------------------------------


class RankedQueries(NamedTuple):
    """The outcome of each query that has a right candidate and a wrong one, [queries] each."""

    right: Ints  # right candidates
    wrong: Ints
    first: Array  # 1 where a right candidate is on top, or how likely that is
    reciprocal: Array  # 1 / the rank of the first right one, or what to expect of it


#: What each query adds to a metric's numerator and to its denominator, [queries] each. "accuracy" is that of calling
#: each query's top candidate right and all others wrong.
RANKED: dict[str, Callable[[RankedQueries], tuple[Array, Array | Ints]]] = {
    "precision_at_1": lambda ranked: (ranked.first, np.ones_like(ranked.first)),
    "mrr": lambda ranked: (ranked.reciprocal, np.ones_like(ranked.reciprocal)),
    "accuracy": lambda ranked: (ranked.wrong - 1 + 2 * ranked.first, ranked.right + ranked.wrong),
}
_own("precision_at_1", ("ranking",), lambda *values: _ranked("precision_at_1", ranking(*values)))
_own("mrr", ("ranking",), lambda *values: _ranked("mrr", ranking(*values)))


def _ranked(metric: str, ranked: RankedQueries) -> float:
    over, under = RANKED[metric](ranked)
    return float(over.sum() / under.sum())


def ranking(gold: Array, predicted: Array, groups: Ints) -> RankedQueries:
    """Rank the candidates of each query; a right one that ties with a wrong one ranks behind it."""
    count = int(groups.max(initial=-1)) + 1
    right, wrong = (np.bincount(groups[gold == label], minlength=count) for label in (1, 0))
    scored = (right > 0) & (wrong > 0) & (right + wrong == np.bincount(groups, minlength=count))
    # NaN counts as the worst score there is.
    predicted = np.where(np.isnan(predicted), np.where(gold == 1, -np.inf, np.inf), predicted)
    best = np.full(count, -np.inf)
    np.maximum.at(best, groups[gold == 1], predicted[gold == 1])
    ahead = (gold == 0) & (predicted >= best[groups])
    rank = 1 + np.bincount(groups[ahead], minlength=count)[scored]
    return RankedQueries(right[scored], wrong[scored], (rank == 1).astype(np.float64), 1 / rank)


def shuffled(ranked: RankedQueries) -> RankedQueries:
    """Return the expected outcome of the same queries where every order of their candidates is equally likely."""
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
