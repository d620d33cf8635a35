"""The contrastive objective, against cosines worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from understill.data.batch import Batch
from understill.losses.contrast import Contrast
from understill.tasks import Task

MOOD = Task("mood", "classification", ("text",), "label", ("a", "b"))
QUEUE = Task("queue", "classification", ("text",), "label", ("a", "b"))


def rows_of(task: list[int], gold: list[float]) -> Batch:
    count = len(gold)
    ids, lengths = torch.ones(count, 2, dtype=torch.long), torch.full((count,), 2)
    return Batch(
        ids,
        lengths,
        lengths,
        torch.tensor(task),
        torch.tensor(gold),
        torch.ones(count),
        torch.arange(count),
        torch.arange(count),
    )


@pytest.mark.parametrize("angle", [0.0, 0.5, 1.2, math.pi])
def test_two_rows_of_a_class_want_the_cosine_1_and_of_two_classes_0(angle: float) -> None:
    vectors = torch.tensor([[2.0, 0.0], [3 * math.cos(angle), 3 * math.sin(angle)]])
    objective = Contrast([MOOD])
    alike = objective(vectors, rows_of([0, 0], [1.0, 1.0])).total
    unlike = objective(vectors, rows_of([0, 0], [0.0, 1.0])).total
    assert float(alike) == pytest.approx((math.cos(angle) - 1) ** 2 / 2, abs=1e-5)
    assert float(unlike) == pytest.approx(math.cos(angle) ** 2 / 2, abs=1e-5)


def test_alike_and_unlike_pairs_weigh_the_same_however_many_there_are() -> None:
    # Three rows of one class along x, one of the other at 60 degrees: 6 ordered pairs alike at cosine 1, 6 unlike at ½.
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]])
    loss = Contrast([MOOD])(vectors, rows_of([0] * 4, [0.0, 0.0, 0.0, 1.0]))
    assert float(loss.total) == pytest.approx((0.0 + 0.25) / 2, abs=1e-6)


def test_rows_without_a_label_are_compared_with_none() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.5, math.sqrt(0.75)], [0.0, 1.0]])
    known = Contrast([MOOD])(vectors[:2], rows_of([0] * 2, [0.0, 1.0])).total
    all_rows = Contrast([MOOD])(vectors, rows_of([0] * 4, [0.0, 1.0, math.nan, math.nan])).total
    assert float(all_rows) == pytest.approx(float(known))


def test_rows_of_different_tasks_are_not_compared() -> None:
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    loss = Contrast([MOOD, QUEUE])(vectors, rows_of([0, 1], [0.0, 0.0]))
    loss.total.backward()
    assert float(loss.total) == 0.0
    assert float(vectors.grad.abs().sum()) == 0.0


def test_descending_draws_a_class_together() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(8, 4, requires_grad=True)
    batch, objective = rows_of([0] * 8, [0.0] * 4 + [1.0] * 4), Contrast([MOOD])
    first = float(objective(vectors, batch).total)
    for _ in range(200):
        vectors.grad = None
        objective(vectors, batch).total.backward()
        with torch.no_grad():
            vectors -= 1.0 * vectors.grad
    assert float(objective(vectors, batch).total) < first / 10
