"""A fused network: the states of Hugging Face's own, for every architecture, row length and reader of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import TASKS, liven, some_batch, some_model, some_tokens, TOPIC
from understill.data.packed import pack
from understill.evaluate.predict import predict_all
from understill.models import transformer
from understill.models.fused import Fused
from understill.models.multitask import MultiTaskModel

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PACKABLE = ("bert", "electra", "roberta", "xlm-roberta", "camembert")


def far(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def made(folder: Path, **settings: Any) -> MultiTaskModel:
    model = some_model(folder, **settings).eval().to(DEVICE)
    liven(model)
    return model


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU Triton's interpreter runs the kernels."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if DEVICE == "cpu":
        monkeypatch.setattr(transformer, "fits", lambda network: True)


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", PACKABLE)
@torch.inference_mode()
def test_a_fused_encoder_has_the_vectors_and_states_of_the_plain_one(
    kind: str, pooling: str, tiny_of: Callable[[str], Path]
) -> None:
    encoder = made(tiny_of(kind), pooling=pooling).encoder
    fused, batch = encoder.rounded(torch.float32), some_batch(9).to(torch.device(DEVICE))
    assert isinstance(fused.network, Fused) and not isinstance(encoder.network, Fused)
    limit = 1e-5 if DEVICE == "cpu" else 2e-3  # where GELU has its tanh form
    for rows in (batch, pack(batch)):
        vectors, tokens = encoder.read(rows)
        found, states = fused.read(rows)
        assert far(found, vectors) < limit and far(fused(rows), vectors) < limit
        there = tokens.first | tokens.second
        assert far(states.states[there], tokens.states[there]) < limit
