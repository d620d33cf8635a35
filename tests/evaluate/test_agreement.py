"""Agreement, retention and slices say what a count by hand says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.evaluate.agreement import agreement, by_quarter, by_value, retention, slices
from understill.evaluate.calibration import wilson
from understill.tasks import KINDS, Task

TWO = Task("two", "classification", ("text",), "label", ("no", "yes"), metrics=("matthews", "accuracy"))
SCORES = Task("scores", "regression", ("a", "b"), "label", metrics=("pearson",))
RANKED = Task("ranked", "ranking", ("a", "b"), "label", ("wrong", "right"), metrics=KINDS["ranking"].metrics)


def test_classes_agree_as_often_as_their_largest_logits_do() -> None:
    teacher = np.log([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]])
    student = np.log([[0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    result = agreement(TWO, student, teacher)
    assert result is not None
    assert (result.rows, result.same, result.interval) == (3, pytest.approx(2 / 3), wilson(2, 3))
    by_row = [
        0.8 * math.log(0.8 / 0.6) + 0.2 * math.log(0.2 / 0.4),
        0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8),
        0.1 * math.log(0.1 / 0.3) + 0.9 * math.log(0.9 / 0.7),
    ]
    assert result.divergence == pytest.approx(np.mean(by_row))


@given(st.lists(st.tuples(*[st.floats(-9, 9)] * 4), min_size=1, max_size=20), st.floats(-5, 5))
def test_divergence_is_never_negative_and_does_not_see_a_constant(rows: list[tuple[float, ...]], more: float) -> None:
    table = np.array(rows)
    result = agreement(TWO, table[:, :2], table[:, 2:])
    assert result is not None and result.divergence is not None and result.divergence >= -1e-12
    moved = agreement(TWO, table[:, :2] + more, table[:, 2:])
    assert moved is not None and moved.divergence == pytest.approx(result.divergence, abs=1e-9)
    same = agreement(TWO, table[:, 2:] + more, table[:, 2:])
    assert same is not None and same.divergence == pytest.approx(0, abs=1e-9)


def test_scores_are_correlated_and_silent_rows_left_out() -> None:
    teacher = np.array([[1.0], [2.0], [np.nan], [3.0]])
    result = agreement(SCORES, np.array([[2.0], [4.0], [0.0], [6.0]]), teacher)
    assert result == (3, None, None, None, pytest.approx(1))
    assert agreement(SCORES, teacher, np.full((4, 1), np.nan)) is None


def test_rankings_agree_where_the_same_candidate_is_on_top() -> None:
    groups = np.array([0, 1, 0, 1, 2, 2])
    teacher = np.array([[2.0], [5.0], [1.0], [6.0], [1.0], [np.nan]])
    student = np.array([[0.3], [0.9], [0.2], [0.1], [1.0], [0.0]])
    result = agreement(RANKED, student, teacher, groups)
    assert result is not None and (result.rows, result.same) == (2, 0.5)


def test_retention_is_a_share_where_there_is_one() -> None:
    student, teacher = {"accuracy": 0.88, "mse": 0.2, "matthews": 0.1}, {"accuracy": 0.92, "mse": 0.1, "matthews": 0.0}
    assert retention(student, teacher) == {"accuracy": pytest.approx(0.88 / 0.92)}


def test_slices_score_their_own_rows() -> None:
    gold = np.array([0, 0, 1, 1, 1, np.nan])
    values = np.array([0, 1, 1, 1, 0, 0], dtype=float)
    short = np.array([True, True, True, False, False, False])
    result = {each.name: each for each in slices(TWO, gold, values, {"short": short, "long": ~short})}
    assert result["short"].rows == 3 and result["short"].scores["accuracy"] == pytest.approx(2 / 3)
    assert result["short"].scores["matthews"] == pytest.approx(0.5)
    low, high = result["short"].interval
    assert low <= 0.5 <= high
    # The long ones have one label only: there is nothing to correlate.
    assert result["long"].scores == {"accuracy": pytest.approx(1 / 2)} and result["long"].rows == 3


def test_slices_without_gold_have_rows_but_no_score() -> None:
    result = slices(TWO, np.array([np.nan, 1.0]), np.zeros(2), {"open": np.array([True, False])})
    assert result == [("open", 1, {}, None)]


def test_slices_of_a_ranking_take_whole_queries() -> None:
    groups = np.array([0, 0, 1, 1, 2, 2])
    gold = np.array([1, 0, 0, 1, 1, 0], dtype=float)
    values = np.array([2, 1, 3, 1, 2, 1], dtype=float)
    some = np.array([False, True, True, True, True, True])
    (result,) = slices(RANKED, gold, values, {"some": some}, groups)
    assert result.rows == 4 and result.scores["precision_at_1"] == pytest.approx(1 / 2)


def test_scores_of_one_value_are_told_by_their_error() -> None:
    (result,) = slices(SCORES, np.ones(3), np.array([1.0, 2.0, 3.0]), {"all": np.ones(3, bool)})
    assert result.scores == {"mse": pytest.approx(5 / 3)}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_quarters_hold_every_row_once_in_order(lengths: list[int]) -> None:
    parts = by_quarter(np.array(lengths, dtype=np.float64), "words")
    assert (np.stack(list(parts.values())).sum(axis=0) == 1).all() and len(parts) <= 4
    tops = [np.array(lengths)[mine].max() for mine in parts.values()]
    assert tops == sorted(tops)
    assert all(name.endswith(" words") for name in parts)


def test_quarters_are_named_by_their_bounds() -> None:
    assert list(by_quarter(np.arange(1.0, 9.0), "words")) == [
        "1 to 2 words",
        "3 to 4 words",
        "5 to 6 words",
        "7 to 8 words",
    ]
    assert list(by_quarter(np.array([0.5, 0.5]))) == ["0.5"]
    assert list(by_quarter(np.array([5.0, 100_000.0, 12_345.0, 9.0]), "characters"))[-1] == "100000 characters"


def test_quarters_that_look_alike_stay_apart() -> None:
    sure = 1 - np.array([4.0, 3.0, 2.0, 1.0]) * 1e-7
    assert len(by_quarter(sure)) == 4


def test_values_come_with_the_commonest_first() -> None:
    parts = by_value(["b", "a", None, "a"])
    assert {name: mine.tolist() for name, mine in parts.items()} == {
        "a": [False, True, False, True],
        "b": [True, False, False, False],
        "none": [False, False, True, False],
    }
    assert next(iter(parts)) == "a"
