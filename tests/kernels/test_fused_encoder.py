"""A fused network: what Hugging Face's own says, for every architecture, way of pooling and reader of its states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from helpers import TASKS, TOPIC, liven, some_batch, some_model, some_tokens
from understill.data.packed import pack
from understill.evaluate import predict as module
from understill.evaluate.predict import predict_all
from understill.models import transformer
from understill.models.fused_encoder import Fused, fits
from understill.models.multitask import MultiTaskModel
from understill.models.transformer import Encoder

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
#: A GPU's GELU has the tanh form.
NEAR = 1e-5 if DEVICE == "cpu" else 2e-3


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse without a GPU too: Triton's interpreter runs the kernels."""
    if DEVICE == "cpu":
        monkeypatch.setattr(transformer, "fits", lambda network: True)


def far(result: Any, expected: Any) -> float:
    """Return a relative error."""
    one, two = (torch.as_tensor(each).float() for each in (result, expected))
    return float((one - two).norm() / two.norm())


def some_encoder(folder: Path, **settings: Any) -> tuple[MultiTaskModel, Encoder]:
    model = some_model(folder, **settings).eval()
    liven(model)
    model.to(DEVICE)
    assert isinstance(model.encoder, Encoder)
    return model, model.encoder


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", PACKABLE)
@torch.inference_mode()
def test_a_fused_encoder_has_the_vectors_and_states_of_the_plain_one(
    kind: str, pooling: str, tiny_of: Callable[[str], Path]
) -> None:
    _, encoder = some_encoder(tiny_of(kind), pooling=pooling)
    fused, batch = encoder.rounded(torch.float32), some_batch(9).to(torch.device(DEVICE))
    assert isinstance(fused.network, Fused) and not isinstance(encoder.network, Fused)
    for rows in (batch, pack(batch)):
        vectors, tokens = encoder.read(rows)
        result, states = fused.read(rows)
        assert far(result, vectors) < NEAR and far(fused(rows), vectors) < NEAR
        there = tokens.first | tokens.second
        assert far(states.states[there], tokens.states[there]) < NEAR


@torch.inference_mode()
def test_predictions_of_many_batches_with_padding_behind_them(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = some_encoder(tiny)
    tokens = some_tokens(TOPIC, 33)
    expected = predict_all(model, tokens, TASKS, 8, exact=True)
    monkeypatch.setattr(module, "BUDGET", 100)
    monkeypatch.setattr(module, "_padded", module._packed)
    result = predict_all(model.rounded(torch.float32), tokens, TASKS, 8, exact=True)
    for name, predictions in expected.items():
        assert np.ptp(predictions.logits, axis=0).min() > 0.1
        assert far(result[name].logits, predictions.logits) < NEAR


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_in_bfloat16_logits_are_as_near_to_float32_as_without_fusing(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encoder = some_encoder(tiny)
    tokens = some_tokens(TOPIC, 2000)
    exact, fused = (predict_all(model, tokens, TASKS, 8, exact=each) for each in (True, False))
    assert isinstance(encoder.rounded(torch.bfloat16).network, Fused)
    monkeypatch.setattr(transformer, "fits", lambda network: False)
    plain = predict_all(model, tokens, TASKS, 8)
    for name, expected in exact.items():
        errors = [far(each[name].logits, expected.logits) for each in (fused, plain)]
        assert errors[0] < 1.2 * errors[1] < 0.1


@pytest.mark.parametrize(("device", "activation"), [("cpu", "gelu"), ("cuda", "relu")])
def test_what_the_kernels_cannot_do_is_not_fused(device: str, activation: str) -> None:
    network = SimpleNamespace(device=torch.device(device), config=SimpleNamespace(hidden_act=activation))
    assert not fits(cast(Any, network))
