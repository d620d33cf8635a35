"""Every loss against a closed form, and its gradient against an independent one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from helpers import MOOD, STARS, TASKS, TOPIC
from understill.data.batch import Batch
from understill.errors import TrainingError
from understill.tasks import Task
from understill.train.objective import Objective

#: Two classes, three classes, a score, and a score without a range: columns 0-1, 2-4, 5, 6.
FREE = Task("free", "regression", ("text",), "label")
MIXED = (*TASKS, FREE)
FIRST = (0, 2, 5, 6)
COLUMNS = 7


def rows_of(task: list[int], gold: list[float], weight: list[float] | None = None) -> Batch:
    count = len(task)
    nothing = torch.zeros(count, dtype=torch.long)
    ones = torch.ones(count) if weight is None else torch.tensor(weight)
    return Batch(nothing[:, None], nothing, nothing, torch.tensor(task), torch.tensor(gold), ones, nothing)


def by_hand(logits: Tensor, task: int, gold: float, regression: str) -> Tensor:
    """One row's loss, written out in float64."""
    spec = MIXED[task]
    own = logits[FIRST[task] : FIRST[task] + spec.outputs].double()
    if spec.kind == "classification":
        return torch.log(torch.exp(own - own.max()).sum()) + own.max() - own[int(gold)]
    low, high = spec.range if spec.range and regression != "raw" else (0.0, 1.0)
    output = 1 / (1 + torch.exp(-own[0])) if regression == "sigmoid" else own[0]
    return (output - (gold - low) / (high - low)) ** 2


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Batch]:
    count = draw(st.integers(1, 6))
    task = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    gold = [draw(st.integers(0, MIXED[each].outputs - 1) if each < 2 else st.floats(1, 5, width=32)) for each in task]
    weight = draw(st.lists(st.floats(0.125, 4, width=32), min_size=count, max_size=count))
    values = draw(st.lists(st.floats(-20, 20, width=32), min_size=count * COLUMNS, max_size=count * COLUMNS))
    return torch.tensor(values).view(count, COLUMNS), rows_of(task, [float(each) for each in gold], weight)


@given(problems(), st.sampled_from(["sigmoid", "unit", "raw"]), st.sampled_from([1.0, 3.0]))
def test_loss_and_gradient_are_those_of_the_formula(
    problem: tuple[Tensor, Batch], regression: str, denominator: float
) -> None:
    logits, batch = problem
    ours = logits.clone().requires_grad_()
    theirs = logits.double().requires_grad_()
    rows = [by_hand(theirs[row], int(batch.task[row]), float(batch.gold[row]), regression) for row in range(len(batch))]
    expected = (torch.stack(rows) * batch.weight.double()).sum() / denominator
    expected.backward()
    loss = Objective(MIXED, regression)(ours, batch, denominator)
    loss.total.backward()
    torch.testing.assert_close(loss.total.double(), expected, rtol=1e-5, atol=1e-5)
    assert ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


@given(problems(), st.sampled_from(["sigmoid", "unit", "raw"]))
def test_other_tasks_columns_get_no_gradient_at_all(problem: tuple[Tensor, Batch], regression: str) -> None:
    logits, batch = problem
    logits = logits.clone().requires_grad_()
    Objective(MIXED, regression)(logits, batch).total.backward()
    assert logits.grad is not None
    for row, task in enumerate(batch.task.tolist()):
        foreign = [column for column in range(COLUMNS) if not 0 <= column - FIRST[task] < MIXED[task].outputs]
        assert torch.equal(logits.grad[row, foreign], torch.zeros(len(foreign)))


@given(problems())
def test_what_other_heads_say_does_not_matter(problem: tuple[Tensor, Batch]) -> None:
    logits, batch = problem
    objective = Objective(MIXED, "sigmoid")
    owner = objective.owner[None] == batch.task[:, None]
    assert torch.equal(
        objective.per_row(logits, batch), objective.per_row(torch.where(owner, logits, logits * -7 + 3), batch)
    )


@given(problems())
def test_a_mixed_batch_is_the_sum_of_its_tasks(problem: tuple[Tensor, Batch]) -> None:
    logits, batch = problem
    objective = Objective(MIXED, "sigmoid")
    loss = objective(logits, batch, 5.0)
    alone = []
    for task in range(4):
        mine = batch.task == task
        only = Batch(*(getattr(batch, name)[mine] for name in Batch.__dataclass_fields__))
        alone.append(objective(logits[mine], only, 5.0).total)
        torch.testing.assert_close(loss.parts[task], 5.0 * alone[-1], rtol=1e-5, atol=1e-6)
        assert loss.counts[task] == mine.sum()
    torch.testing.assert_close(loss.total, torch.stack(alone).sum(), rtol=1e-5, atol=1e-5)


def test_classification_is_torchs_cross_entropy_on_the_tasks_own_slice() -> None:
    torch.manual_seed(0)
    logits = torch.randn(12, COLUMNS) * 4
    task = [0] * 5 + [1] * 7
    gold = [0, 1, 1, 0, 1, 0, 1, 2, 2, 1, 0, 2]
    loss = Objective(MIXED, "sigmoid")(logits, rows_of(task, [float(each) for each in gold]))
    labels = torch.tensor(gold)
    torch.testing.assert_close(loss.parts[0], functional.cross_entropy(logits[:5, :2], labels[:5], reduction="sum"))
    torch.testing.assert_close(loss.parts[1], functional.cross_entropy(logits[5:, 2:5], labels[5:], reduction="sum"))
    assert not loss.parts.requires_grad


@pytest.mark.parametrize(
    ("regression", "logit", "gold", "expected"),
    [
        ("sigmoid", 0.0, 3.0, 0.0),  # the middle of 1 to 5 is 0.5, and so is sigmoid(0)
        ("sigmoid", 0.0, 5.0, 0.25),
        ("unit", 0.75, 2.0, 0.25),  # 2 is a quarter of the way
        ("raw", 0.75, 2.0, 1.5625),
    ],
)
def test_regression_by_hand(regression: str, logit: float, gold: float, expected: float) -> None:
    logits = torch.zeros(1, COLUMNS)
    logits[0, 5] = logit
    assert float(Objective(MIXED, regression)(logits, rows_of([2], [gold])).total) == pytest.approx(expected, abs=1e-7)


def test_without_a_range_a_score_is_taken_as_it_is() -> None:
    logits = torch.zeros(1, COLUMNS)
    logits[0, 6] = 2.0
    assert float(Objective(MIXED, "unit")(logits, rows_of([3], [5.0])).total) == 9.0


def test_mean_is_the_sum_over_the_rows() -> None:
    logits = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(1))
    batch = rows_of([0, 1, 2, 1], [1.0, 2.0, 4.0, 0.0])
    objective = Objective(MIXED, "sigmoid")
    torch.testing.assert_close(objective(logits, batch, 4.0).total * 4, objective(logits, batch).total)


def test_a_rows_weight_multiplies_its_loss() -> None:
    logits = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(2))
    objective = Objective(MIXED, "sigmoid")
    plain = objective(logits, rows_of([0, 1], [1.0, 2.0]))
    weighted = objective(logits, rows_of([0, 1], [1.0, 2.0], [0.5, 3.0]))
    torch.testing.assert_close(weighted.parts[:2], plain.parts[:2] * torch.tensor([0.5, 3.0]))
    torch.testing.assert_close(weighted.counts, plain.counts)


def test_half_precision_logits_are_read_in_fp32() -> None:
    logits = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(3)).bfloat16()
    batch = rows_of([0, 1], [1.0, 2.0])
    objective = Objective(MIXED, "sigmoid")
    loss = objective(logits, batch)
    assert loss.total.dtype == torch.float32
    assert torch.equal(loss.total, objective(logits.float(), batch).total)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_extreme_logits_stay_finite(size: float) -> None:
    logits = (torch.tensor([[1.0, -1, 1, -1, 0, 1, -1]]) * size).repeat(4, 1).requires_grad_()
    loss = Objective(MIXED, "sigmoid")(logits, rows_of([0, 1, 2, 2], [1.0, 1.0, 1.0, 5.0]))
    loss.total.backward()
    assert loss.total.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(2, COLUMNS - 1), (1, COLUMNS), (2,), (2, COLUMNS, 1)])
def test_check_refuses_logits_that_would_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(TrainingError, match="2 rows and 7 outputs"):
        Objective(MIXED, "sigmoid").check(torch.zeros(shape), rows_of([0, 2], [1.0, 2.0]))


@pytest.mark.parametrize(
    ("task", "gold", "message"),
    [
        (0, np.nan, "no gold label"),
        (2, np.nan, "no gold label"),
        (0, 2.0, "task mood: gold 2.0 is not one of its classes"),
        (1, 3.0, "task topic: gold 3.0"),
        (1, -1.0, "task topic: gold -1.0"),
        (1, 0.5, "task topic: gold 0.5"),
    ],
)
def test_check_refuses_gold_that_no_output_stands_for(task: int, gold: float, message: str) -> None:
    batch = rows_of([0, task, 2], [1.0, gold, 3.0])
    with pytest.raises(TrainingError, match=message):
        Objective(MIXED, "sigmoid").check(torch.zeros(3, COLUMNS), batch)


def test_check_takes_what_is_right() -> None:
    Objective(MIXED, "sigmoid").check(torch.zeros(4, COLUMNS), rows_of([0, 1, 2, 3], [1.0, 2.0, -7.5, 9.25]))


@pytest.mark.parametrize("changed", [replace(MOOD, name="other"), TOPIC])
def test_one_task_alone_has_its_own_columns(changed: Task) -> None:
    tasks: tuple[Any, ...] = (changed, STARS)
    logits = torch.randn(2, changed.outputs + 1, generator=torch.Generator().manual_seed(4))
    loss = Objective(tasks, "unit")(logits, rows_of([0, 1], [1.0, 5.0]))
    torch.testing.assert_close(loss.parts[0], -logits[0, :-1].log_softmax(0)[1])
    torch.testing.assert_close(loss.parts[1], (logits[1, -1] - 1) ** 2)
