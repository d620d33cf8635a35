"""The clock: ratios are those of paired rounds, and intervals hold what they should."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.bench.clock import Timings


def some(**changes: Any) -> Timings:
    return Timings(**{"name": "a", "texts": 100, "seconds": {"model": (1.0, 2.0, 4.0)}, "latency": {}, **changes})


def test_a_ratio_is_that_of_paired_rounds() -> None:
    # Both rounds are disturbed alike, so the ratio is sharp where the rates are not.
    fast, slow = some(), some(seconds={"model": (10.0, 20.0, 40.0)}, texts=50)
    ratio = fast.times_as_fast(slow, "model")
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((20, 20, 20))
    rate = fast.rate("model")
    assert rate.value == pytest.approx(50) and rate.low < 25 and rate.high > 100


def test_one_round_tells_nothing_of_its_spread() -> None:
    rate = some(seconds={"model": (4.0,)}).rate("model")
    assert (rate.value, rate.low, rate.high) == (pytest.approx(25), 0, math.inf)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=9), st.floats(0.1, 10))
def test_an_interval_holds_its_value_and_follows_the_unit(seconds: list[float], factor: float) -> None:
    rate = some(seconds={"model": tuple(seconds)}).rate("model")
    assert rate.low <= rate.value * (1 + 1e-9) and rate.value <= rate.high * (1 + 1e-9)
    other = some(seconds={"model": tuple(factor * each for each in seconds)}).rate("model")
    assert np.allclose([other.low, other.value, other.high], np.array([rate.low, rate.value, rate.high]) / factor)


def test_intervals_hold_the_truth_nineteen_times_in_twenty() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        rate = some(seconds={"model": tuple(100 * np.exp(random.normal(0, 0.3, 5)))}).rate("model")
        held += rate.low <= 1 <= rate.high
    assert 925 <= held <= 975
