"""Predictions over packed rows, as a GPU makes them: those of padded rows, in the rows' order, within a budget."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import TASKS, TOPIC, liven, some_model, some_tokens
from understill.data.batch import EVERY
from understill.data.packed import Packed, room
from understill.errors import UserError
from understill.evaluate import predict as module
from understill.evaluate.predict import _packed, predict_all
from understill.models.multitask import MultiTaskModel
from understill.models.transformer import Encoder

CPU = torch.device("cpu")


@pytest.mark.parametrize("budget", [1, 20, 64, 1 << 16])
def test_packed_rows_have_the_logits_of_padded_ones_in_the_rows_order(
    budget: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = some_model(tiny).eval(), some_tokens(TOPIC, 33)
    liven(model)
    expected = predict_all(model, tokens, TASKS, 8)
    monkeypatch.setattr(module, "BUDGET", budget)
    monkeypatch.setattr(module, "_padded", _packed)
    done: list[int] = []
    result = predict_all(model, tokens, TASKS, 8, done.append)
    assert sum(done) == 33
    for name, predictions in expected.items():
        assert np.ptp(predictions.logits, axis=0).min() > 0.1
        np.testing.assert_allclose(result[name].logits, predictions.logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("room_for", [300, 0])
def test_where_memory_runs_out_half_as_many_tokens_are_read_at_once(
    room_for: int, tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokens = some_model(tiny).eval(), some_tokens(TOPIC, 60)
    liven(model)
    expected = predict_all(model, tokens, TASKS, 8)
    monkeypatch.setattr(Encoder, "light", True)
    monkeypatch.setattr(module, "BUDGET", 128)
    answer, sizes = MultiTaskModel.forward, list[int]()

    def forward(self: MultiTaskModel, batch: Packed) -> torch.Tensor:
        sizes.append(int(batch.lengths.sum()))
        if sizes[-1] > room_for:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return answer(self, batch)

    monkeypatch.setattr(MultiTaskModel, "forward", forward)
    done: list[int] = []
    if not room_for:
        with pytest.raises(UserError, match="out of memory even with one row at a time"):
            predict_all(model, tokens, TASKS, 8, done.append)
        return
    result = predict_all(model, tokens, TASKS, 8, done.append)
    assert sizes[0] > room_for and "going on with" in caplog.text
    assert sum(done) == 60, "no row is counted twice"
    for name, predictions in expected.items():
        np.testing.assert_allclose(result[name].logits, predictions.logits, atol=1e-5, rtol=0)


@given(rows=st.integers(0, 60), budget=st.integers(1, 200))
def test_every_row_comes_once_and_batches_are_as_full_as_the_budget_allows(rows: int, budget: int) -> None:
    tokens = some_tokens(TOPIC, rows)
    pieces = list(_packed(tokens, EVERY, 8, CPU, budget))
    assert sorted(row for own, _ in pieces for row in own.tolist()) == list(range(rows))
    lengths = [tokens.lengths[own.numpy()] for own, _ in pieces]
    assert all(one.sum() + two[0] > budget for one, two in pairwise(lengths)), "a next row would have had room"
    for (own, piece), own_lengths in zip(pieces, lengths, strict=True):
        total = int(own_lengths.sum())
        assert total <= budget or len(own) == 1
        assert piece.longest == own_lengths.max() == own_lengths[0]
        assert len(piece.ids) == room(total)
        for row, start in zip(own.tolist(), piece.starts.tolist(), strict=False):
            begin, end = tokens.offsets[row], tokens.offsets[row + 1]
            assert piece.ids[start : start + end - begin].tolist() == tokens.ids[begin:end].tolist()
