"""Calibration is measured as by hand and as scikit-learn does it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference

from understill.evaluate.calibration import calibration, wilson


def logits_of(*chances: float) -> np.ndarray:
    """Return logits of two classes that give the second so likely."""
    return np.array([[math.log(1 - chance), math.log(chance)] for chance in chances])


def test_a_constructed_case_has_the_error_worked_by_hand() -> None:
    # Ten rows at 0.95, of which 7 are right, and ten at 0.55, of which 6 are right.
    logits = logits_of(*[0.95] * 10, *[0.55] * 10)
    gold = np.array([1.0] * 7 + [0.0] * 3 + [1.0] * 6 + [0.0] * 4)
    result = calibration(gold, logits, bins=10)
    assert result is not None
    assert result.error == pytest.approx(0.5 * 0.25 + 0.5 * 0.05)
    assert result.mass_error == pytest.approx(result.error)
    assert result.largest_gap == pytest.approx(0.25)
    low, high = result.curve
    assert (low.rows, low.confidence, low.accuracy) == (10, pytest.approx(0.55), 0.6)
    assert (low.low, low.high) == pytest.approx((0.5, 0.6)) and (high.low, high.high) == pytest.approx((0.9, 1.0))
    assert high.gap == pytest.approx(0.25) and low.gap == pytest.approx(-0.05)
    assert result.brier == pytest.approx(2 * np.mean([0.05**2] * 7 + [0.95**2] * 3 + [0.45**2] * 6 + [0.55**2] * 4))
    assert result.log_loss == pytest.approx(-np.mean(np.log([0.95] * 7 + [0.05] * 3 + [0.55] * 6 + [0.45] * 4)))


def test_a_model_as_right_as_it_is_sure_has_no_error() -> None:
    logits = logits_of(*[0.75] * 40)
    result = calibration(np.array([1.0] * 30 + [0.0] * 10), logits)
    assert result is not None and result.error == pytest.approx(0) and result.largest_gap == pytest.approx(0)


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(-8, 8), st.floats(-8, 8), st.floats(-8, 8)), min_size=1, max_size=30
)


@given(ROWS)
def test_brier_and_log_loss_are_those_of_scikit_learn(rows: list[tuple[float, ...]]) -> None:
    gold, *columns = np.array(rows, dtype=np.float64).T
    logits = np.stack(columns, axis=1)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    result = calibration(gold, logits)
    assert result is not None
    assert result.log_loss == pytest.approx(reference.log_loss(gold, chances, labels=[0, 1, 2]))
    assert result.brier == pytest.approx(
        reference.brier_score_loss(gold, chances, labels=[0, 1, 2], scale_by_half=False)
    )
    assert sum(each.rows for each in result.curve) == result.rows == len(rows)
    right = logits.argmax(axis=1) == gold
    assert sum(each.rows * each.accuracy for each in result.curve) == pytest.approx(right.sum())
    assert 0 <= result.error <= result.largest_gap + 1e-12 <= 1 + 1e-9
    # Coarser bins can only let gaps of both signs cancel.
    assert result.error >= abs(chances.max(axis=1).mean() - right.mean()) - 1e-9 <= result.mass_error


def test_bins_of_equal_mass_hold_about_equally_many_rows() -> None:
    """Where all rows are in one bin of equal width, too sure and too modest cancel out there."""
    rng = np.random.default_rng(0)
    chances = rng.uniform(0.9, 0.999, 3000)
    gold = (rng.random(3000) < chances).astype(float)
    result = calibration(gold, logits_of(*chances), bins=10)
    assert result is not None and len(result.curve) == 1
    assert result.error < result.mass_error < 0.03


def test_certainty_that_is_wrong_has_a_large_but_finite_loss() -> None:
    result = calibration(np.array([0.0]), np.array([[-500.0, 500.0]], dtype=np.float32))
    assert result is not None and result.log_loss == pytest.approx(1000) and result.brier == pytest.approx(2)
    assert result.error == pytest.approx(1)


def test_rows_without_gold_do_not_count() -> None:
    logits = logits_of(0.9, 0.9, 0.9)
    result, whole = calibration(np.array([1.0, np.nan, 1.0]), logits), calibration(np.ones(2), logits[:2])
    assert result == whole
    assert calibration(np.full(3, np.nan), logits) is None


@pytest.mark.parametrize(("hits", "rows"), [(0, 10), (3, 10), (10, 10), (81, 263)])
def test_wilsons_interval_is_that_of_the_formula(hits: int, rows: int) -> None:
    z, share = stats.norm.ppf(0.975), hits / rows
    middle = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    reach = z / (1 + z**2 / rows) * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    assert wilson(hits, rows) == pytest.approx((middle - reach, middle + reach), abs=1e-12)


def test_wilsons_interval_is_that_of_his_textbook_case() -> None:
    # Newcombe (1998), 81 of 263: 0.2553 to 0.3662.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_the_interval_of_the_calibration_error_covers_that_of_many_rows() -> None:
    """Confidences that are ten points too high: the error is 0.1, however few rows show it."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(60):
        confidence = rng.uniform(0.7, 0.95, 400)
        right = rng.random(400) < confidence - 0.1
        logits = np.stack([np.log(confidence), np.log(1 - confidence)], axis=1)
        result = calibration((~right).astype(float), logits)
        assert result is not None and result.interval.low <= result.interval.high
        hits += result.interval.low <= 0.1 <= result.interval.high
    assert hits >= 50


def test_a_calibrated_model_is_rarely_shown_to_be_none() -> None:
    rng, zeros = np.random.default_rng(1), 0
    for _ in range(100):
        confidence = rng.uniform(0.55, 0.99, 300)
        right = rng.random(300) < confidence
        result = calibration((~right).astype(float), np.stack([np.log(confidence), np.log(1 - confidence)], axis=1))
        assert result is not None and result.interval.low <= result.error <= result.interval.high
        zeros += result.interval.low == 0
    assert zeros >= 92  # of 100, with a probability of 97.5 % each
