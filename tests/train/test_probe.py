"""Linear probes are the minimum they claim to be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from understill.tasks import Task
from understill.train.probe import fit_probe

SCORES = Task("similar", "regression", ("a", "b"), "label", range=(0.0, 5.0))
THREE = Task("queue", "classification", ("text",), "label", ("a", "b", "c"))
TWO = Task("mood", "classification", ("text",), "label", ("no", "yes"))
RANKED = Task("answer", "ranking", ("q", "a"), "label", ("wrong", "right"), group="group")


def vectors(seed: int, rows: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


@given(st.integers(0, 10**6), st.integers(5, 40), st.sampled_from([0.01, 0.3, 1.0]))
def test_a_probe_of_scores_is_ridge_in_closed_form(seed: int, rows: int, decay: float) -> None:
    x = vectors(seed, rows)
    y = np.random.default_rng(seed + 1).normal(size=rows).astype(np.float32)
    probe = fit_probe(x, y, SCORES, decay)
    centred = (x - x.mean(0)).astype(np.float64)
    weight = np.linalg.solve(centred.T @ centred / rows + decay * np.eye(4), centred.T @ (y - y.mean()) / rows)
    np.testing.assert_allclose(probe.weight[0], weight, atol=1e-3)
    np.testing.assert_allclose(probe.bias[0], y.mean() - x.mean(0) @ weight, atol=1e-3)


@given(st.integers(0, 10**6), st.sampled_from([0.03, 0.3, 1.0]))
def test_the_gradient_of_a_probe_of_classes_is_zero(seed: int, decay: float) -> None:
    x, gold = vectors(seed, 60), np.arange(60) % 3
    probe = fit_probe(x, gold.astype(np.float32), THREE, decay)
    logits = probe(x).astype(np.float64)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    gradient = (shares - np.eye(3)[gold]).T @ x / 60 + decay * probe.weight
    assert np.abs(gradient).max() < 5e-3


def test_two_classes_share_one_line_and_what_can_be_told_apart_is() -> None:
    x = vectors(0, 80)
    x[:, 0] += np.sign(x[:, 0])  # a gap between the two
    gold = (x[:, 0] > 0).astype(np.float32)
    probe = fit_probe(x, gold, TWO, 1e-3)
    np.testing.assert_array_equal(probe.weight[0], -probe.weight[1])
    assert ((probe(x).argmax(1) == gold).mean()) == 1.0


def test_a_class_without_rows_is_never_answered() -> None:
    x, gold = vectors(1, 30), np.zeros(30, np.float32)
    gold[15:] = 2
    assert set(fit_probe(x, gold, THREE, 0.1)(x).argmax(1)) <= {0, 2}
    assert set(fit_probe(x, np.ones(30, np.float32), THREE, 0.1)(x).argmax(1)) == {1}


def test_a_candidate_has_one_score_that_rises_with_being_right() -> None:
    x = vectors(2, 100)
    gold = (x[:, 1] > 0.2).astype(np.float32)
    probe = fit_probe(x, gold, RANKED, 0.01)
    scores = probe(x)
    assert scores.shape == (100, 1)
    assert scores[gold == 1].min() > scores[gold == 0].mean()
