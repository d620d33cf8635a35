"""Networks over words leave as ONNX graphs, which say the same of rows of any number and length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import MOOD, STARS, TASKS, TOPIC, liven
from understill.data.batch import Batch
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder, WordsConfig
from understill.schema import HeadsSpec

runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

NAMES = ["ids", "lengths", "second"]
OPSET = 18
FORMS = {"one text": (MOOD,), "pair": (TOPIC,), "a score": (STARS,), "several tasks": TASKS}
#: The newer exporter writes an LSTM's steps out one by one, so that a graph of it has one length.
WAYS = [*((kind, form, False) for kind in ("bilstm", "static") for form in FORMS), ("static", "several tasks", True)]


class OfTensors(nn.Module):
    """A model whose rows come as tensors, as a graph has them."""

    def __init__(self, model: MultiTaskModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor, second: Tensor) -> Tensor:
        task, gold = torch.zeros_like(lengths), torch.zeros_like(lengths)
        return self.model(Batch(ids, lengths, second, task, gold, gold, task, gold, task))  # type: ignore[no-any-return]


def some_rows(rows: int, length: int, pair: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of all lengths up to the longest; a row without words too, where there are several."""
    generator = torch.Generator().manual_seed(rows * 100 + length)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    lengths[0] = length
    lengths[1:2] = 0
    second = (lengths * torch.rand(rows, generator=generator)).long() if pair else lengths.clone()
    return torch.randint(0, 150, (rows, length), generator=generator), lengths, second


def export(model: nn.Module, example: tuple[Tensor, ...], path: Path, dynamo: bool) -> None:
    if dynamo:
        rows, length = torch.export.Dim("rows"), torch.export.Dim("length")
        shapes = ({0: rows, 1: length}, {0: rows}, {0: rows})
        settings: dict[str, Any] = {"dynamic_shapes": shapes, "verbose": False}
    else:
        settings = {"dynamic_axes": {"ids": {0: "rows", 1: "length"}, "lengths": {0: "rows"}, "second": {0: "rows"}}}
    torch.onnx.export(
        model, example, str(path), input_names=NAMES, output_names=["logits"], opset_version=OPSET, dynamo=dynamo,
        **settings,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "form", "dynamo"), WAYS)
def test_a_graph_says_what_the_model_says(kind: str, form: str, dynamo: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = WordsConfig(kind, vocab_size=150, size=6, hidden=5, dense=7, channels="both")
    model = OfTensors(MultiTaskModel(WordEncoder(config), FORMS[form], HeadsSpec())).eval()
    liven(model.model)
    pair = any(task.pair for task in FORMS[form])
    export(model, some_rows(3, 11, pair), tmp_path / "model.onnx", dynamo)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    asked = [each.name for each in session.get_inputs()]
    assert set(asked) <= set(NAMES) and "ids" in asked
    for rows, length in ((3, 11), (1, 4), (7, 23), (2, 1)):
        given = some_rows(rows, length, pair)
        feed = {name: value.numpy() for name, value in zip(NAMES, given, strict=True) if name in asked}
        (found,) = session.run(None, feed)
        with torch.inference_mode():
            want = model(*given).numpy()
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)
        assert rows < 3 or np.ptp(want, axis=0).max() > 0.05, "rows are told apart"
