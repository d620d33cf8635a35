"""Rows are chosen by a rule, never twice, and the same ones again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.teachers.llm.choose import Rule, choose, entropy, k_centres, random_order

IDS = [f"{number:024x}" for number in range(40)]
LOGITS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32)


@pytest.mark.parametrize("rule", ["random", "uncertainty", "diverse"])
@given(count=st.integers(0, 60), taken=st.sets(st.integers(0, 39)), seed=st.integers(0, 5))
def test_no_row_is_chosen_twice_and_no_more_than_there_are(rule: Rule, count: int, taken: set[int], seed: int) -> None:
    chosen = [IDS[place] for place in sorted(taken)]
    picked = choose(rule, IDS, count, chosen, logits=LOGITS, vectors=VECTORS, seed=seed).tolist()
    assert len(picked) == len(set(picked)) == min(count, 40 - len(taken))
    assert not set(picked) & taken
    assert picked == choose(rule, IDS, count, chosen, logits=LOGITS, vectors=VECTORS, seed=seed).tolist()


@given(st.permutations(range(40)), st.integers(0, 9))
def test_a_random_choice_depends_on_ids_and_not_on_their_order(order: list[int], seed: int) -> None:
    here = [IDS[place] for place in random_order(IDS, seed)]
    shuffled = [IDS[place] for place in order]
    assert [shuffled[place] for place in random_order(shuffled, seed)] == here


def test_a_larger_random_choice_goes_on_from_a_smaller_one() -> None:
    assert choose("random", IDS, 30).tolist()[:10] == choose("random", IDS, 10).tolist()


def test_uncertainty_takes_the_rows_with_the_highest_entropy_first() -> None:
    picked = choose("uncertainty", IDS, 5, logits=LOGITS)
    assert picked.tolist() == np.argsort(-entropy(LOGITS))[:5].tolist()
    assert choose("uncertainty", IDS, 5).tolist() == choose("random", IDS, 5).tolist(), "the first round knows nothing"


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6))
def test_entropy_lies_between_certainty_and_an_even_guess(row: list[float]) -> None:
    (value,) = entropy(np.array([row]))
    assert -1e-9 <= value <= np.log(len(row)) + 1e-9
    assert entropy(np.zeros((1, len(row))))[0] == pytest.approx(np.log(len(row)))


def test_each_centre_is_the_furthest_row_from_those_before() -> None:
    points = np.array([[0.0], [1.0], [10.0], [4.0]])
    assert k_centres(points, 4, np.zeros(4, bool)).tolist() == [0, 2, 3, 1]
    assert k_centres(points, 2, np.array([False, False, True, False])).tolist() == [0, 3]


def test_clusters_are_covered_before_any_is_looked_at_twice() -> None:
    centres = np.repeat(np.eye(4) * 100, 10, axis=0) + VECTORS[:, :4]
    picked = choose("diverse", IDS, 4, vectors=centres)
    assert sorted(place // 10 for place in picked.tolist()) == [0, 1, 2, 3]
