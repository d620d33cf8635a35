"""Networks over words: the recurrence by hand, what padding and company must not change, pairs, channels, vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers import MOOD, STARS, TASKS, TOPIC, liven, some_batch, some_batches, wider
from understill.data.batch import Batch
from understill.data.packed import pack
from understill.data.vectors import KnownVectors
from understill.errors import UserError
from understill.losses.fused import FusedObjective
from understill.models import bilstm
from understill.models.bilstm import BiLstm
from understill.models.encoder import build_encoder, load_encoder
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel, continued, new_model
from understill.models.textnet import Mean
from understill.models.words import (
    VECTORS,
    WordEncoder,
    WordNetwork,
    WordsConfig,
    WordVectors,
    read_config,
    save_vectors,
)
from understill.recipe.schema import EncoderSpec, HeadsSpec, Training
from understill.train.optim import make_optimizer

KINDS = ("bilstm", "static")


def config(network: str = "bilstm", **changes: Any) -> WordsConfig:
    return WordsConfig(network, **{"vocab_size": 150, "size": 6, "hidden": 5, "dense": 7, **changes})


def model_of(network: str, tasks: Any = TASKS, **changes: Any) -> MultiTaskModel:
    torch.manual_seed(0)
    return MultiTaskModel(WordEncoder(config(network, **changes)), tasks, HeadsSpec()).eval()


def by_hand(lstm: nn.LSTM, words: Tensor) -> Tensor:
    """One text, word by word, as the equations have it; its last state."""
    state = memory = torch.zeros(lstm.hidden_size, dtype=words.dtype)
    for word in words:
        gates = lstm.weight_ih_l0 @ word + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ state + lstm.bias_hh_l0
        entry, forget, candidate, out = gates.chunk(4)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(entry) * torch.tanh(candidate)
        state = torch.sigmoid(out) * torch.tanh(memory)
    return state


# One text -------------------------------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5), extra=st.integers(0, 3), seed=st.integers(0, 99))
def test_a_text_is_the_last_state_of_the_recurrence_in_each_direction(
    lengths: list[int], extra: int, seed: int
) -> None:
    torch.manual_seed(seed)
    network = BiLstm(4, 3).double()
    words = torch.randn(len(lengths), max(1, *lengths) + extra, 4, dtype=torch.float64)
    got = network(words, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        real = words[row, :length]
        want = torch.cat([by_hand(network.onward, real), by_hand(network.back, real.flip(0))])
        assert torch.allclose(got[row], want, rtol=0, atol=1e-12)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5), extra=st.integers(0, 3))
def test_a_static_text_is_the_mean_of_its_words(lengths: list[int], extra: int) -> None:
    torch.manual_seed(0)
    words = torch.randn(len(lengths), max(1, *lengths) + extra, 4, dtype=torch.float64)
    got = Mean(4)(words, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        want = words[row, :length].mean(0) if length else torch.zeros(4, dtype=torch.float64)
        assert torch.allclose(got[row], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tasks", [TASKS, (MOOD,)], ids=["both forms", "one text"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_whatever_it_holds(kind: str, tasks: Any) -> None:
    model, batch = model_of(kind, tasks), some_batch(8, tasks)
    liven(model)
    padded = wider(batch, 40)
    filled = replace(padded, ids=torch.where(padded.mask, padded.ids, torch.randint(0, 150, padded.ids.shape)))
    for other in (padded, filled):
        assert torch.allclose(model(batch), model(other), rtol=0, atol=1e-6)
    assert model(batch).std(0).max() > 0.01, "rows are told apart"


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    tail=st.integers(0, 3),
    known=st.sampled_from([4, 400]),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("channels", ["trainable", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_in_a_line_have_the_vectors_of_padded_ones(
    kind: str, channels: str, lengths: list[int], tail: int, known: int, seed: int
) -> None:
    torch.manual_seed(seed)
    network = WordNetwork(config(kind, vocab_size=known, channels=channels)).double().eval()
    with torch.no_grad():
        for weight in network.words.parameters():
            weight.normal_()
    ids, ends = torch.randint(0, known, (sum(lengths) + tail,)), torch.tensor(lengths).cumsum(0)
    padded = torch.zeros(len(lengths), max(1, *lengths), dtype=torch.int64)
    for row, (length, end) in enumerate(zip(lengths, ends.tolist(), strict=True)):
        padded[row, :length] = ids[end - length : end]
    want = network(padded, torch.tensor(lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(bilstm._ROWS, "cpu", 4)
        got = network.read(ids, ends - torch.tensor(lengths), torch.tensor(lengths))
    assert torch.allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tasks", [TASKS, (MOOD,)], ids=["both forms", "one text"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_have_the_logits_of_padded_ones(kind: str, tasks: Any) -> None:
    model, batch = model_of(kind, tasks), some_batch(9, tasks)
    liven(model)
    with torch.inference_mode():
        assert torch.allclose(model(pack(batch)), model(batch), rtol=0, atol=1e-6)


@pytest.mark.parametrize("tasks", [TASKS, (MOOD,)], ids=["both forms", "one text"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_says_the_same_in_any_company(kind: str, tasks: Any) -> None:
    model, batch = model_of(kind, tasks), some_batch(9, tasks)
    liven(model)
    together = model(batch)
    alone = torch.cat([model(batch.part(slice(row, row + 1))) for row in range(len(batch))])
    turned = model(batch.map(lambda tensor: tensor.flip(0))).flip(0)
    for other in (alone, turned):
        assert torch.allclose(together, other, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("kind", KINDS)
def test_the_network_leaves_as_a_graph_that_takes_any_number_of_rows(kind: str) -> None:
    network = WordEncoder(config(kind)).eval().network
    rows = torch.export.Dim("rows", min=2, max=64)
    example = (torch.randint(0, 150, (3, 11)), torch.tensor([8, 2, 5]))
    graph = torch.export.export(network, example, dynamic_shapes={"ids": {0: rows}, "lengths": {0: rows}}).module()
    ids, lengths = torch.randint(0, 150, (5, 11)), torch.tensor([1, 11, 0, 4, 7])
    assert torch.allclose(graph(ids, lengths), network(ids, lengths), rtol=0, atol=1e-6)


# Pairs ----------------------------------------------------------------------------------------------------------------


def turned_round(batch: Batch) -> Batch:
    """The same pairs with their texts in the other order."""
    ids, second = batch.ids.clone(), batch.lengths - batch.second
    for row in range(len(batch)):
        length, start = int(batch.lengths[row]), int(batch.second[row])
        ids[row, :length] = torch.cat([batch.ids[row, start:length], batch.ids[row, :start]])
    return replace(batch, ids=ids, second=second)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_is_both_texts_their_product_and_their_difference(kind: str) -> None:
    encoder = WordEncoder(config(kind)).eval()
    batch = some_batch(8, (TOPIC,))
    one, two, product, difference = encoder(batch).chunk(4, dim=1)
    assert one.shape == (8, encoder.width)
    first = encoder.network(batch.ids, batch.second)
    assert torch.allclose(one, first, atol=1e-6)
    assert torch.equal(product, one * two) and torch.equal(difference, (one - two).abs())


@pytest.mark.parametrize("kind", KINDS)
def test_turning_a_pair_round_changes_the_places_of_its_texts_and_nothing_else(kind: str) -> None:
    encoder = WordEncoder(config(kind)).eval()
    batch = some_batch(8, (TOPIC,))
    one, two, product, difference = encoder(batch).chunk(4, dim=1)
    other, same_, again, size = encoder(turned_round(batch)).chunk(4, dim=1)
    for mine, theirs in ((one, same_), (two, other), (product, again), (difference, size)):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)
    assert not torch.allclose(one, two, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_with_one_text_is_answered_alike_beside_tasks_with_pairs_and_without(kind: str) -> None:
    mixed = model_of(kind)
    liven(mixed)
    plain = MultiTaskModel(WordEncoder(mixed.encoder.config), (MOOD,), HeadsSpec()).eval()
    plain.encoder.load_state_dict(mixed.encoder.state_dict())
    plain.heads.tasks[0].load_state_dict(mixed.heads.tasks[0].state_dict())
    batch = some_batch(8, (MOOD,))
    assert plain.encoder(batch).shape[1] * 4 == mixed.encoder(batch).shape[1]
    assert torch.allclose(plain(batch), mixed(batch)[:, mixed.columns("mood")], rtol=0, atol=1e-6)


def test_heads_have_the_published_relu_layer_and_the_width_of_their_form() -> None:
    heads = model_of("bilstm").heads
    sizes = [(head.dense.in_features, head.dense.out_features, head.out.in_features) for head in heads.tasks]
    assert sizes == [(10, 7, 7), (40, 7, 7), (10, 7, 7)]
    assert heads.shape.activation == "relu"


@pytest.mark.parametrize("tasks", [(MOOD,), (TOPIC,)], ids=["one text", "pair"])
@pytest.mark.parametrize("place", ["words", "heads"])
def test_dropout_is_applied_in_both_forms(tasks: Any, place: str) -> None:
    torch.manual_seed(0)
    rates = {"words": (0.5, 0.0), "heads": (0.0, 0.5)}[place]
    model = MultiTaskModel(WordEncoder(config(dropout=rates[0])), tasks, HeadsSpec(dropout=rates[1])).train()
    batch = some_batch(8, tasks)
    assert not torch.allclose(model(batch), model(batch))
    assert torch.equal(model.eval()(batch), model(batch))


# Channels and vectors -------------------------------------------------------------------------------------------------


def test_the_published_multichannel_student_has_as_many_weights_as_published() -> None:
    spec = config(size=300, hidden=150, dense=200, channels="both", vocab_size=20)
    model = MultiTaskModel(WordEncoder(spec), (MOOD,), HeadsSpec())
    words = model.encoder.network.words
    vectors = sum(parameter.numel() for parameter in words.parameters())
    assert vectors == 2 * 20 * 300
    assert sum(parameter.numel() for parameter in model.parameters()) - vectors == 963_002  # "0.96 M"


@pytest.mark.parametrize(("channels", "trained", "fixed"), [("trainable", 1, 0), ("static", 0, 1), ("both", 1, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_training_moves_the_trainable_channel_and_leaves_the_frozen_one(
    kind: str, channels: str, trained: int, fixed: int
) -> None:
    model = model_of(kind, channels=channels).train()
    words = model.encoder.network.words
    before = {name: value.clone() for name, value in words.state_dict().items()}
    assert len(before) == trained + fixed
    if channels == "both":
        assert torch.equal(*before.values()), "they begin alike"
    objective, batches = FusedObjective(TASKS, "sigmoid"), some_batches()
    optimizer = make_optimizer(model, Training(optimizer="adadelta", lr=1.0))
    for step in range(3):
        objective(model(batches[step]), batches[step], 8.0).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = {name for name, value in words.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == ({"trained.weight"} if trained else set())


def words_folder(folder: Path, vectors: KnownVectors | None = None, **changes: Any) -> Path:
    spec = config(**changes)
    spec.save_pretrained(folder)
    if vectors:
        save_vectors(folder, vectors, {f"w{number}": number for number in range(spec.vocab_size)})
    return folder


def test_words_begin_with_their_vectors_and_others_as_spread_as_these(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    result = {f"w{number}": rng.normal(0, 3, 6).astype(np.float32) for number in range(5, 140)}
    folder = words_folder(tmp_path, KnownVectors(6, result), vocab_size=400, channels="both")
    encoder = load_encoder(EncoderSpec(name="bilstm"), str(folder))
    assert isinstance(encoder, WordEncoder)
    for channel in encoder.network.words.channels:
        for number in (5, 70, 139):
            assert np.array_equal(channel.weight[number].detach().numpy(), result[f"w{number}"])
        others = channel.weight[140:].detach()
        assert others.std() == pytest.approx(3, rel=0.1) and others.abs().max() < 3 * 3**0.5 * 1.1


def test_the_seed_decides_the_first_weights(tmp_path: Path) -> None:
    folder = words_folder(tmp_path)
    one, same_, other = (
        new_model(EncoderSpec(name="bilstm"), HeadsSpec(), TASKS, seed, str(folder)).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], same_[name]) for name in one)
    assert not torch.equal(one["encoder.network.words.trained.weight"], other["encoder.network.words.trained.weight"])


def test_the_recipes_dropout_reaches_the_words(tmp_path: Path) -> None:
    encoder = load_encoder(EncoderSpec(name="static", dropout=0.3), str(words_folder(tmp_path, network="static")))
    assert isinstance(encoder, WordEncoder) and encoder.network.words.dropout.p == 0.3


def test_broken_vectors_are_refused(tmp_path: Path) -> None:
    folder = words_folder(tmp_path)
    save_file({"ids": torch.tensor([1]), "vectors": torch.zeros(1, 3)}, folder / VECTORS)
    with pytest.raises(UserError, match="encoder bilstm cannot be loaded"):
        load_encoder(EncoderSpec(name="bilstm"), str(folder))


# As a model -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_saved_and_loaded_as_it_is(kind: str, tmp_path: Path) -> None:
    from understill.data.word_tokenizer import word_tokenizer

    tokenizer = word_tokenizer([" ".join(f"w{number}" for number in range(120))], 100)
    model = model_of(kind, channels="both")
    save_model(tmp_path / "m", model, tokenizer, {task.name: 16 for task in TASKS}, "", {})
    loaded = load_model(tmp_path / "m")
    batch = some_batch(8)
    assert torch.equal(loaded.model(batch), model(batch))
    assert read_config(tmp_path / "m") is not None
    frozen = [name for name, value in loaded.model.named_parameters() if not value.requires_grad]
    assert frozen == ["encoder.network.words.fixed.weight"]


def test_one_task_goes_on_from_a_model_of_several() -> None:
    parent = model_of("bilstm")
    liven(parent)
    child = continued(parent, (STARS,), HeadsSpec(), dropout=0.2).eval()
    batch = some_batch(8, (STARS,))
    assert torch.allclose(child(batch), parent(batch)[:, parent.columns("stars")], rtol=0, atol=1e-6)
    assert child.encoder.config.dropout == 0.2


def test_heads_that_read_tokens_are_refused() -> None:
    with pytest.raises(UserError, match=r"heads\.pairs: san .* → write linear"):
        MultiTaskModel(build_encoder(config(), "default"), TASKS, HeadsSpec(pairs="san"))


def test_the_channels_stand_side_by_side() -> None:
    words = WordVectors(config(channels="both"))
    with torch.no_grad():
        words.trained.weight.add_(1)  # type: ignore[union-attr]
    fixed, trained = words(torch.tensor([[3, 4]])).chunk(2, dim=2)
    assert torch.allclose(trained, fixed + 1)
