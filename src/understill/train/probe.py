"""The linear probe: a linear layer fitted to frozen vectors in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from threadpoolctl import threadpool_limits

from understill.tasks import Task

#: The most rows that a probe is fitted to; more change it little.
MOST = 10_000
#: The most iterations of a fit; further ones change hardly any answer.
_ITERATIONS = 200
#: A fit ends where no slope of the mean loss is steeper.
_GRADIENT = 1e-4

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Loss = Callable[[Doubles], tuple[float, Doubles]]


class Probe(NamedTuple):
    """A linear layer."""

    weight: Floats  # [outputs, features]
    bias: Floats  # [outputs]

    def __call__(self, features: Floats) -> Floats:
        """Return the outputs for rows, [rows, outputs]."""
        return features @ self.weight.T + self.bias


def fit_probe(features: Floats, gold: Floats, task: Task, decay: float) -> Probe:
    """Fit a linear layer: logistic regression for classes and candidates, ridge for scores, as they are in `gold`.

    It minimises the mean loss plus decay/2 times the sum of squared weights.
    """
    if task.kind.probe == "ridge":
        weight, bias = _ridge(features, gold.reshape(len(gold), -1), decay * len(gold))
        return Probe(weight.reshape(task.outputs, -1), bias)
    classes = 2 if task.kind.probe == "difference" else task.outputs
    probe = _logistic(features, gold.astype(np.int64), classes, decay)
    if task.kind.probe == "difference":  # a candidate has one score: its log-odds of being right
        return Probe(probe.weight[1:] - probe.weight[:1], probe.bias[1:] - probe.bias[:1])
    return probe


def _ridge(features: Floats, gold: Floats, decay: float) -> tuple[Floats, Floats]:
    """Return weight and bias of the least squared error, in closed form."""
    middle, level = features.mean(axis=0, dtype=np.float64), gold.mean(axis=0, dtype=np.float64)
    own, wanted = features - middle, gold - level
    if len(own) < own.shape[1]:  # as many equations as rows, or as features, whichever are fewer
        weight = own.T @ np.linalg.solve(own @ own.T + decay * np.eye(len(own)), wanted)
    else:
        weight = np.linalg.solve(own.T @ own + decay * np.eye(own.shape[1]), own.T @ wanted)
    return weight.T.astype(np.float32), (level - middle @ weight).astype(np.float32)


def _logistic(features: Floats, gold: NDArray[np.int64], classes: int, decay: float) -> Probe:
    weight, bias = np.zeros((classes, features.shape[1]), np.float32), np.full(classes, -10.0, np.float32)
    there, target = np.unique(gold, return_inverse=True)
    if len(there) == 1:
        bias[there] = 0.0
        return Probe(weight, bias)
    own = np.append(features, np.ones((len(features), 1), np.float32), axis=1)
    columns = 1 if len(there) == 2 else len(there)
    loss = (_two if columns == 1 else _several)(own, target, decay)
    # Products as small as these gain nothing by threads, which would wait for each other where cores are busy.
    with threadpool_limits(1, user_api="blas"):
        options = {"maxiter": _ITERATIONS, "gtol": _GRADIENT, "ftol": 0.0}
        fitted = minimize(loss, np.zeros(columns * own.shape[1]), jac=True, method="L-BFGS-B", options=options)
    coefficients = fitted.x.reshape(columns, -1)
    if columns == 1:  # two classes have one line between them, which each gets half of
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
    weight[there], bias[there] = coefficients[:, :-1], coefficients[:, -1]
    return Probe(weight, bias)


def _two(own: Floats, target: NDArray[np.int64], decay: float) -> Loss:
    """Return the loss of one line between two classes, with its gradient."""

    def loss(flat: Doubles) -> tuple[float, Doubles]:
        logits, penalised = own @ flat.astype(np.float32), _penalised(flat)
        total = np.logaddexp(0, logits).mean() - (logits * target).mean() + decay / 2 * (penalised @ penalised)
        return float(total), own.T @ (expit(logits) - target).astype(np.float32) / len(own) + decay * penalised

    return loss


def _several(own: Floats, target: NDArray[np.int64], decay: float) -> Loss:
    """Return the loss of a layer with an output for each class, with its gradient."""
    rows = np.arange(len(own))

    def loss(flat: Doubles) -> tuple[float, Doubles]:
        layer = flat.reshape(-1, own.shape[1])
        logits, penalised = own @ layer.T.astype(np.float32), _penalised(layer)
        errors = logits - logsumexp(logits, axis=1, keepdims=True)
        total = decay / 2 * (penalised**2).sum() - errors[rows, target].mean()
        np.exp(errors, out=errors)
        errors[rows, target] -= 1
        return float(total), (errors.T @ own / len(own) + decay * penalised).ravel()

    return loss


def _penalised(layer: Doubles) -> Doubles:
    """Return the weights that cost something; the bias, which comes last, does not."""
    weights = layer.copy()
    weights[..., -1] = 0
    return weights
