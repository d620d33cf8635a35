"""Calibration: whether a classifier's confidence equals its accuracy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, ndtri

from understill.evaluate.bootstrap import draw_counts
from understill.evaluate.metrics import Array
from understill.evaluate.significance import LEVEL, Interval

BINS = 15
RESAMPLES = 1_000


class Bin(NamedTuple):
    """The rows on which a model is about equally confident."""

    low: float  # of their confidences, the bin's own bounds: above low, up to high
    high: float
    rows: int
    confidence: float  # the mean
    accuracy: float
    interval: Interval  # of the accuracy, Wilson's

    @property
    def gap(self) -> float:
        """Confidence minus accuracy; negative where it is underconfident."""
        return self.confidence - self.accuracy


class Calibration(NamedTuple):
    """How far a model's probabilities can be trusted; for all of these, less is better."""

    rows: int
    error: float  # expected calibration error, over bins of equal width
    mass_error: float  # the same over bins of about equally many rows
    largest_gap: float  # of a bin of equal width
    brier: float  # the squared error of all classes' probabilities, 0 to 2
    log_loss: float  # in nats
    curve: tuple[Bin, ...]  # the reliability curve: bins of equal width that hold rows
    interval: Interval  # of the expected calibration error, over other rows


def calibration(gold: Array, logits: ArrayLike, bins: int = BINS) -> Calibration | None:
    """Measure the calibration of raw logits, [rows, classes], over the rows that have gold; None without any."""
    known = ~np.isnan(gold)
    if not known.any():
        return None
    right_class = gold[known].astype(np.int64)
    values = np.asarray(logits, dtype=np.float64)[known]
    logs = np.asarray(log_softmax(values, axis=1))
    chances = np.exp(logs)
    # Answers go by logits, which may differ where their probabilities are the same number.
    confidence, right = chances.max(axis=1), values.argmax(axis=1) == right_class
    curve = reliability(confidence, right, np.linspace(0, 1, bins + 1))
    by_mass = reliability(confidence, right, _even_edges(confidence, bins))
    rows = np.arange(len(right_class))
    wanted = np.zeros_like(chances)
    wanted[rows, right_class] = 1
    return Calibration(
        rows=len(rows),
        error=_expected(curve),
        mass_error=_expected(by_mass),
        largest_gap=max(abs(each.gap) for each in curve),
        brier=float(((chances - wanted) ** 2).sum(axis=1).mean()),
        log_loss=float(-logs[rows, right_class].mean()),
        curve=curve,
        interval=_error_interval(confidence, right, bins),
    )


def _error_interval(confidence: Array, right: NDArray[np.bool_], bins: int) -> Interval:
    """Return the basic bootstrap interval of the expected calibration error.

    Resamples are noisier than the rows, so their errors are too large by about as much as the rows' own is; turning
    them about the measured error takes that out. It begins at 0 where a calibrated model, whose answers are right as
    often as its confidences say, would often have such an error.
    """
    place = _places(confidence, np.linspace(0, 1, bins + 1))
    member = (place[:, None] == np.unique(place)).astype(np.float64)  # [rows, bins]
    gaps = member * (confidence - right)[:, None]
    whole = np.ones(len(confidence), np.int64)
    errors = np.concatenate([np.abs(counts @ gaps).sum(axis=1) for counts in draw_counts(whole, RESAMPLES, 0)])
    low, high = np.quantile(errors / len(whole), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    error = float(np.abs(gaps.sum(axis=0)).sum()) / len(whole)
    rng, wanted = np.random.default_rng(0), confidence @ member
    drawn = (rng.random((RESAMPLES // 20, len(confidence))) < confidence for _ in range(20))
    null = np.concatenate([np.abs(wanted - hits @ member).sum(axis=1) for hits in drawn]) / len(whole)
    calibrated = error <= np.quantile(null, (1 + LEVEL) / 2)
    low_end = 0.0 if calibrated else 2 * error - float(high)
    return Interval(min(max(0.0, low_end), error), max(2 * error - float(low), error))


def reliability(confidence: Array, right: NDArray[np.bool_], edges: Array) -> tuple[Bin, ...]:
    """Return the bins between edges that hold rows; a confidence on an edge is in the bin below it."""
    place = _places(confidence, edges)
    bins = []
    for number in np.unique(place).tolist():
        mine = place == number
        rows, hits = int(mine.sum()), int(right[mine].sum())
        bounds = float(edges[number]), float(edges[number + 1])
        bins.append(Bin(*bounds, rows, float(confidence[mine].mean()), hits / rows, wilson(hits, rows)))
    return tuple(bins)


def _places(confidence: Array, edges: Array) -> NDArray[np.int64]:
    """Return the number of each confidence's bin."""
    places: NDArray[np.int64] = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, len(edges) - 2)
    return places


def _even_edges(confidence: Array, bins: int) -> Array:
    """Return edges between about equally many rows; equal confidences stay together."""
    cuts = np.quantile(confidence, np.arange(1, bins + 1) / bins, method="inverted_cdf")
    return np.unique(np.append(0.0, cuts))


def _expected(curve: tuple[Bin, ...]) -> float:
    return sum(each.rows * abs(each.gap) for each in curve) / sum(each.rows for each in curve)


def wilson(hits: int, rows: int) -> Interval:
    """Return Wilson's interval of a share."""
    square = float(ndtri((1 + LEVEL) / 2)) ** 2 / rows
    share = hits / rows
    middle = (share + square / 2) / (1 + square)
    reach = (square * (share * (1 - share) + square / 4)) ** 0.5 / (1 + square)
    return Interval(middle - reach if hits else 0.0, middle + reach if hits < rows else 1.0)
