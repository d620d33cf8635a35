"""Networks over words leave as graphs, which say the same of rows of any number and length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import MOOD, STARS, TASKS, TOPIC, liven
from understill.export.onnx_graph import Graph, write_graph
from understill.inference.onnx import INPUTS
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import HeadsSpec

runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

FORMS = {"one text": (MOOD,), "pair": (TOPIC,), "a score": (STARS,), "several tasks": TASKS}


def some_rows(rows: int, length: int, pair: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of all lengths up to the longest; a row without words too, where there are several."""
    generator = torch.Generator().manual_seed(rows * 100 + length)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    lengths[0] = length
    lengths[1:2] = 0
    second = (lengths * torch.rand(rows, generator=generator)).long() if pair else lengths.clone()
    return torch.randint(0, 150, (rows, length), generator=generator), lengths, second


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["bilstm", "static"])
def test_a_graph_says_what_the_model_says(kind: str, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = WordsConfig(kind, vocab_size=150, size=6, hidden=5, dense=7, channels="both")
    model = MultiTaskModel(WordEncoder(config), FORMS[form], HeadsSpec()).eval()
    liven(model)
    pair = any(task.pair for task in FORMS[form])
    write_graph(model, FORMS[form], tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    asked = [each.name for each in session.get_inputs()]
    assert set(asked) <= set(INPUTS) and "ids" in asked
    empty = (torch.zeros(2, 1, dtype=torch.int64), *torch.zeros(2, 2, dtype=torch.int64))
    for given in (*(some_rows(*size, pair) for size in ((3, 11), (1, 4), (7, 23), (2, 1))), empty):
        feed = {name: value.numpy() for name, value in zip(INPUTS, given, strict=True) if name in asked}
        with torch.inference_mode():
            want = Graph(model, FORMS[form])(*given)
        for result, expected in zip(session.run(None, feed), want, strict=True):
            np.testing.assert_allclose(result, expected.numpy(), rtol=0, atol=1e-5)
        assert len(given[0]) < 3 or max(float(np.ptp(each.numpy(), axis=0).max()) for each in want) > 0.05, (
            "rows are told apart"
        )
