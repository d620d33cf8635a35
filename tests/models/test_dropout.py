"""Dropout: it drops at its rate, keeps the expectation, follows the seed, and lets gradients pass as values did."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from understill.models.attention import attend
from understill.models.dropout import Dropout, drop, exchange_dropout


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5])
def test_values_are_dropped_at_the_rate_and_the_expectation_stays(rate: float) -> None:
    torch.manual_seed(0)
    values = drop(torch.ones(1_000_000), rate)
    spread = (rate * (1 - rate) / len(values)) ** 0.5
    assert abs((values == 0).double().mean().item() - rate) < 5 * spread + 2**-16
    kept = values[values != 0].unique()
    assert len(kept) == 1 and kept.item() == pytest.approx(1 / (1 - rate), rel=1e-4)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    gone = (drop(torch.ones(400_000), 0.25) == 0).double()
    for distance in (1, 2, 3, 4, 8):
        both = (gone[:-distance] * gone[distance:]).mean().item()
        assert both == pytest.approx(0.25**2, abs=5 * (0.25**2 / len(gone)) ** 0.5)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_the_seed_decides_and_any_shape_will_do(seed: int, shape: list[int]) -> None:
    values = torch.rand(shape) + 1
    torch.manual_seed(seed)
    one = drop(values, 0.5)
    torch.manual_seed(seed)
    assert torch.equal(one, drop(values, 0.5))
    assert one.shape == values.shape and ((one == 0) | (one == values * 2)).all()


def test_gradients_pass_where_values_did() -> None:
    values = torch.rand(64, requires_grad=True)
    out = drop(values, 0.3)
    out.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * values.detach(), out.detach())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_the_type_stays(kind: torch.dtype) -> None:
    assert drop(torch.ones(8, dtype=kind), 0.5).dtype == kind


def test_nothing_is_dropped_outside_training_or_at_rate_0() -> None:
    values = torch.rand(100)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)


def test_every_dropout_of_a_network_is_exchanged() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.25), nn.Sequential(nn.Dropout(0.5)))
    exchange_dropout(network)
    rates = [part.p for part in network.modules() if isinstance(part, Dropout)]
    assert rates == [0.25, 0.5] and not any(type(part) is nn.Dropout for part in network.modules())


def test_attention_with_dropout_has_the_expectation_of_attention_without() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 6, 8).unbind()
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    mask = mask[:, None, None, :]
    module = nn.Module()
    module.is_causal = False  # type: ignore[assignment]
    plain, _ = attend(module, query, key, value, mask)
    mean = torch.stack([attend(module, query, key, value, mask, dropout=0.2)[0] for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, plain, atol=0.05, rtol=0)
    # What is masked has no say, dropout or not.
    value[1, :, 4:] = 1e6
    assert attend(module, query, key, value, mask, dropout=0.2)[0].abs().max() < 1e3
