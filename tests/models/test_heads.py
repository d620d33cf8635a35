"""Heads: one product for all tasks, dropout by task, and scores on the task's own scale."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from helpers import MOOD, STARS, TASKS
from understill.models.heads import Heads, to_scores
from understill.models.shape import HEAD_SHAPES, HeadShape

SHAPES = [HEAD_SHAPES[kind] for kind in ("bert", "roberta", "electra", "distilbert")]
WIDTH = 16


def heads(shape: HeadShape, rates: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Heads:
    torch.manual_seed(0)
    made = Heads(WIDTH, TASKS, shape, rates, 0.5)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)  # biases too
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_all_heads_together_equal_each_alone(shape: HeadShape) -> None:
    made, vectors = heads(shape).eval(), torch.randn(5, WIDTH)
    activation = {"tanh": torch.tanh, "gelu": functional.gelu, "relu": torch.relu}[shape.activation]
    alone = []
    for head in made.tasks:
        features = vectors if head.dense is None else activation(head.dense(vectors))
        alone.append(features @ head.out.weight.T + head.out.bias)
    together = made(vectors, torch.tensor([0, 1, 2, 1, 0]))
    assert together.shape == (5, 6)
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_zero_rate_leaves_everything_as_it_is(shape: HeadShape) -> None:
    made, vectors, task = heads(shape), torch.randn(6, WIDTH), torch.tensor([0, 1, 2] * 2)
    assert torch.equal(made.train()(vectors, task), made.eval()(vectors, task))


@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_no_dropout_in_evaluation(shape: HeadShape) -> None:
    made, vectors, task = heads(shape, (0.5, 0.5, 0.5)), torch.randn(6, WIDTH), torch.tensor([0, 1, 2] * 2)
    plain = heads(shape).eval()(vectors, task)
    assert torch.equal(made.eval()(vectors, task), plain)
    assert not torch.allclose(made.train()(vectors, task), plain)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_each_row_is_dropped_at_the_rate_of_its_task(kind: torch.dtype) -> None:
    rates = (0.05, 0.3, 0.0)
    made = heads(HEAD_SHAPES["bert"], rates).train()
    count = 600
    task = torch.arange(3).repeat_interleave(count)
    torch.manual_seed(1)
    dropped = made._dropout(torch.ones(3 * count, 256, dtype=kind), made.rates[task])
    for index, rate in enumerate(rates):
        mine = dropped[task == index]
        share = float((mine == 0).float().mean())
        # Four standard deviations of a share of so many draws.
        assert abs(share - rate) <= 4 * (rate * (1 - rate) / mine.numel()) ** 0.5
        torch.testing.assert_close(mine[mine != 0], torch.full_like(mine[mine != 0], 1 / (1 - rate)))


def test_dropout_stands_before_the_dense_layer_only_where_the_architecture_has_it() -> None:
    vectors, task = torch.ones(4000, WIDTH), torch.zeros(4000, dtype=torch.long)
    for kind, before in (("roberta", True), ("distilbert", False)):
        made = heads(HEAD_SHAPES[kind], (0.5, 0.5, 0.5)).train()
        seen: list[torch.Tensor] = []
        made.tasks[0].dense.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        made(vectors, task)
        assert bool((seen[0] == 0).any()) == before


@given(
    st.floats(-30, 30, width=32),
    st.floats(-100, 100, width=32),
    st.floats(0.5, 100, width=32),
    st.sampled_from(["sigmoid", "unit", "raw"]),
)
def test_scores_are_on_the_tasks_own_scale(output: float, low: float, span: float, regression: str) -> None:
    task = replace(STARS, range=(low, low + span))
    score = float(to_scores(torch.tensor(output, dtype=torch.float64), task, regression))
    if regression == "sigmoid":
        assert score == pytest.approx(low + span / (1 + math.exp(-output)), rel=1e-9, abs=1e-9)
        assert low <= score <= low + span
    else:
        assert score == pytest.approx(output if regression == "raw" else low + output * span, rel=1e-9, abs=1e-9)


def test_without_a_range_scores_are_the_outputs() -> None:
    task = replace(STARS, range=None)
    assert float(to_scores(torch.tensor(2.5), task, "unit")) == 2.5
    assert float(to_scores(torch.tensor(0.0), task, "sigmoid")) == 0.5


def test_fresh_heads_are_small_and_unbiased() -> None:
    torch.manual_seed(0)
    made = Heads(400, (MOOD, STARS), HEAD_SHAPES["roberta"], (0.0, 0.0), 0.02)
    for head in made.tasks:
        assert float(head.dense.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert not head.dense.bias.any() and not head.out.bias.any()
