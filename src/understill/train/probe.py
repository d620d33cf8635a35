"""The linear probe: a linear layer fitted to frozen vectors in seconds."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits

from understill.tasks import Task

#: The most rows that a probe is fitted to; more change it little.
MOST = 10_000
#: The most iterations of a fit; further ones change hardly any answer.
_ITERATIONS = 200


class Probe(NamedTuple):
    """A linear layer."""

    weight: NDArray[np.float32]  # [outputs, features]
    bias: NDArray[np.float32]  # [outputs]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs for rows, [rows, outputs]."""
        return features @ self.weight.T + self.bias


def fit_probe(features: NDArray[np.float32], gold: NDArray[np.float32], task: Task, decay: float) -> Probe:
    """Fit a linear layer: logistic regression for classes and candidates, ridge for scores, as they are in `gold`.

    It minimises the mean loss plus decay/2 times the sum of squared weights.
    """
    if task.kind.probe == "ridge":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)  # with little decay; no answer changes by it
            ridge = Ridge(alpha=decay * len(gold)).fit(features, gold)
        intercepts = np.atleast_1d(ridge.intercept_).astype(np.float32)
        return Probe(ridge.coef_.reshape(task.outputs, -1).astype(np.float32), intercepts)
    classes = 2 if task.kind.probe == "difference" else task.outputs
    probe = _logistic(features, gold.astype(np.int64), classes, decay)
    if task.kind.probe == "difference":  # a candidate has one score: its log-odds of being right
        return Probe(probe.weight[1:] - probe.weight[:1], probe.bias[1:] - probe.bias[:1])
    return probe


def _logistic(features: NDArray[np.float32], gold: NDArray[np.int64], classes: int, decay: float) -> Probe:
    weight, bias = np.zeros((classes, features.shape[1]), np.float32), np.full(classes, -10.0, np.float32)
    there = np.unique(gold)
    if len(there) == 1:
        bias[there] = 0.0
        return Probe(weight, bias)
    # Products as small as these gain nothing by threads, which would wait for each other where cores are busy.
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(C=1 / (decay * len(gold)), max_iter=_ITERATIONS).fit(features, gold)
    # Two classes have one line between them, which each gets half of.
    coefficients, intercepts = fitted.coef_, fitted.intercept_
    if len(there) == 2:
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    weight[there], bias[there] = coefficients, intercepts
    return Probe(weight, bias)
