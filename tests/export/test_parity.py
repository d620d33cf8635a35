"""An export that says something else is refused, and so are rounded weights that lose too much."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds import MOOD, STARS
from understill.errors import UserError
from understill.export.parity import (
    TOLERANCE,
    DevScore,
    Parity,
    Rounded,
    compare,
    refuse_difference,
    refuse_loss,
    refuse_other_score,
)
from understill.inference.predictor import Predictions
from understill.tasks import Task


def output(task: Task, rows: list[list[float]]) -> Predictions:
    return Predictions(task, np.array(rows, np.float32).reshape(-1, task.outputs))


def test_the_largest_difference_and_the_changed_labels_are_counted() -> None:
    one, other = output(MOOD, [[0, 1], [2, 0], [0.5, 0]]), output(MOOD, [[0, 1.5], [2, 0], [0.25, 0.375]])
    assert compare("mood/dev", one, other) == Parity("mood/dev", 3, 0.5, 1)
    assert compare("stars/dev", output(STARS, [[3]]), output(STARS, [[3.25]])) == Parity("stars/dev", 1, 0.25, 0)
    assert compare("mood/dev", output(MOOD, []), output(MOOD, [])) == Parity("mood/dev", 0, 0.0, 0)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_no_number_is_a_difference(broken: float) -> None:
    result = compare("mood/dev", output(MOOD, [[0, 1]]), output(MOOD, [[0, broken]]))
    with pytest.raises(UserError, match="logits differ from the model's"):
        refuse_difference([result])


@given(st.floats(0, 1, allow_nan=False))
def test_a_difference_is_refused_beyond_the_tolerance_and_only_there(worst: float) -> None:
    result = [Parity("mood/dev", 9, 0.0, 0), Parity("follows/dev", 10, worst, 2)]
    if worst <= TOLERANCE:
        refuse_difference(result)
    else:
        with pytest.raises(UserError, match=r"follows/dev: logits differ by up to .* 2 of 10 labels change") as error:
            refuse_difference(result)
        assert "mood" not in str(error.value)


def test_a_loss_is_in_points_and_an_error_counts_the_other_way() -> None:
    assert Rounded("mood/dev", "accuracy", 0.9, 0.885).loss == pytest.approx(1.5)
    assert Rounded("mood/dev", "accuracy", 0.9, 0.91).loss < 0
    assert Rounded("stars/dev", "mse", 0.5, 0.75, 25.0).loss == pytest.approx(1.0), "hundredths of the squared range"
    with pytest.raises(UserError, match="int8 loses more than 1 points"):
        refuse_loss([Rounded("share/dev", "mse", 0.05, 0.9)], 1.0)


@given(st.integers(1, 2000), st.data())
def test_a_loss_of_just_the_limit_passes_and_a_row_more_does_not(rows: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, rows))
    lost = data.draw(st.integers(0, right))
    limit = 100 * lost / rows
    refuse_loss([Rounded("mood/dev", "accuracy", right / rows, (right - lost) / rows)], limit)
    if lost < right:
        with pytest.raises(UserError, match="int8 loses more than"):
            refuse_loss([Rounded("mood/dev", "accuracy", right / rows, (right - lost - 1) / rows)], limit)


def test_the_limit_as_it_is_typed_is_met_by_the_loss_of_one_row_in_two_hundred() -> None:
    assert 100 * (123 / 200 - 122 / 200) > 0.5, "which arithmetic makes of it"
    refuse_loss([Rounded("mood/dev", "accuracy", 123 / 200, 122 / 200)], 0.5)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_refused_whatever_the_limit(broken: float) -> None:
    with pytest.raises(UserError, match=r"int8 scores are NaN: stars/dev mse 0.5000 → \w+ → write --to onnx"):
        refuse_loss([Rounded("stars/dev", "mse", 0.5, broken)], 1e9)


@pytest.mark.parametrize(("recorded", "fine"), [(0.9, True), (0.85, True), (0.94, True), (0.51, False), (0.99, False)])
def test_another_score_than_the_recorded_one_is_refused_beyond_what_rows_explain(recorded: float, fine: bool) -> None:
    now = DevScore("mood/dev", 300, "accuracy", 0.9, 0.86, 0.93)
    with nullcontext() if fine else pytest.raises(UserError, match=rf"mood/dev: .* 0.9000, .* says {recorded:.4f} for"):
        refuse_other_score(now, recorded)


def test_a_loss_above_the_limit_is_refused_with_what_to_write_instead() -> None:
    result = [Rounded("mood/dev", "accuracy", 0.9, 0.885), Rounded("topic/dev", "accuracy", 0.9, 0.9)]
    refuse_loss(result, 1.5001)
    with pytest.raises(
        UserError, match=r"more than 1 points: mood/dev accuracy 0.9000 → 0.8850 → .*--limit 1.6"
    ) as error:
        refuse_loss(result, 1.0)
    assert "topic" not in str(error.value)
