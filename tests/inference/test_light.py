"""The runtime is light: it answers where torch, transformers, pydantic and their like cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kinds import KINDS, SECOND, TEXTS, save_kind
from understill.export.onnx_graph import write_onnx
from understill.inference.torch_model import TorchModel
from understill.models.folder import load_model

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
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", network, **heads)))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, tmp_path / "onnx")
    given = json.dumps([str(tmp_path / "onnx"), TEXTS, SECOND])
    done = subprocess.run([sys.executable, "-c", PROGRAM, given], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    reported, refused, ours = json.loads(done.stdout)
    assert not {"torch", "transformers", "pydantic", "pyarrow", "onnx"} & set(refused), "not even tried"
    assert ours == [
        "understill.atomic",
        "understill.errors",
        "understill.inference",
        "understill.inference.cores",
        "understill.inference.loading",
        "understill.inference.onnx",
        "understill.inference.predictor",
        "understill.inference.truncation",
        "understill.inference.word_cache",
        "understill.names",
        "understill.plugins",
        "understill.tasks",
        "understill.tasks.base",
        "understill.tasks.cells",
        "understill.tasks.classification",
        "understill.tasks.glue",
        "understill.tasks.metric",
        "understill.tasks.ranking",
        "understill.tasks.regression",
        "understill.tasks.task",
    ]
    for output, want in zip(reported, (predictor.predict(TEXTS), predictor.predict(TEXTS, SECOND)), strict=True):
        assert set(output) == set(want)
        for name, answers in want.items():
            values = [answer.label or answer.score for answer in answers]
            close = values if answers[0].label else pytest.approx(values, abs=1e-4)
            assert output[name] == close


def test_what_is_missing_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", "static")))
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


#: The same for the command line: what cannot be done here says what it lacks.
VERBS = """
import json, sys

allowed, verbs = json.loads(sys.argv[1])
ALLOWED = {"understill", "onnxruntime", "tokenizers", "numpy", *allowed, *sys.stdlib_module_names}

class Finding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        known = name.partition(".")[0] in ALLOWED or name.startswith("_sysconfigdata")
        return self.finder.find_spec(name, path, target) if known else None

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Finding, sys.meta_path)
sys.argv = ["understill", *verbs]
from understill.__main__ import main
main()
"""
#: typer, with what it brings along.
TYPER = [
    "typer",
    "rich",
    "click",
    "shellingham",
    "typing_extensions",
    "markdown_it",
    "mdurl",
    "pygments",
    "annotated_doc",
]
TYPER += ["pydantic", "pydantic_core", "annotated_types", "typing_inspection"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an export, the model that it was made of, and a file of texts."""
    root = tmp_path_factory.mktemp("small")
    predictor = TorchModel(load_model(save_kind(root / "model", "static")))
    (root / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, root / "onnx")
    (root / "in.csv").write_text("text\ngood\n", encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("libraries", "verbs", "code", "output"),
    [
        (TYPER, "predict onnx --text good", 0, "mood: "),
        (TYPER, "predict onnx --file in.csv --out out.csv", 2, "error: understill predict needs pyarrow, which is not"),
        ([*TYPER, "pyarrow"], "predict onnx --file in.csv --out out.csv", 0, "1 row answered for mood, topic, stars"),
        (TYPER, "bench onnx --no-http --rounds 1", 0, "text to answer: 512 texts of mood, 1 round"),
        (TYPER, "predict model --text good", 2, "→ pip install understill, or export the model"),
        (TYPER, "export model --to onnx --out new", 2, "error: understill export needs yaml, which is not installed"),
        (TYPER, "evaluate model", 2, "which is not installed → pip install understill, with all that it requires"),
        (
            [],
            "predict onnx --text good",
            2,
            "error: the command line needs typer, which is not installed → pip install",
        ),
    ],
)
def test_where_little_is_installed_a_verb_answers_or_says_what_it_needs(
    small: Path, libraries: list[str], verbs: str, code: int, output: str
) -> None:
    given = json.dumps([libraries, verbs.split()])
    command = [sys.executable, "-c", VERBS, given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=small)
    reported = done.stdout + done.stderr
    assert (done.returncode, output in reported, "Traceback" in reported) == (code, True, False), reported
    assert code == 0 or len(reported.splitlines()) == 1
