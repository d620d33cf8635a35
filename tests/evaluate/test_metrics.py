"""Metrics agree with scikit-learn, scipy and pencil, and say something sensible where those have no answer."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference

from understill.evaluate.metrics import RANKED as RANKED_METRICS
from understill.evaluate.metrics import Array, majority, primary, score
from understill.tasks import CLASSIFICATION, GLUE, KINDS, METRICS, RANKING, REGRESSION, Task
from understill.tasks.metric import ERRORS

OWN = (CLASSIFICATION, REGRESSION, RANKING)

TWO = Task("two", "classification", ("text",), "label", ("no", "yes"), metrics=KINDS["classification"].metrics)
THREE = replace(TWO, name="three", labels=("a", "b", "c"))
SCORES = Task("scores", "regression", ("a", "b"), "label", range=(0.0, 5.0), metrics=KINDS["regression"].metrics)

#: Hand-worked: 3 true and 1 false positive, 1 false and 3 true negatives.
GOLD = np.array([1, 1, 1, 1, 0, 0, 0, 0], dtype=float)
GUESS = np.array([1, 1, 1, 0, 1, 0, 0, 0], dtype=float)


def array(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def test_every_metric_a_task_may_name_can_be_measured() -> None:
    ours = {name for name in METRICS if METRICS.is_own(name)}
    assert {name for kind in OWN for name in kind.metrics} == ours
    assert all(set(kind.metrics) == {name for name in ours if kind.name in METRICS[name].kinds} for kind in OWN)
    assert set(KINDS["ranking"].metrics) == set(RANKED_METRICS)
    assert {name for name in ours if METRICS[name].error} == ERRORS


def test_hand_worked_classes() -> None:
    assert score(TWO, GOLD, GUESS) == pytest.approx(
        {"accuracy": 6 / 8, "f1": 3 / 4, "macro_f1": 3 / 4, "matthews": 0.5}
    )
    # One hit, nothing false, one miss: precision 1, recall 1/2.
    result = score(TWO, array(1, 1, 0, 0), array(1, 0, 0, 0))
    matthews = (1 * 2 - 0 * 1) / math.sqrt(1 * 2 * 2 * 3)
    assert result == pytest.approx(
        {"accuracy": 3 / 4, "f1": 2 / 3, "macro_f1": (2 / 3 + 4 / 5) / 2, "matthews": matthews}
    )


def test_hand_worked_scores() -> None:
    result = score(SCORES, array(1, 2, 3, 4), array(1, 3, 2, 4))
    # 1 − 6·(1 + 1) / (4·15) for ranks; the same numbers are their own ranks, so Pearson is equal.
    assert result == pytest.approx({"pearson_spearman": 0.8, "pearson": 0.8, "spearman": 0.8, "mse": 0.5})
    bent = score(SCORES, array(0, 1, 2), array(0, 1, 4))
    assert bent["spearman"] == pytest.approx(1)
    assert bent["pearson"] == pytest.approx(4 / math.sqrt(2 * 26 / 3))
    assert bent["pearson_spearman"] == pytest.approx((bent["pearson"] + 1) / 2)


def test_the_last_label_is_the_positive_one() -> None:
    gold, guess = array(1, 0, 0, 0), array(1, 1, 0, 0)
    assert score(TWO, gold, guess)["f1"] == pytest.approx(2 / 3)  # of "no" it would be 4/5
    assert GLUE["mrpc"].task.labels[-1] == GLUE["qqp"].task.labels[-1] == "paraphrase"


def test_f1_of_three_classes_is_their_mean() -> None:
    gold, guess = array(0, 0, 1, 1, 2, 2), array(0, 1, 1, 1, 2, 0)
    result = score(THREE, gold, guess)
    assert result["f1"] == result["macro_f1"] == pytest.approx((1 / 2 + 4 / 5 + 2 / 3) / 3)


CLASSES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
NUMBERS = st.integers(-500, 500).map(lambda value: value / 100)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=40)


def columns(rows: list[tuple[float, float]]) -> tuple[Array, Array]:
    gold, guess = np.array(rows, dtype=np.float64).T
    return gold, guess


@given(CLASSES)
def test_classes_are_scored_as_scikit_learn_does(rows: list[tuple[float, float]]) -> None:
    gold, guess = columns(rows)
    result = score(THREE, gold, guess)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single class
        expected = {
            "accuracy": reference.accuracy_score(gold, guess),
            "f1": reference.f1_score(gold, guess, average="macro", zero_division=0),
            "macro_f1": reference.f1_score(gold, guess, average="macro", zero_division=0),
            "matthews": reference.matthews_corrcoef(gold, guess),
        }
    assert result == pytest.approx(expected)
    assert all(0 <= result[name] <= 1 for name in ("accuracy", "f1", "macro_f1"))
    assert -1 - 1e-9 <= result["matthews"] <= 1 + 1e-9


@given(PAIRS)
def test_scores_are_scored_as_scipy_does(rows: list[tuple[float, float]]) -> None:
    gold, guess = columns(rows)
    result = score(SCORES, gold, guess)
    assert result["mse"] == pytest.approx(float(np.mean((gold - guess) ** 2)))
    assert result["mse"] >= 0
    if np.ptp(gold) and np.ptp(guess):
        assert result["pearson"] == pytest.approx(stats.pearsonr(gold, guess).statistic)
        assert result["spearman"] == pytest.approx(stats.spearmanr(gold, guess).statistic)
    else:
        assert result["pearson"] == result["spearman"] == result["pearson_spearman"] == 0
    assert all(-1 - 1e-9 <= result[name] <= 1 + 1e-9 for name in ("pearson", "spearman", "pearson_spearman"))


@given(st.data(), PAIRS)
def test_the_order_of_the_rows_does_not_matter(data: st.DataObject, rows: list[tuple[float, float]]) -> None:
    other = data.draw(st.permutations(rows))
    assert score(SCORES, *columns(other)) == pytest.approx(score(SCORES, *columns(rows)), rel=1e-9, abs=1e-9)
    classes = [(abs(gold) % 2 // 1, abs(guess) % 2 // 1) for gold, guess in rows]
    shuffled = [(abs(gold) % 2 // 1, abs(guess) % 2 // 1) for gold, guess in other]
    assert score(TWO, *columns(shuffled)) == pytest.approx(score(TWO, *columns(classes)), rel=1e-9, abs=1e-9)


@given(PAIRS, st.floats(0.1, 10), st.floats(-5, 5))
def test_correlations_do_not_depend_on_the_scale(rows: list[tuple[float, float]], slope: float, shift: float) -> None:
    gold, guess = columns(rows)
    plain, scaled = score(SCORES, gold, guess), score(SCORES, gold, slope * guess + shift)
    assert scaled["pearson"] == pytest.approx(plain["pearson"], abs=1e-6)
    assert scaled["spearman"] == pytest.approx(plain["spearman"], abs=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_a_model_that_always_says_the_same_gets_no_correlation_and_no_warning(constant: float) -> None:
    guess = np.full(8, constant)
    assert score(TWO, GOLD, guess)["matthews"] == 0
    assert score(TWO, guess, guess) == {"accuracy": 1, "f1": constant, "macro_f1": 1, "matthews": 0}
    assert score(TWO, np.full(8, 1.0), GUESS)["matthews"] == 0  # one class in gold
    result = score(SCORES, GOLD, guess)
    assert (result["pearson"], result["spearman"], result["pearson_spearman"], result["mse"]) == (0, 0, 0, 0.5)
    assert score(SCORES, array(3), array(3)) == {"pearson_spearman": 0, "pearson": 0, "spearman": 0, "mse": 0}


def test_rows_without_gold_are_left_out() -> None:
    gold, guess = array(1, math.nan, 0, math.nan), array(1, 0, 1, 1)
    assert score(TWO, gold, guess)["accuracy"] == 0.5
    assert score(SCORES, gold, guess)["mse"] == 0.5


def test_no_gold_at_all_gives_no_scores() -> None:
    assert score(TWO, array(math.nan, math.nan), array(1, 0)) == {}
    assert score(SCORES, array(), array()) == {}


def test_the_first_metric_decides_and_higher_is_better() -> None:
    assert primary(GLUE["cola"].task, {"accuracy": 0.9, "matthews": 0.3}) == 0.3
    error = replace(SCORES, metrics=("mse", "pearson"))
    good = score(error, array(1, 2, 3), array(1, 2, 3.1))
    bad = score(error, array(1, 2, 3), array(3, 2, 1))
    assert primary(error, good) == -good["mse"] > primary(error, bad) == -bad["mse"]


def test_the_majority_guess_is_the_commonest_class_of_train() -> None:
    train, dev = array(2, 2, 0, math.nan, 1, 2), array(0, 2, 1, 2)
    assert majority(THREE, train, dev)["accuracy"] == 0.5
    assert majority(THREE, train, dev)["matthews"] == 0
    assert majority(TWO, array(0, 0, 1), GOLD) == {
        "accuracy": 0.5,
        "f1": 0,
        "macro_f1": pytest.approx(1 / 3),
        "matthews": 0,
    }


def test_the_majority_guess_of_scores_is_their_mean() -> None:
    result = majority(SCORES, array(1, math.nan, 3), array(1, 4, math.nan))
    assert result == {"pearson_spearman": 0, "pearson": 0, "spearman": 0, "mse": pytest.approx((1 + 4) / 2)}


def test_there_is_no_majority_score_without_gold() -> None:
    assert majority(THREE, array(0, 1), array(math.nan)) == {}


# Rankings -------------------------------------------------------------------------------------------------------------

RANKED = Task("ranked", "ranking", ("a", "b"), "label", ("wrong", "right"), metrics=KINDS["ranking"].metrics)


def ranked(*queries: list[tuple[float, float]]) -> dict[str, float]:
    """Score queries, given as gold and score of each candidate."""
    rows = [row for query in queries for row in query]
    groups = np.repeat(np.arange(len(queries)), [len(query) for query in queries])
    gold, text = (np.array([row[part] for row in rows], np.float64) for part in (0, 1))
    return score(RANKED, gold, text, groups)


def in_order(gold: tuple[float, ...]) -> tuple[float, float, int]:
    """Look at candidates in the order they are ranked in: precision, 1/rank, and rows judged right."""
    rank = 1 + gold.index(1)
    judged = sum((place == 0) == (each == 1) for place, each in enumerate(gold))
    return float(rank == 1), 1 / rank, judged


def test_hand_worked_rankings() -> None:
    first = [(0, 0.1), (1, 0.9), (0, -3.0)]  # right one on top: all three rows judged right
    second = [(1, 0.2), (0, 0.5), (0, 0.4), (1, 0.3)]  # third place; a wrong row and both right ones judged wrong
    assert ranked(first, second) == pytest.approx(
        {"precision_at_1": 1 / 2, "mrr": (1 + 1 / 3) / 2, "accuracy": (3 + 1) / 7}
    )


QUERIES = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5), min_size=1, max_size=4)


@given(QUERIES, st.randoms(use_true_random=False))
def test_rankings_are_those_of_going_down_each_list(golds: list[list[float]], random: Any) -> None:
    scores = [random.sample([0.5 * place for place in range(20)], len(gold)) for gold in golds]
    result = ranked(*(list(zip(*each, strict=True)) for each in zip(golds, scores, strict=True)))
    seen = []
    for gold, text in zip(golds, scores, strict=True):
        if 0.0 in gold and 1.0 in gold:
            order = sorted(range(len(gold)), key=lambda place: -text[place])
            seen.append((*in_order(tuple(gold[place] for place in order)), len(gold)))
    if not seen:
        assert result == {}
        return
    first, reciprocal, judged, rows = (sum(column) for column in zip(*seen, strict=True))
    expected = {"precision_at_1": first / len(seen), "mrr": reciprocal / len(seen), "accuracy": judged / rows}
    assert result == pytest.approx(expected)


@given(QUERIES, st.integers(0, 2**30))
def test_neither_the_order_of_candidates_nor_that_of_queries_matters(golds: list[list[float]], seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(golds)), [len(gold) for gold in golds])
    gold, text = np.concatenate(golds), random.integers(0, 4, len(groups)).astype(np.float64)
    order = random.permutation(len(groups))
    result = score(RANKED, gold, text, groups)
    assert score(RANKED, gold[order], text[order], groups[order]) == pytest.approx(result)
    renamed = random.permutation(len(golds) + 3)[groups]
    assert score(RANKED, gold, 2 * text + 5, renamed) == pytest.approx(result)


@given(QUERIES, st.integers(0, 2**30))
def test_ties_count_as_the_worst_order_of_those_that_tie(golds: list[list[float]], seed: int) -> None:
    golds = [gold for gold in golds if len(set(gold)) == 2]
    random = np.random.default_rng(seed)
    for gold in golds:
        text = random.integers(0, 3, len(gold)).astype(np.float64)
        orders = [
            order
            for order in itertools.permutations(range(len(gold)))
            if all(text[one] >= text[two] for one, two in itertools.pairwise(order))
        ]
        worst = min(in_order(tuple(gold[place] for place in order)) for order in orders)
        result = ranked(list(zip(gold, text.tolist(), strict=True)))
        assert result == pytest.approx({"precision_at_1": worst[0], "mrr": worst[1], "accuracy": worst[2] / len(gold)})


def test_a_constant_score_earns_nothing_and_one_that_is_no_number_neither() -> None:
    for constant in (0.0, math.nan, math.inf, -math.inf):
        result = ranked([(1, constant), (0, constant), (0, constant)], [(0, constant), (1, constant)])
        assert result == pytest.approx({"precision_at_1": 0, "mrr": (1 / 3 + 1 / 2) / 2, "accuracy": 1 / 5})
    assert ranked([(1, 5.0), (0, math.nan)])["precision_at_1"] == 0
    assert ranked([(1, math.nan), (0, -9.0)])["precision_at_1"] == 0


@given(QUERIES)
def test_the_simplest_ranking_is_the_mean_over_all_orders(golds: list[list[float]]) -> None:
    groups = np.repeat(np.arange(len(golds)), [len(gold) for gold in golds])
    result = majority(RANKED, array(), np.concatenate(golds), groups)
    golds = [gold for gold in golds if len(set(gold)) == 2]
    if not golds:
        assert result == {}
        return
    means = [np.mean([in_order(order) for order in itertools.permutations(gold)], axis=0) for gold in golds]
    first, reciprocal, judged = np.sum(means, axis=0)
    rows = sum(len(gold) for gold in golds)
    expected = {"precision_at_1": first / len(golds), "mrr": reciprocal / len(golds), "accuracy": judged / rows}
    assert result == pytest.approx(expected)


def test_the_simplest_ranking_of_a_thousand_candidates_is_found_at_once() -> None:
    gold = np.array([1.0] + [0.0] * 999)
    result = majority(RANKED, array(), gold, np.zeros(1000, np.int64))
    harmonic = sum(1 / rank for rank in range(1, 1001))
    assert result == pytest.approx({"precision_at_1": 1e-3, "mrr": harmonic / 1000, "accuracy": (998 + 2e-3) / 1000})


def test_queries_without_a_choice_or_without_all_their_gold_are_not_scored() -> None:
    good = [(1.0, 2.0), (0.0, 1.0)]
    alone, wrong, right = [(1.0, 0.0)], [(0.0, 1.0), (0.0, 2.0)], [(1.0, 1.0), (1.0, 0.0)]
    unknown = [(math.nan, 3.0), (1.0, 1.0), (0.0, 2.0)]
    assert ranked(alone, wrong, good, right, unknown) == ranked(good)
    assert ranked(alone, wrong, right, unknown) == {}
