"""Layer-wise rates exactly as written down, weight decay where it belongs, the schedule, and torch's own updates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers import MOOD, STARS, some_model
from understill.models.multitask import new_model
from understill.recipe.schema import EncoderSpec, HeadsSpec, Training
from understill.train.optim import make_optimizer, parameter_groups, rate_factor, set_rates

LAYERED = ("bert", "roberta", "mpnet", "distilbert", "electra")
#: Where the parameters of two layers stand: from the head at 0 to the embeddings at layers + 2.
EXPECTED = {"heads.": 0, ".pooler.": 1, ".layer.1.": 2, ".layer.0.": 3, "embed": 4, "relative_attention_bias": 4}


def rates_of(model: nn.Module, training: Training) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, training)
    return {names[id(parameter)]: group["lr"] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("kind", LAYERED)
def test_rates_fall_with_the_distance_from_the_output(kind: str, tiny_of: Callable[[str], Path]) -> None:
    model = some_model(tiny_of(kind), (MOOD, STARS))
    rates = rates_of(model, Training(lr=0.01, layer_decay=0.9))
    assert rates.keys() == {name for name, _ in model.named_parameters()}
    seen = set()
    for name, rate in rates.items():
        (distance,) = {number for part, number in EXPECTED.items() if part in name}
        seen.add(distance)
        assert rate == pytest.approx(0.01 * 0.9**distance, rel=1e-12), name
    assert seen == ({0, 1, 2, 3, 4} if kind == "bert" else {0, 2, 3, 4})


def test_layers_that_share_their_weights_count_once(tiny_of: Callable[[str], Path]) -> None:
    model = some_model(tiny_of("albert"), (MOOD,))
    assert model.encoder.config.num_hidden_layers == 2
    rates = rates_of(model, Training(lr=0.01, layer_decay=0.5))
    expected = {"heads.": 0, ".pooler.": 1, ".albert_layers.": 2, "embed": 3}
    for name, rate in rates.items():
        (distance,) = {number for part, number in expected.items() if part in name}
        assert rate == 0.01 * 0.5**distance


def test_without_layer_decay_there_is_one_rate(tiny: Path) -> None:
    assert set(rates_of(some_model(tiny), Training(lr=0.02)).values()) == {0.02}


@pytest.mark.parametrize("kind", [*LAYERED, "albert"])
def test_biases_and_norms_are_not_decayed_and_all_else_is(kind: str, tiny_of: Callable[[str], Path]) -> None:
    model = some_model(tiny_of(kind), (MOOD, STARS))
    norms = {
        f"{path}.{name}"
        for path, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for name, _ in module.named_parameters()
    }
    assert norms
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, Training(weight_decay=0.125, layer_decay=0.9))
    decays = {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}
    assert len(decays) == len(names)
    for name, decay in decays.items():
        assert decay == (0.0 if name in norms or name.endswith("bias") else 0.125), name


@pytest.mark.parametrize(
    ("step", "factor"), [(0, 1 / 11), (4, 5 / 11), (9, 10 / 11), (10, 1.0), (55, 0.5), (99, 1 / 90)]
)
def test_rates_rise_over_the_warm_up_and_fall_to_nearly_nothing(step: int, factor: float) -> None:
    assert rate_factor(step, 100, Training(warmup=0.1)) == pytest.approx(factor)


@pytest.mark.parametrize(("step", "factor"), [(0, 1 / 11), (10, 1.0), (99, 1.0)])
def test_a_constant_schedule_only_warms_up(step: int, factor: float) -> None:
    assert rate_factor(step, 100, Training(warmup=0.1, schedule="constant")) == pytest.approx(factor)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert rate_factor(0, 7, Training(warmup=0)) == 1.0


@given(st.integers(1, 400), st.floats(0, 0.99), st.sampled_from(["linear", "constant"]))
def test_every_factor_is_positive_at_most_one_and_rises_only_in_the_warm_up(
    total: int, warmup: float, schedule: Any
) -> None:
    training = Training(warmup=warmup, schedule=schedule)
    factors = [rate_factor(step, total, training) for step in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    top = math.ceil(warmup * total)
    assert all(one < two for one, two in itertools.pairwise(factors[:top]))
    assert all(one >= two for one, two in itertools.pairwise(factors[top:]))
    if schedule == "linear" and top < total:
        assert factors[-1] <= 1 / max(1, total - warmup * total) * (1 + 1e-9)


def test_set_rates_scales_every_group_from_its_own_base(tiny: Path) -> None:
    optimizer = make_optimizer(some_model(tiny), Training(lr=0.01, layer_decay=0.5))
    for factor in (0.5, 0.25):  # twice, since scaling what was scaled would be wrong
        set_rates(optimizer, factor)
        assert {group["lr"] for group in optimizer.param_groups} == {0.01 * 0.5**d * factor for d in range(5)}


class Line(nn.Module):
    """A small problem: one weight matrix and one bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def loss(self) -> torch.Tensor:
        return (self.layer(torch.tensor([[1.0, -2.0, 0.5]])) - 1).square().sum()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("adamw", lambda groups: torch.optim.AdamW(groups, lr=0.05, betas=(0.8, 0.9), eps=1e-5, foreach=False)),
        ("adamax", lambda groups: torch.optim.Adamax(groups, lr=0.05, betas=(0.8, 0.9), eps=1e-5)),
        ("adadelta", lambda groups: torch.optim.Adadelta(groups, lr=0.05, rho=0.7, eps=1e-5)),
    ],
)
def test_updates_are_those_of_torchs_optimiser(name: Any, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    ours, theirs = Line(), Line()
    settings = {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-5, "rho": 0.7, "weight_decay": 0.2}
    mine = make_optimizer(ours, Training(optimizer=name, **settings))
    decayed = [
        {"params": [theirs.layer.weight], "weight_decay": 0.2},
        {"params": [theirs.layer.bias], "weight_decay": 0.0},
    ]
    other = make(decayed)
    for _ in range(3):
        for line, optimizer in ((ours, mine), (theirs, other)):
            optimizer.zero_grad()
            line.loss().backward()
            optimizer.step()
    for one, two, fresh in zip(ours.parameters(), theirs.parameters(), Line().parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
        assert not torch.allclose(one, fresh, atol=1e-4)


def test_adamw_by_hand() -> None:
    line = Line()
    before, training = line.layer.weight.detach().double(), Training(lr=0.1, weight_decay=0.2, eps=1e-6)
    optimizer = make_optimizer(line, training)
    line.loss().backward()
    assert line.layer.weight.grad is not None
    slope = line.layer.weight.grad.double()
    optimizer.step()
    # The first step of Adam has the size of the rate, whatever the slope; decay is taken off beforehand.
    expected = before * (1 - 0.1 * 0.2) - 0.1 * slope / (slope.abs() + 1e-6)
    torch.testing.assert_close(line.layer.weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_heads_have_their_own_rate_and_one_task_may_have_another(tiny: Path) -> None:
    heads = HeadsSpec.model_validate({"tasks": {STARS.name: {"lr": 0.5}}})
    model = new_model(EncoderSpec(name=str(tiny), max_length=32), heads, (MOOD, STARS), 0)
    rates = rates_of(model, Training(lr=0.01, head_lr=0.1))
    own = {"heads.tasks.0.": 0.1, "heads.tasks.1.": 0.5, "encoder.": 0.01}
    for start, rate in own.items():
        mine = {value for name, value in rates.items() if name.startswith(start)}
        assert mine == {rate}, start
