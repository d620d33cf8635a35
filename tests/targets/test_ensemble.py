"""Several teachers become one target by the rule that was asked for, with the temperature inside the mean."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from understill.errors import UserError
from understill.targets import ensemble
from understill.targets.ensemble import FLOOR, Rule, best, join, join_column, shares

RULES: tuple[Rule, ...] = get_args(Rule)
SIZES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(2, 4))


def logits_of(largest: float, sizes: Any = SIZES) -> st.SearchStrategy[NDArray[np.float32]]:
    return arrays(np.float32, sizes, elements=st.floats(-largest, largest, width=32))


def some_weights(count: int) -> NDArray[np.float64]:
    return np.arange(1, count + 1) / np.arange(1, count + 1).sum()


def joined(logits: Any, weights: Any = None, **settings: Any) -> NDArray[np.float32]:
    logits = np.asarray(logits, np.float32)
    weights = np.full(len(logits), 1 / len(logits)) if weights is None else np.asarray(weights)
    known: dict[str, Any] = {"combine": "mean_probabilities", "form": "log_probabilities", "temperature": 1.0}
    return join(logits, settings.pop("scored", False), weights=weights, **{**known, **settings})


def test_the_mean_of_probabilities_is_not_the_softmax_of_the_mean_logits() -> None:
    # One teacher is sure, the other has no idea: odds of 99 to 1 and of 1 to 1.
    logits = np.log([[[0.99, 0.01]], [[0.5, 0.5]]])
    assert np.exp(joined(logits)) == pytest.approx(np.array([[0.745, 0.255]]), rel=1e-5)
    odds = 99**0.5
    expected = np.array([[odds, 1]]) / (odds + 1)
    for rule in ("geometric_mean", "mean_logits"):
        assert np.exp(joined(logits, combine=rule)) == pytest.approx(expected, rel=1e-5)


def test_the_temperature_is_applied_before_the_mean() -> None:
    logits = np.log([[[0.9, 0.1]], [[0.5, 0.5]]])
    # At temperature 2, odds of 9 to 1 become 3 to 1; (3/4 + 1/2) / 2 = 5/8.
    assert np.exp(joined(logits, temperature=2.0)) == pytest.approx(np.array([[0.625, 0.375]]), rel=1e-5)
    after = softmax(joined(logits) / 2.0, axis=1)
    assert abs(after[0, 0] - 0.625) > 0.01


@given(logits_of(30.0), st.floats(0.2, 20.0))
def test_the_geometric_mean_is_the_softmax_of_the_mean_logits(logits: NDArray[np.float32], temperature: float) -> None:
    weights = some_weights(len(logits))
    expected = softmax(np.tensordot(weights, logits.astype(np.float64), 1) / temperature, axis=1)
    logs = np.log(softmax(logits.astype(np.float64) / temperature, axis=2) + 1e-300)
    product = np.exp(np.tensordot(weights, logs, 1))
    for rule in ("geometric_mean", "mean_logits"):
        result = np.exp(joined(logits, weights, combine=rule, temperature=temperature))
        assert result == pytest.approx(expected, rel=1e-4, abs=1e-30)
        assert result == pytest.approx(product / product.sum(axis=1, keepdims=True), rel=1e-4, abs=1e-30)


@given(logits_of(30.0), st.floats(0.2, 20.0))
def test_the_mean_of_probabilities_is_what_it_says(logits: NDArray[np.float32], temperature: float) -> None:
    weights = some_weights(len(logits))
    expected = np.tensordot(weights, softmax(logits.astype(np.float64) / temperature, axis=2), 1)
    assert np.exp(joined(logits, weights, temperature=temperature)) == pytest.approx(expected, rel=1e-4, abs=1e-30)


@given(logits_of(50.0, st.tuples(st.just(1), st.integers(1, 5), st.integers(2, 4))), st.sampled_from(RULES))
def test_one_teacher_is_passed_through(logits: NDArray[np.float32], rule: Rule) -> None:
    assert np.array_equal(joined(logits, combine=rule, form="logits", temperature=3.0), logits[0])
    expected = log_softmax(logits[0].astype(np.float64) / 3.0, axis=1)
    assert joined(logits, combine=rule, temperature=3.0) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert np.array_equal(joined(logits[:, :, :1], scored=True, temperature=3.0), logits[0, :, :1])


def test_logits_to_match_are_joined_by_each_rule_at_no_temperature() -> None:
    logits = np.array([[[4.0, 0.0]], [[0.0, 2.0]]])
    logs = log_softmax(logits, axis=2)
    expected = {
        "mean_logits": [[2.0, 1.0]],
        "geometric_mean": logs.mean(axis=0),
        "mean_probabilities": np.log(softmax(logits, axis=2).mean(axis=0)),
    }
    for rule, values in expected.items():
        for temperature in (1.0, 5.0):
            result = joined(logits, combine=rule, form="logits", temperature=temperature)
            assert result == pytest.approx(np.asarray(values), rel=1e-6), rule
    assert len({joined(logits, combine=rule, form="logits").tobytes() for rule in RULES}) == 3


def test_scores_are_averaged_as_they_are() -> None:
    scores = np.array([[[1.0], [4.0]], [[3.0], [4.5]]])
    for rule in RULES:
        result = joined(scores, [0.25, 0.75], scored=True, combine=rule, temperature=4.0)
        assert result.tolist() == [[2.5], [4.375]]


@pytest.mark.parametrize("form", ["log_probabilities", "logits"])
@pytest.mark.parametrize("rule", RULES)
def test_weights_count_and_a_weight_of_0_leaves_a_teacher_out(rule: Rule, form: str) -> None:
    logits = np.random.default_rng(0).normal(0, 3, (3, 6, 4)).astype(np.float32)
    settings: Any = {"combine": rule, "form": form, "temperature": 2.0}
    one = joined(logits, [1.0, 0.0, 0.0], **settings)
    assert np.array_equal(one, joined(logits[:1], **settings))
    assert np.array_equal(joined(logits, [0.4, 0.0, 0.6], **settings), joined(logits[[0, 2]], [0.4, 0.6], **settings))
    twice = joined(logits[[0, 0, 1]], **settings)
    assert twice == pytest.approx(joined(logits[:2], [2 / 3, 1 / 3], **settings), rel=1e-5, abs=1e-6)
    assert not np.allclose(twice, joined(logits[:2], **settings))


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("form", ["log_probabilities", "logits"])
@pytest.mark.parametrize("rule", RULES)
def test_silent_teachers_leave_the_others_their_say(rule: Rule, form: str, scored: bool) -> None:
    logits = np.random.default_rng(1).normal(0, 3, (3, 4, 1 if scored else 3)).astype(np.float32)
    logits[0, 1] = np.nan
    logits[:, 2] = np.nan
    settings: Any = {"combine": rule, "form": form, "scored": scored}
    result = joined(logits, [0.5, 0.3, 0.2], **settings)
    full = joined(logits[:, [0, 3]], [0.5, 0.3, 0.2], **settings)
    assert np.array_equal(result[[0, 3]], full)
    assert result[1:2] == pytest.approx(joined(logits[1:, 1:2], [0.6, 0.4], **settings), rel=1e-5)
    assert np.isnan(result[2]).all()
    assert np.isfinite(result[[0, 1, 3]]).all()


def test_a_row_that_only_a_teacher_of_weight_0_knows_has_no_target() -> None:
    logits = np.array([[[np.nan, np.nan], [1.0, 2.0]], [[1.0, 2.0], [3.0, 0.0]]])
    result = joined(logits, [1.0, 0.0])
    assert np.isnan(result[0]).all()
    assert np.isfinite(result[1]).all()


@given(logits_of(float(np.finfo(np.float32).max)), st.sampled_from(RULES), st.sampled_from([0.05, 1.0, 100.0]))
def test_logits_of_any_size_give_numbers(logits: NDArray[np.float32], rule: Rule, temperature: float) -> None:
    weights = some_weights(len(logits))
    target = joined(logits, weights, combine=rule, temperature=temperature)
    assert np.isfinite(target).all()
    assert ((target >= FLOOR) & (target <= 0)).all()
    assert np.exp(target.astype(np.float64)).sum(axis=1) == pytest.approx(1.0, rel=1e-5)
    assert np.isfinite(joined(logits, weights, combine=rule, form="logits")).all()


def test_rounding_lifts_no_probability_above_1() -> None:
    for count in range(1, 40):
        assert (joined([[[900.0, 0.0]]] * count, some_weights(count)) <= 0).all()


def test_log_probabilities_end_at_the_floor_and_not_before() -> None:
    assert joined([[[0.0, -5000.0, -1e38]]]).tolist() == [[0.0, -5000.0, FLOOR]]
    assert np.exp(np.float64(FLOOR)) == 0.0


@given(logits_of(60.0), st.sampled_from(RULES))
def test_a_float16_table_moves_probabilities_by_rounding_alone(logits: NDArray[np.float32], rule: Rule) -> None:
    weights = some_weights(len(logits))
    stored = logits.astype(np.float16).astype(np.float32)
    moved = np.exp(joined(stored, weights, combine=rule)) - np.exp(joined(logits, weights, combine=rule))
    # A logit moves by at most e = |z| · 2⁻¹¹, and a probability then by at most half of the spread 2e.
    assert np.abs(moved).max() <= np.abs(logits).max() * 2.0**-11 + 1e-6


def test_many_rows_are_joined_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.random.default_rng(2).normal(size=(2, 50, 3)).astype(np.float32)
    logits[:, 10:20] = np.nan
    whole = joined(logits)
    monkeypatch.setattr(ensemble, "BLOCK", 7)
    assert np.array_equal(joined(logits), whole, equal_nan=True)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.25, 0.25], [[0.5], [0.5]]])
def test_weights_that_do_not_fit_the_teachers_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match="weights of shape"):
        joined(np.zeros((2, 3, 2)), weights)


def test_shares_follow_what_was_given() -> None:
    names = ("a", "b", "c")
    assert shares(names, "equal", [None, None, None]) == pytest.approx([1 / 3] * 3)
    assert shares(names, "dev", [0.9, 0.6, 0.0]) == pytest.approx([0.6, 0.4, 0.0])
    assert shares(names, {"c": 1, "a": 3, "b": 0}, [None] * 3) == pytest.approx([0.75, 0.0, 0.25])


@given(st.lists(st.floats(0, 1e308), min_size=1, max_size=5).filter(any))
def test_shares_sum_to_1_whatever_the_numbers(numbers: list[float]) -> None:
    names = [f"teacher {index}" for index in range(len(numbers))]
    for given_ in (dict(zip(names, numbers, strict=True)), "dev"):
        weights = shares(names, given_, numbers)  # type: ignore[arg-type]
        assert weights.sum() == pytest.approx(1.0)
        assert weights.argmax() == numbers.index(max(numbers))


@pytest.mark.parametrize(
    ("given_", "dev", "words"),
    [
        ({"a": 1, "b": 1, "bb": 1}, [1, 1], 'names "bb".*did you mean "b"'),
        ({"a": 1}, [1, 1], "no number for b"),
        ({"a": 1, "b": -0.5}, [1, 1], "b has the weight -0.5"),
        ({"a": 1, "b": float("nan")}, [1, 1], "b has the weight nan"),
        ({"a": 1, "b": float("inf")}, [1, 1], "b has the weight inf"),
        ({"a": 0, "b": 0.0}, [1, 1], "a and b are all 0"),
        ("dev", [0.0, 0.0], "a and b are all 0"),
        ("dev", [0.5, None], "dev score of teacher b"),
        ("dev", [float("nan"), 0.5], "dev score of teacher a"),
        ("dev", [0.5, -0.1], "teacher b has the dev score -0.1"),
    ],
)
def test_weights_that_make_no_sense_are_refused(given_: Any, dev: list[float | None], words: str) -> None:
    with pytest.raises(UserError, match=words):
        shares(("a", "b"), given_, dev)


def test_the_best_teachers_are_those_with_the_highest_mean() -> None:
    scores = {
        "one": {"mnli": 0.80, "rte": 0.60, "cola": 0.9},
        "two": {"mnli": 0.70, "rte": 0.75},
        "four": {"mnli": 0.75, "rte": 0.70},
        "three": {"mnli": 0.60, "rte": 0.60, "cola": 0.99},
    }
    assert best(scores, 3, ["mnli", "rte"]) == ("four", "two", "one")  # a tie goes by name
    assert best(scores, 1, ["mnli"]) == ("one",)
    assert best(scores, 4, ["rte"])[0] == "two"
    assert best(dict(reversed(scores.items())), 3, ["mnli", "rte"]) == ("four", "two", "one")


def test_more_teachers_than_there_are_or_without_a_score_cannot_be_the_best() -> None:
    scores = {"one": {"mnli": 0.8, "rte": 0.6}, "two": {"mnli": 0.7}}
    with pytest.raises(UserError, match=r"best\.count is 3, but there are 2 teachers"):
        best(scores, 3, ["mnli"])
    with pytest.raises(UserError, match="teacher two has no dev score on rte"):
        best(scores, 1, ["mnli", "rte"])
    with pytest.raises(UserError, match="teacher two has no dev score on mnli"):
        best({"one": {"mnli": 0.8}, "two": {"mnli": float("nan")}}, 1, ["mnli"])


def test_a_further_column_is_the_weighted_mean_of_those_who_speak() -> None:
    values = np.array([[1.0, 2.0, np.nan, np.nan], [5.0, np.nan, 3.0, np.nan]])
    assert np.array_equal(
        join_column(values, np.array([0.75, 0.25])), np.array([2.0, 2.0, 3.0, np.nan], np.float32), equal_nan=True
    )
    shaped = join_column(np.stack([np.zeros((2, 2, 3)), np.ones((2, 2, 3))]), np.array([0.5, 0.5]))
    assert shaped.dtype == np.float32 and np.array_equal(shaped, np.full((2, 2, 3), 0.5))
