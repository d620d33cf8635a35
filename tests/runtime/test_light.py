"""The runtime is light: it answers where torch, transformers, pydantic and their like cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kinds import KINDS, SECOND, TEXTS, save_kind
from understill.evaluate.predictor import Predictor
from understill.models.folder import load_model
from understill.ship.onnx import write_onnx

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

#: A finder that refuses everything but the standard library and what the runtime may need.
PROGRAM = """
import json, sys

ALLOWED = {"understill", "onnxruntime", "tokenizers", "numpy", *sys.stdlib_module_names}
refused = []

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            refused.append(name)
            raise ImportError(f"{name} is not there", name=name)

sys.meta_path.insert(0, Refusing())
import understill

folder, texts, second = json.loads(sys.argv[1])
model = understill.load(folder)
answers = [model.predict(texts), model.predict(texts, pairs=second)]
ours = sorted(name for name in sys.modules if name.startswith("understill."))
told = [{task: [answer.label or answer.score for answer in said] for task, said in each.items()} for each in answers]
print(json.dumps([told, refused, ours]))
"""


@pytest.mark.parametrize("kind", ["bert", "bilstm"])
def test_it_answers_with_onnxruntime_tokenizers_and_numpy_alone(kind: str, tmp_path: Path) -> None:
    network, heads = KINDS[kind]
    predictor = Predictor(load_model(save_kind(tmp_path / "model", network, **heads)))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, tmp_path / "onnx")
    given = json.dumps([str(tmp_path / "onnx"), TEXTS, SECOND])
    done = subprocess.run([sys.executable, "-c", PROGRAM, given], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    told, refused, ours = json.loads(done.stdout)
    assert not {"torch", "transformers", "pydantic", "pyarrow", "onnx"} & set(refused), "not even tried"
    assert ours == [
        "understill.errors",
        "understill.loading",
        "understill.runtime",
        "understill.runtime.answers",
        "understill.runtime.cutting",
        "understill.runtime.onnx",
        "understill.tasks",
    ]
    for said, want in zip(told, (predictor.predict(TEXTS), predictor.predict(TEXTS, SECOND)), strict=True):
        assert set(said) == set(want)
        for name, answers in want.items():
            values = [answer.label or answer.score for answer in answers]
            close = values if answers[0].label else pytest.approx(values, abs=1e-4)
            assert said[name] == close


def test_what_is_missing_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    predictor = Predictor(load_model(save_kind(tmp_path / "model", "static")))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, tmp_path / "onnx")
    program = f"""
import sys
sys.modules["onnxruntime"] = None
import understill
from understill.errors import UserError
try:
    understill.load({str(tmp_path / "onnx")!r})
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert 'needs onnxruntime, which is not installed → pip install "understill[onnx]"' in done.stdout
