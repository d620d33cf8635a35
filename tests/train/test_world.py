"""Shares of a batch: every row once, and together the gradient of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import ANSWER, MOOD, some_batches, some_model, some_queries, some_tokens
from understill.data.batch import Stream
from understill.data.batches import Batches
from understill.errors import UserError
from understill.losses.fused import FusedObjective
from understill.train.world import ALONE, World


def with_queries(batch: int) -> Batches:
    """Return batches of single rows and of whole queries."""
    tokens, groups = some_queries([2, 3, 4, 5, 6] * 4)
    return Batches([Stream(0, [some_tokens(MOOD, 30)]), Stream(1, [tokens], groups=groups)], batch=batch, seed=0, pad=0)


makers = st.sampled_from([lambda batch: some_batches(batch=batch), with_queries])


@given(makers, st.integers(1, 6), st.integers(0, 9), st.integers(1, 12))
def test_shares_are_the_rows_of_a_batch_once_each_with_whole_queries_and_of_about_the_same_size(
    make: Callable[[int], Batches], size: int, step: int, batch: int
) -> None:
    batches = make(batch)
    whole, parts = batches[step], [batches.part(step, rank, size) for rank in range(size)]
    assert sum(map(len, parts)) == len(whole) == batches.count(step)
    units = [set(part.group.tolist()) for part in parts]
    assert set().union(*units) == set(whole.group.tolist()) and sum(map(len, units)) == batch
    assert max(map(len, units)) - min(map(len, units)) <= 1
    for part in parts:
        mine = torch.isin(whole.group, part.group)
        for name in ("ids", "lengths", "second", "task", "gold", "weight", "row", "group"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name)[mine], equal_nan=True)
    assert sum(batches.tokens(step, rank, size) for rank in range(size)) == batches.tokens(step, 0, 1)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_gradients_losses_and_counts_of_all_shares_add_up_to_those_of_the_batch(size: int, tiny: Path) -> None:
    def learn(*places: tuple[int, int]) -> tuple[list[torch.Tensor], torch.Tensor]:
        model, batches = some_model(tiny, (MOOD, ANSWER), dropout=0.0).train(), with_queries(7)
        objective, losses = FusedObjective((MOOD, ANSWER), "sigmoid"), []
        for rank, count in places:
            batch = batches.part(3, rank, count)
            loss = objective(model(batch), batch, float(batches.batch))
            loss.total.backward()
            losses.append(torch.stack([loss.parts, loss.counts]))
        return [weight.grad for weight in model.parameters() if weight.grad is not None], torch.stack(losses).sum(0)

    whole, shares = learn((0, 1)), learn(*((rank, size) for rank in range(size)))
    torch.testing.assert_close(shares[1], whole[1])
    assert len(shares[0]) == len(whole[0])
    for one, two in zip(whole[0], shares[0], strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-7)


def test_a_process_by_itself_shares_nothing() -> None:
    value = object()
    assert ALONE.leads and ALONE.share(value) is value and ALONE.gather(value) == [value]
    assert ALONE.agree(True) == (0, True) and ALONE.add_up([]) == 0


def test_batches_with_fewer_rows_than_processes_are_refused() -> None:
    World(0, 4).refuse_small(4)
    with pytest.raises(UserError, match="4 processes cannot share batches of 3 rows → use at most 3, or raise"):
        World(0, 4).refuse_small(3)
