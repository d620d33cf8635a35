"""Siamese heads: each text is read as if it stood alone, in batches of any mixture, and nothing is read in vain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from helpers import MOOD, STARS, TOPIC, liven, some_batch, wider
from tiny import save_tiny, tiny_tokenizer
from understill import pipeline
from understill.data.batch import EVERY, Batch, in_order
from understill.data.packed import pack
from understill.data.tokens import encode
from understill.errors import UserError
from understill.evaluate.predict import predict_all
from understill.inference.loading import load
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel, continued, new_model
from understill.models.siamese import Siamese, compared
from understill.recipe import Recipe
from understill.recipe.schema import EncoderSpec, HeadsSpec, Training
from understill.tasks import Task
from understill.train.cuda_graph import why_not

ALIKE = Task("alike", "regression", ("one", "two"), "label", range=(0.0, 5.0))
FOLLOWS = Task("follows", "classification", ("one", "two"), "label", ("yes", "no"))
#: One text, a pair read whole, and pairs read apart: classes and scores.
TASKS = (MOOD, FOLLOWS, TOPIC, ALIKE, STARS)
MIXED = HeadsSpec.model_validate({"pairs": "siamese", "tasks": {"follows": {"kind": "linear"}}})
SIAMESE = HeadsSpec(pairs="siamese")

ONE = ["the parcel never came .", "good", "", "my account is locked , please reset the password", "the the"]
TWO = ["nobody listens", "far too long ? not bad at all", "bad", "", "the the the"]
DOUBLED = "[CLS] $A:0 [SEP]:0 [SEP]:0 $B:0 [SEP]:0"


def make(folder: Path, tasks: tuple[Task, ...] = TASKS, heads: HeadsSpec = MIXED, **settings: Any) -> MultiTaskModel:
    model = new_model(EncoderSpec(name=str(folder), max_length=32, **settings), heads, tasks, seed=0).eval()
    liven(model)
    return model


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    """An encoder of RoBERTa's kind: two separators stand between the texts."""
    folder = save_tiny(tmp_path / "doubled", "roberta")
    tiny_tokenizer(DOUBLED).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("task", [TOPIC, ALIKE])
@torch.no_grad()
def test_its_logits_are_those_of_both_texts_as_the_tokeniser_gives_them_alone(
    task: Task, separators: int, pooling: str, tiny: Path, doubled: Path
) -> None:
    folder = tiny if separators == 1 else doubled
    model, tokenizer = make(folder, pooling=pooling), load_tokenizer(str(folder))
    assert len(tokenizer("good", "good").input_ids) == 4 + separators

    def vectors(texts: list[str]) -> Tensor:
        alone = [model.encoder(next(in_order(encode([text], tokenizer, 32), 0, 1))) for text in texts]
        return torch.cat(alone)

    u, v = vectors(ONE), vectors(TWO)
    cosine = 20 * functional.cosine_similarity(u, v)[:, None]
    head = model.heads.tasks[model.number(task.name)]
    assert isinstance(head, Siamese)
    expected = head.out(torch.cat([0.1 * u, 0.1 * v, u * v, (u - v).abs(), cosine], dim=1))
    (batch,) = in_order(encode(list(zip(ONE, TWO, strict=True)), tokenizer, 32), model.number(task.name), 9)
    torch.testing.assert_close(model(batch)[:, model.columns(task.name)], expected[batch.row], rtol=0, atol=1e-4)


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert"])
@torch.no_grad()
def test_logits_do_not_depend_on_padding_on_packing_or_on_other_rows(
    kind: str, pooling: str, tiny_of: Callable[[str], Path]
) -> None:
    model, batch = make(tiny_of(kind), pooling=pooling), some_batch(24, TASKS)
    assert len(set(batch.task.tolist())) == 5
    together = own(model, batch)
    assert together.std() > 0.1
    near: dict[str, Any] = {"rtol": 0, "atol": 1e-4}
    torch.testing.assert_close(own(model, wider(batch, 61)), together, **near)
    everything = replace(batch, task=torch.full_like(batch.task, EVERY))
    torch.testing.assert_close(own(model, batch, model(everything)), together, **near)
    if model.encoder.packable:
        torch.testing.assert_close(own(model, batch, model(pack(batch))), together, **near)
        torch.testing.assert_close(own(model, batch, model(pack(everything))), together, **near)
    for row in range(len(batch)):
        only = batch.part(slice(row, row + 1))
        torch.testing.assert_close(own(model, only), together[row : row + 1], **near)


def own(model: MultiTaskModel, batch: Batch, logits: Tensor | None = None) -> Tensor:
    """Return what each row's own head says of it first."""
    logits = model(batch) if logits is None else logits
    first = torch.tensor([model.columns(task.name).start for task in model.tasks])
    return logits[torch.arange(len(batch)), first[batch.task]]


def test_only_siamese_rows_are_read_twice_and_each_in_the_tokens_it_has(tiny: Path) -> None:
    model, batch, read = make(tiny), some_batch(24, TASKS), []

    def lengths(_: object, __: object, inputs: dict[str, Tensor]) -> None:
        packed = inputs.get("starts")  # where much would be padding
        read.append((inputs["attention_mask"].sum(1) if packed is None else packed.diff()).tolist())

    model.encoder.network.register_forward_pre_hook(lengths, with_kwargs=True)
    for train in (False, True):
        read.clear()
        model.train(train)(batch)
        apart = torch.isin(batch.task, torch.tensor([TASKS.index(TOPIC), TASKS.index(ALIKE)]))
        texts = [*batch.second[apart].tolist(), *(batch.lengths - batch.second + 1)[apart].tolist()]
        assert read == [texts, batch.lengths[~apart].tolist()]
    read.clear()
    (whole,) = in_order(encode(list(zip(ONE, TWO, strict=True)), load_tokenizer(str(tiny)), 32), 1, 9)
    model(whole)
    assert len(read) == 1 and len(read[0]) == len(ONE), "a task that reads pairs whole costs what it did"


def test_every_task_asked_at_once_gives_what_each_gives_alone(tiny: Path) -> None:
    model = make(tiny)
    tokens = encode(list(zip(ONE, TWO, strict=True)), load_tokenizer(str(tiny)), 32)
    pairs = [task for task in TASKS if task.pair]
    together = predict_all(model, tokens, pairs, 2)
    for task in pairs:
        alone = predict_all(model, tokens, [task], 4)[task.name].logits
        np.testing.assert_allclose(together[task.name].logits, alone, atol=1e-5)


def test_the_encoder_learns_from_both_texts(tiny: Path) -> None:
    model = make(tiny, (TOPIC,), SIAMESE)
    tokens = encode([("parcel", "guitar")], load_tokenizer(str(tiny)), 32)
    model(next(in_order(tokens, 0, 1))).sum().backward()
    slope = model.encoder.network.get_input_embeddings().weight.grad
    assert all(slope[number].abs().sum() > 0 for number in tokens.ids.tolist())


def test_the_head_has_the_dropout_of_its_task(tiny: Path) -> None:
    heads = HeadsSpec.model_validate({"pairs": "siamese", "dropout": 0.0, "tasks": {"topic": {"dropout": 0.5}}})
    model = make(tiny, heads=heads, dropout=0.0).train()
    batch = some_batch(24, TASKS)
    differ = (own(model, batch) - own(model, batch)).abs() > 1e-6
    assert differ.tolist() == (batch.task == TASKS.index(TOPIC)).tolist()


def test_vectors_in_bfloat16_are_compared_in_float32() -> None:
    one, two = (torch.randn(500, 64, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))
    features = compared(one, two)
    assert features.dtype == torch.float32
    assert torch.equal(features, compared(one.float(), two.float()))
    assert len(features[:, -1].unique()) > 490, "rounded, many pairs would be equally alike"


def test_it_survives_saving_and_goes_on_from_where_it_stood(tiny: Path, tmp_path: Path) -> None:
    model, batch = make(tiny), some_batch(24, TASKS)
    lengths = {task.name: 32 for task in TASKS}
    save_model(tmp_path / "model", model, load_tokenizer(str(tiny)), lengths, "{}\n", {})
    loaded = load_model(tmp_path / "model").model
    assert torch.equal(loaded(batch), model(batch))
    turned = replace(TOPIC, labels=TOPIC.labels[::-1])
    child = continued(loaded, [turned], SIAMESE).eval()
    topic = some_batch(9, (TOPIC,))
    parent = model(replace(topic, task=topic.task + 2))[:, model.columns("topic")]
    torch.testing.assert_close(child(topic), parent.flip(1))
    with pytest.raises(UserError, match=r"task topic: heads.pairs or heads.san is not as the model was trained with"):
        continued(loaded, [TOPIC], HeadsSpec())


def test_a_fresh_head_orders_pairs_by_their_cosine_after_a_few_steps(tiny: Path) -> None:
    model = new_model(EncoderSpec(name=str(tiny), max_length=32), SIAMESE, (ALIKE,), seed=0)
    torch.manual_seed(0)
    u, v = torch.randn(2, 200, 32)
    v[:100] += u[:100]
    cosine = functional.cosine_similarity(u, v)
    head = model.heads.tasks[0]
    assert isinstance(head, Siamese) and not head.out.weight.any(), "no noise to begin with"
    optimizer, features = torch.optim.AdamW(head.parameters(), lr=1e-4), compared(u, v)
    for _ in range(20):
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(head.out(features)[:, 0], (cosine > 0.4).float()).backward()
        optimizer.step()
    assert np.corrcoef(head.out(features)[:, 0].detach(), cosine)[0, 1] > 0.9


def test_it_is_trained_by_the_plain_loop(tiny: Path) -> None:
    device = cast(Any, SimpleNamespace(device=torch.device("cuda"), mixed_precision="bf16"))
    assert why_not(make(tiny), device, Training()) == "siamese heads are trained by the plain loop"


def test_a_head_that_cannot_be_is_refused(tiny: Path) -> None:
    with pytest.raises(UserError, match=r"heads.tasks.mood.kind: siamese compares two texts → write linear"):
        make(tiny, heads=HeadsSpec.model_validate({"tasks": {"mood": {"kind": "siamese"}}}))
    with pytest.raises(ValueError, match="no model has both san and siamese heads → write one of them"):
        HeadsSpec.model_validate({"pairs": "siamese", "tasks": {"follows": {"kind": "san"}}})


@pytest.mark.parametrize("pairs", ["linear", "siamese"])
def test_a_run_trains_it_in_both_orders_and_answers(pairs: str, make_tiny: Callable[..., Recipe]) -> None:
    heads = {"pairs": pairs, "tasks": {"follows": {"kind": "linear"}}}
    recipe = make_tiny(heads=heads, training={"both_orders": True})
    outcome = pipeline.run(recipe)
    model = load(outcome.folder)
    similar = next(task for task in model.tasks if task.name == "similar")
    assert isinstance(cast(Any, model).model.heads.tasks[2], Siamese) == (pairs == "siamese")
    answers = model.predict(ONE, TWO, ["follows", "similar"])
    assert similar.range is not None
    assert all(similar.range[0] <= each.score <= similar.range[1] for each in answers["similar"])
