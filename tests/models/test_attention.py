"""Packed rows: an encoder says of them what it says of padded ones, and what lies behind them has no say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoModel

from helpers import TASKS, liven, some_batch, some_model
from understill.data.batch import Batch
from understill.data.packed import Packed, pack
from understill.models.attention import NAME, attend
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel

PACKABLE = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
JUNK = 7  # a word's id, so that nothing is forgiven because it is the padding token's


def make(folder: Path, pooling: str) -> MultiTaskModel:
    """Return a model in double precision whose rows differ."""
    model = some_model(folder, pooling=pooling).eval().double()
    liven(model)
    return model


def with_tail(batch: Packed, count: int) -> Packed:
    """Put padding behind the rows."""

    def longer(values: Tensor, filler: int) -> Tensor:
        return torch.cat([values, values.new_full((count,), filler)])

    return replace(
        batch,
        ids=longer(batch.ids, JUNK),
        position=longer(batch.position, 0),
        types=longer(batch.types, 0),
        home=longer(batch.home, len(batch)),
    )


def gradients(model: MultiTaskModel, logits: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (logits * torch.linspace(-1, 1, logits.numel()).view(logits.shape)).sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", PACKABLE)
def test_packed_rows_have_the_logits_and_gradients_of_padded_ones(
    kind: str, pooling: str, tiny_of: Callable[[str], Path]
) -> None:
    model = make(tiny_of(kind), pooling)
    batch = some_batch(9)
    assert len(set(batch.lengths.tolist())) > 2 and batch.types.any()
    padded = model(batch)
    assert padded.std(dim=0).min() > 0.1
    expected = gradients(model, padded)
    for packed in (pack(batch), with_tail(pack(batch), 1), with_tail(pack(batch), 150)):
        # A size that serves many batches is longer than their rows.
        for longest in (packed.longest, 16, 64):
            result = model(replace(packed, longest=longest))
            torch.testing.assert_close(result, padded, rtol=0, atol=1e-10)
        slopes = gradients(model, result)
        assert slopes.keys() == expected.keys()
        for name, slope in slopes.items():
            torch.testing.assert_close(slope, expected[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
def test_packed_rows_in_single_precision_are_padded_ones_up_to_rounding(pooling: str, tiny: Path) -> None:
    model, batch = make(tiny, pooling).float(), some_batch(9)
    with torch.no_grad():
        torch.testing.assert_close(model(with_tail(pack(batch), 30)), model(batch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
def test_no_gradient_reaches_what_lies_behind_the_rows(pooling: str, tiny: Path) -> None:
    model, seen = make(tiny, pooling), []
    packed = with_tail(pack(some_batch(9)), 40)

    def look(_: nn.Module, __: object, states: Tensor) -> None:
        states.retain_grad()
        seen.append(states)

    model.encoder.network.get_input_embeddings().register_forward_hook(look)
    gradients(model, model(packed))
    ((slope,),) = (states.grad for states in seen)
    end = int(packed.starts[-1])
    assert slope[:end].abs().sum(1).min() > 0, "every token of a row has a say"
    assert (slope[end:] == 0).all()


@pytest.mark.parametrize(
    ("kind", "expected"), [*((kind, True) for kind in PACKABLE), *((kind, False) for kind in ("albert", "distilbert"))]
)
def test_only_architectures_that_take_positions_and_our_attention_read_packed_rows(
    kind: str, expected: bool, tiny_of: Callable[[str], Path]
) -> None:
    model = some_model(tiny_of(kind))
    assert model.encoder.packable == expected
    assert (model.encoder.config._attn_implementation == NAME) == expected


def test_a_saved_model_knows_nothing_of_our_attention(tiny: Path, tmp_path: Path) -> None:
    model = some_model(tiny)
    save_model(tmp_path / "model", model, load_tokenizer(str(tiny)), {task.name: 32 for task in TASKS}, "{}", {})
    config = (tmp_path / "model" / "config.json").read_text()
    assert NAME not in config and "attn" not in config
    model.encoder.network.save_pretrained(tmp_path / "plain")
    assert NAME not in (tmp_path / "plain" / "config.json").read_text()
    assert AutoModel.from_pretrained(tmp_path / "plain").config._attn_implementation == "sdpa"
    assert load_model(tmp_path / "model").model.encoder.packable


# Attention alone -----------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    tail=st.integers(0, 5),
    spare=st.integers(0, 8),
    scaling=st.none() | st.floats(0.1, 1.0),
)
def test_each_packed_row_attends_to_itself_alone(
    lengths: list[int], tail: int, spare: int, scaling: float | None
) -> None:
    torch.manual_seed(len(lengths))
    heads, size, total = 2, 4, sum(lengths) + tail
    starts = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
    query, key, value = torch.randn(3, 1, heads, total, size, dtype=torch.float64).unbind()
    out, weights = attend(
        nn.Module(), query, key, value, None, scaling=scaling, starts=starts, longest=max(lengths) + spare
    )
    assert weights is None and out.shape == (1, total, heads, size)
    scale = size**-0.5 if scaling is None else scaling
    for start, length in zip(starts.tolist(), lengths, strict=False):
        q, k, v = (each[0, :, start : start + length] for each in (query, key, value))
        expected = (q @ k.transpose(1, 2) * scale).softmax(-1) @ v
        torch.testing.assert_close(out[0, start : start + length], expected.transpose(0, 1))
    assert (out[0, sum(lengths) :] == 0).all()


@pytest.mark.parametrize(("lengths", "shape"), [([3, 9, 5], (1, 17)), ([8, 9, 8], (3, 9))])
def test_a_cpu_that_trains_packs_batches_of_which_much_is_padding_and_their_vectors_are_the_same(
    lengths: list[int], shape: tuple[int, int], tiny: Path
) -> None:
    encoder, count, rows = some_model(tiny, dropout=0.0).encoder, torch.tensor(lengths), torch.arange(3)
    ids = torch.where(torch.arange(9) < count[:, None], torch.arange(27).view(3, 9) % 20 + 5, 0)
    batch = Batch(ids, count, count, rows * 0, rows.float(), rows + 1.0, rows, rows)
    padded = encoder.eval()(batch)
    shapes: list[tuple[int, ...]] = []
    encoder.network.register_forward_pre_hook(
        lambda _, args, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    torch.testing.assert_close(encoder.train()(batch), padded)
    assert shapes == [shape]
