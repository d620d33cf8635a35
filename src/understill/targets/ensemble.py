"""Ensembles: one target out of several teachers' logits, and the teachers' weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from understill.data.units import side_by_side
from understill.errors import UserError, listed, nearest

Rule = Literal["mean_probabilities", "geometric_mean", "mean_logits"]
Form = Literal["log_probabilities", "logits"]
Floats = NDArray[np.float64]

#: No log-probability is lower than this. The probability is 0 in any format long before; -inf would make 0 · inf a NaN.
FLOOR = -1e4
#: Rows joined at once; bounds the memory of the work in float64.
BLOCK = 1 << 14


def join(
    logits: NDArray[np.floating],
    scored: bool,
    *,
    combine: Rule,
    weights: Floats,
    form: Form,
    temperature: float,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Return one target for each row, [rows, outputs], out of raw logits, [teachers, rows, outputs].

    It holds log-probabilities, with the temperature applied to each teacher before they are averaged, or logits, which
    know no temperature; scores where the task is `scored`. A teacher whose logits for a row are all NaN does not count
    there; a row that no teacher answers stays NaN.

    A ranking has `groups`, [rows]: there the candidates of a query are joined as the outputs of a row are elsewhere,
    and a teacher that leaves one of them out does not count for the query.
    """
    rule = partial(join, scored=scored, combine=combine, weights=weights, form=form, temperature=temperature)
    if groups is not None:
        return _join_groups(logits, groups, rule)
    if logits.ndim != 3 or weights.shape != (len(logits),):
        raise ValueError(f"logits of shape {logits.shape} do not go with weights of shape {weights.shape}")
    counted = weights > 0
    logits, weights = logits[counted], weights[counted]
    joined = np.full(logits.shape[1:], np.nan, np.float32)
    for start in range(0, len(joined), BLOCK):
        values = logits[:, start : start + BLOCK].astype(np.float64)
        missing = np.isnan(values).all(axis=2)  # [teachers, rows]
        values[missing] = 0.0
        share = np.where(missing, 0.0, weights[:, None])
        total = share.sum(axis=0)
        known = total > 0
        share = (share[:, known] / total[known])[:, :, None]
        joined[start : start + BLOCK][known] = _mean(values[:, known], share, scored, combine, form, temperature)
    return joined


def join_column(values: NDArray[np.floating], weights: Floats) -> NDArray[np.float32]:
    """Return the weighted mean of a column, [teachers, rows, …], over the teachers that answer a row."""
    flat = values.reshape(*values.shape[:2], -1)
    missing = np.isnan(flat).any(axis=2)
    share = np.where(missing, 0.0, weights[:, None])[:, :, None]
    total = share.sum(axis=0)
    mean: Floats = (share * np.where(missing[:, :, None], 0.0, flat)).sum(axis=0) / np.where(total > 0, total, np.nan)
    joined: NDArray[np.float32] = mean.astype(np.float32).reshape(values.shape[1:])
    return joined


def _join_groups(
    logits: NDArray[np.floating], groups: NDArray[np.int64], join_rows: Callable[..., NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Join the scores of candidates as if those of a group were the outputs of one row."""
    joined = np.full(logits.shape[1:], np.nan, np.float32)
    order, starts = side_by_side(groups)
    sizes = np.diff(starts)
    for size in np.unique(sizes):
        rows = order[starts[:-1][sizes == size, None] + np.arange(size)]  # [groups of this size, size]
        values = logits[:, rows, 0]
        values[np.isnan(values).any(axis=2)] = np.nan
        joined[rows, 0] = join_rows(values)
    return joined


def _mean(values: Floats, share: Floats, scored: bool, combine: Rule, form: Form, temperature: float) -> Floats:
    joined: Floats
    if scored or (form == "logits" and (combine == "mean_logits" or len(values) == 1)):
        joined = (share * values).sum(axis=0)
        return joined
    each = log_softmax(values if form == "logits" else values / temperature, axis=2)
    if combine == "mean_probabilities":
        joined = logsumexp(each, axis=0, b=np.broadcast_to(share, each.shape))
    else:
        joined = (share * each).sum(axis=0)
        if form == "log_probabilities":
            # A teacher's logits and log-probabilities differ by one number per row, and so do their means. The softmax
            # takes it out: the mean of logits and the geometric mean of probabilities are one distribution.
            joined = log_softmax(joined, axis=1)
    return np.clip(joined, FLOOR, 0.0)


def shares(
    names: Sequence[str], given: Literal["equal", "dev"] | Mapping[str, float], dev: Sequence[float | None]
) -> Floats:
    """Return the weights of the teachers of a task, which sum to 1; `dev` holds their primary dev scores."""
    if not isinstance(given, str):
        raw = _given_weights(names, given)
    else:
        raw = _dev_weights(names, dev) if given == "dev" else np.ones(len(names))
    if not raw.any():
        raise UserError(f"targets.weights: the weights of {listed(names, 'and')} are all 0 → one must count")
    raw /= raw.max()  # so that the sum cannot overflow
    weights: Floats = raw / raw.sum()
    return weights


def _dev_weights(names: Sequence[str], dev: Sequence[float | None]) -> Floats:
    for name, score in zip(names, dev, strict=True):
        if score is None or not math.isfinite(score):
            raise UserError(f'targets.weights: "dev" needs a dev score of teacher {name} → write equal, or numbers')
        if score < 0:
            raise UserError(
                f"targets.weights: teacher {name} has the dev score {score:g}, which is below 0 and no weight → "
                "write equal, or numbers"
            )
    return np.array(dev, np.float64)


def _given_weights(names: Sequence[str], given: Mapping[str, float]) -> Floats:
    for name, weight in given.items():
        if name not in names:
            raise UserError(f'targets.weights names "{name}", which is no teacher here → {nearest(name, names)}')
        if not 0 <= weight < math.inf:
            raise UserError(f"targets.weights: {name} has the weight {weight:g} → write a number of 0 or more")
    missing = [name for name in names if name not in given]
    if missing:
        raise UserError(f"targets.weights has no number for {listed(missing, 'and')} → give every teacher one")
    return np.array([given[name] for name in names], np.float64)


def best(scores: Mapping[str, Mapping[str, float]], count: int, by: Sequence[str]) -> tuple[str, ...]:
    """Return the best teachers, best first, by the mean of their dev scores on some tasks."""
    if count > len(scores):
        raise UserError(f"targets.best.count is {count}, but there are {len(scores)} teachers → write at most that")
    means = {}
    for name, of in scores.items():
        missing = [task for task in by if not math.isfinite(of.get(task, math.nan))]
        if missing:
            raise UserError(
                f"targets.best.by: teacher {name} has no dev score on {listed(missing, 'and')} → name tasks that "
                "every teacher answers"
            )
        means[name] = math.fsum(of[task] for task in by) / len(by)
    # Ties go by name, so that the choice is the same on every machine.
    return tuple(sorted(means, key=lambda name: (-means[name], name))[:count])


def weights_of(names: Mapping[str, str], given: Any) -> Any:
    """Return the recipe's weights of teachers, given by the names they have there: one may stand for all seeds."""
    if not isinstance(given, dict):
        return given
    weights = {name: given.get(name, given.get(own)) for name, own in names.items()}
    for name, weight in weights.items():
        if weight is None:
            raise UserError(f"targets.weights: teacher {name} has no weight → give every teacher one")
    return weights
