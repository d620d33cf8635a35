"""What all tests share: offline, quiet, and encoders small enough to train for real in a second."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
# Tests run side by side, and their models are too small for several threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("COLUMNS", None)  # whoever runs the tests in parallel may set it, and tables would be as narrow

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

import plugins.letters
from tiny import save_tiny
from understill.plugins import ANNEALING, LOSSES, NETWORKS, TAGGERS, TEACHERS, Registry
from understill.recipe import Recipe, make_recipe
from understill.tasks import KINDS, METRICS

# Machines are noisy: a slow example is no failure.
settings.register_profile("understill", deadline=None)
settings.load_profile("understill")


@pytest.fixture(autouse=True)
def _no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test know a plug-in because another has imported it."""
    for registry in (ANNEALING, LOSSES, TEACHERS, NETWORKS, TAGGERS):
        monkeypatch.setattr(registry, "_added", {})


@pytest.fixture
def letters() -> None:
    """Make the tagger `letters` known."""
    TAGGERS.register("letters")(plugins.letters.letters)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes a package with an entry point known, as pip does, until the test is over."""
    there = tmp_path / "site-packages"

    def make(registry: Registry[Any], name: str, value: str, version: str = "1.0") -> None:
        folder = there / f"{name}_plugin-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(f"[{registry.group}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(there)
        monkeypatch.setattr(registry, "_points", None)
        monkeypatch.setattr(registry, "_added", {})

    return make


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds and metrics that test modules register as they are imported are there for no test but by its own wish."""
    for registry in (KINDS, METRICS):
        monkeypatch.setattr(registry, "_added", {})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT, 32 wide."""
    return save_tiny(tmp_path_factory.mktemp("encoders") / "tiny-bert")


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that gives a tiny encoder of an architecture, written once each."""
    root = tmp_path_factory.mktemp("architectures")

    def folder(kind: str) -> Path:
        return root / kind if (root / kind).exists() else save_tiny(root / kind, kind)

    return folder


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A four-layer BERT, 32 wide."""
    return save_tiny(tmp_path_factory.mktemp("deep") / "deep-bert", num_hidden_layers=4)


@pytest.fixture(scope="session")
def tiny_values(tiny: Path) -> Callable[[Path], dict[str, Any]]:
    """A function that gives the plain values of a recipe that trains in about a second, with its output folder."""

    def values(runs: Path) -> dict[str, Any]:
        return {
            "name": "tiny",
            "data": {"demo": {"rows": 64}},
            "tasks": ["mood", "follows", "similar"],
            "encoder": {"name": str(tiny), "max_length": 32},
            "training": {"steps": 6, "batch": 8, "lr": 1e-3, "evaluate": "3 steps"},
            "output": {"folder": str(runs)},
            "machine": {"device": "cpu", "threads": 1},
        }

    return values


@pytest.fixture
def recipe_values(tiny_values: Callable[[Path], dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    """The plain values of a recipe that trains in about a second."""
    return tiny_values(tmp_path / "runs")


@pytest.fixture
def make_tiny(recipe_values: dict[str, Any]) -> Callable[..., Recipe]:
    """A function that makes the tiny recipe with changes, given as keyword sections."""

    def make(**changes: Any) -> Recipe:
        merged = dict(recipe_values)
        for key, value in changes.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict) and key != "tasks"
            merged[key] = {**merged[key], **value} if both else value
        return make_recipe(merged)

    return make


@pytest.fixture
def recipe_file(recipe_values: dict[str, Any], tmp_path: Path) -> Path:
    """The tiny recipe as a file."""
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_values), encoding="utf-8")
    return path


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line that the Triton kernels were not run, which a list of skipped tests hides."""
    ran, skipped = (
        [report for report in terminalreporter.getreports(outcome) if report.nodeid.startswith("tests/kernels/")]
        for outcome in ("passed", "skipped")
    )
    if skipped and not ran:
        terminalreporter.write_line(
            f"Triton kernels: {len(skipped)} tests not run; with `pip install triton` they need no GPU"
        )


@pytest.fixture
def small_glue(tmp_path: Path) -> Path:
    """Two GLUE tasks made of the demo's sentences, with unlabelled text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from understill.data import demo

    folder = tmp_path / "glue"
    for name, kind in (("RTE", str), ("STS-B", float)):
        (folder / name).mkdir(parents=True)
        for split, rows in (("train", 48), ("dev", 24)):
            (batch,) = demo.batches("similar", split, rows, 0)
            scores = batch.column("label").to_pylist()
            label = [int(score < 2.5) for score in scores] if kind is str else scores
            columns = {
                "sentence1": batch.column("first"),
                "sentence2": batch.column("second"),
                "label": pa.array(label),
            }
            pq.write_table(pa.table(columns), folder / name / f"{split}.parquet")
    return folder
