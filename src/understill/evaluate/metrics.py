"""Metrics: the ones GLUE names, through scikit-learn and scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from understill.tasks import Task

Array = NDArray[np.float64]


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


def score(task: Task, gold: Array, predicted: Array) -> dict[str, float]:
    """Return a task's metrics over the rows that have gold; nothing when no row has."""
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


def majority(task: Task, train_gold: Array, gold: Array) -> dict[str, float]:
    """Score the simplest guess there is: the commonest class, or the mean score, of the training rows."""
    train = train_gold[~np.isnan(train_gold)]
    if task.kind == "classification":
        guess = float(np.bincount(train.astype(np.int64), minlength=task.outputs).argmax())
    else:
        guess = float(train.mean())
    return score(task, gold, np.full(len(gold), guess))
