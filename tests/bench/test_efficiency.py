"""Efficiency: sizes and operations by hand, and rounds in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import MOOD, TASKS, TOPIC
from understill.bench.efficiency import RUN, TimedModel, _share, embeddings, flops, measure, of_folder
from understill.data.tokens import TextEncoder
from understill.data.word_tokenizer import word_tokenizer
from understill.errors import UserError
from understill.inference.torch_model import TorchModel
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import HeadsSpec

TEXTS = ["the parcel never came", "not bad at all", "good", "my account is locked and nobody listens to me"]


def over_words(kind: str, tasks: Any = (MOOD,), **changes: Any) -> TimedModel:
    tokenizer = word_tokenizer(TEXTS, 100)
    sizes = {"vocab_size": len(tokenizer), "size": 6, "hidden": 5, "dense": 7, **changes}
    model = MultiTaskModel(WordEncoder(WordsConfig(kind, **sizes)), tasks, HeadsSpec()).eval()
    return TimedModel(kind, model, TextEncoder(tokenizer), 32)


# What is counted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2])
def test_operations_of_a_bilstm_are_those_of_its_equations(channels: int) -> None:
    candidate = over_words("bilstm", channels={1: "trainable", 2: "both"}[channels])
    words = candidate.encode(TEXTS, 32).lengths.mean()
    lstms = 2 * 8 * 5 * (6 * channels + 5) * words  # two directions, four gates, a product and a sum
    assert flops(candidate, TEXTS) == pytest.approx(lstms + 2 * (10 * 7 + 7 * MOOD.outputs))


def test_operations_of_a_mean_are_its_sum_and_the_heads() -> None:
    candidate = over_words("static")
    words = candidate.encode(TEXTS, 32).lengths.mean()
    assert flops(candidate, TEXTS) == pytest.approx(2 * 6 * words + 2 * (6 * 7 + 7 * MOOD.outputs))


def test_operations_of_an_encoder_are_those_of_its_layers(predictor: TorchModel) -> None:
    candidate = of_folder("tiny", predictor.folder)
    lengths = candidate.encode(TEXTS, candidate.max_length).lengths.astype(float)
    layer = 2 * (4 * 32 * 32 + 2 * 32 * 64) * lengths + 2 * 2 * 32 * lengths**2
    outputs = sum(task.outputs for task in predictor.tasks)
    assert flops(candidate, TEXTS) == pytest.approx((2 * layer + 2 * 32 * 32 + 2 * 32 * outputs).mean())


def test_word_vectors_are_counted_apart(predictor: TorchModel) -> None:
    candidate = over_words("bilstm", channels="both")
    assert embeddings(candidate.model) == 2 * 6 * candidate.model.encoder.config.vocab_size
    assert embeddings(predictor.model) == 32 * len(predictor.folder.tokenizer)


# How it is measured ---------------------------------------------------------------------------------------------------


def test_models_of_all_kinds_are_measured_side_by_side(predictor: TorchModel) -> None:
    teacher = of_folder("teacher", predictor.folder)
    students = [over_words("bilstm"), replace(over_words("static"), sentences=3)]
    result = measure([teacher, *students], TEXTS, "cpu", batch=2, rounds=3, singles=4)
    assert [each.name for each in result] == ["teacher", "bilstm", "static"]
    assert [each.texts for each in result] == [4, 4, 3]
    for each in result:
        assert each.parameters > each.embeddings > 0 and each.precision == "fp32"
        assert each.peak_bytes is None or each.peak_bytes >= 4 * each.parameters
        assert set(each.seconds) == set(each.latency) == {"model", "text to answer"}
        assert all(len(times) == 3 for times in each.seconds.values())
        pairs = zip(each.seconds["model"], each.seconds["text to answer"], strict=True)
        assert all(0 < model < whole for model, whole in pairs)
        for latency in each.latency.values():
            assert 0 < latency.median <= latency.p95 <= latency.p99
    assert result[0].file_bytes == (predictor.folder.path / "model.safetensors").stat().st_size


def test_every_round_has_every_model_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def count(candidate: TimedModel, texts: list[str], batch: int) -> tuple[float, float]:
        seen.append((candidate.name, batch))
        return 1.0, 1.0

    monkeypatch.setattr(TimedModel, "seconds", count)
    candidates = [replace(over_words("static"), name=name) for name in "abc"]
    measure(candidates, TEXTS, "cpu", batch=7, rounds=12, singles=0)
    order = "".join(name for name, batch in seen if batch == 7)
    turns = {order[start : start + 3] for start in range(0, 36, 3)}
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns) and len(turns) > 2


@given(st.integers(1, 300), st.integers(1, 320))
def test_a_share_has_the_lengths_of_the_whole_and_neighbours_side_by_side(count: int, total: int) -> None:
    texts = ["x" * number for number in np.random.default_rng(total).permutation(total)]
    result = _share(texts, count)
    if count >= total:
        assert result == texts
        return
    assert count - RUN < len(result) <= count and len(set(result)) == len(result) and result == sorted(result)
    lengths = [len(text) for text in result]
    assert np.mean(lengths) == pytest.approx((total - 1) / 2, abs=1)
    runs = [lengths[start : start + RUN] for start in range(0, len(lengths), RUN)]
    assert all(run[-1] - run[0] == len(run) - 1 for run in runs)


def test_pairs_are_measured_as_pairs(predictor: TorchModel) -> None:
    pairs = [(text, TEXTS[-number]) for number, text in enumerate(TEXTS)]
    (result,) = measure([over_words("bilstm", (TOPIC,))], pairs, "cpu", rounds=2, singles=2)
    assert result.texts == 4
    assert of_folder("m", predictor.folder, pair=True).max_length == 32


def test_what_cannot_be_measured_is_said(make_model: Callable[..., Path]) -> None:
    from understill.models.folder import load_model

    with pytest.raises(UserError, match="no texts"):
        measure([over_words("static")], [], "cpu")
    with pytest.raises(UserError, match="has no task that reads two texts"):
        of_folder("m", load_model(make_model((TASKS[0],))), pair=True)


@pytest.mark.gpu
def test_precisions_and_memory_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    candidate = over_words("bilstm")
    result = measure([candidate, replace(candidate, exact=True)], TEXTS, "cuda", rounds=2, singles=2)
    assert [each.precision for each in result] == ["fp16", "fp32"]
    assert all(each.peak_bytes for each in result)
