"""What is meant for deploying fits the program: installed lists are whole and pinned, commands and graphs are real."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main

from kinds import KINDS, save_kind
from understill.cli import app
from understill.models.folder import load_model
from understill.runtime.onnx import OnnxModel
from understill.ship.onnx import write_onnx

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "understill.service").read_text(encoding="utf-8")
INSTALLED = re.findall(r"pip install .*constraints.txt \\\n\s+(.*) \\\n", DOCKERFILE)[0].split()


def takes(words: list[str]) -> None:
    """Parse the words after `understill serve` as the program does."""
    program = typer.main.get_command(app)
    program.commands["serve"].make_context("serve", words)  # type: ignore[attr-defined]


def test_the_image_has_what_the_server_needs_pinned_and_nothing_heavy() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = {re.split(r"[<>=]", each)[0] for each in project["optional-dependencies"]["serve"]}
    assert needed | {"numpy", "tokenizers", "typer"} == set(INSTALLED)
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert set(INSTALLED) <= pinned
    assert "pip install --no-cache-dir --no-deps /understill" in DOCKERFILE


def test_image_and_unit_start_a_server_that_there_is() -> None:
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.M)[0]) == ["understill", "serve"]
    takes(json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.M)[0]))
    takes(re.findall(r"^ExecStart=\S+/understill serve (.*)$", UNIT, re.M)[0].split())
    assert "USER understill" in DOCKERFILE and "STOPSIGNAL SIGTERM" in DOCKERFILE and "DynamicUser=yes" in UNIT
    assert set(re.findall(r"pip install (fastapi .*)", UNIT)[0].split()) == set(INSTALLED)


@pytest.mark.parametrize("kind", ["bert", "bilstm"])
def test_triton_is_told_the_names_and_sizes_of_the_real_graph(kind: str, tmp_path: Path) -> None:
    network, heads = KINDS[kind]
    folder = load_model(save_kind(tmp_path / "model", network, **heads))
    (tmp_path / "inbox").mkdir()
    write_onnx(folder, folder.tasks, tmp_path / "inbox")
    program = [sys.executable, str(ROOT / "deploy" / "triton.py"), str(tmp_path / "inbox")]
    config = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'name: "inbox"' in config and 'backend: "onnxruntime"' in config
    entry = r'name: "(\w+)", data_type: (\w+), dims: \[ (.*?) \]'
    told = {name: (kind, [int(size) for size in sizes.split(",")]) for name, kind, sizes in re.findall(entry, config)}
    rows, ids = ("TYPE_INT64", [-1]), ("TYPE_INT64", [-1, -1])
    assert {name: told.pop(name) for name in OnnxModel(tmp_path / "inbox").asks} == {
        "ids": ids, "lengths": rows, "second": rows,
    }  # fmt: skip
    assert told == {f"logits_{task.name}": ("TYPE_FP32", [-1, task.outputs]) for task in folder.tasks}


def test_a_folder_without_a_graph_is_one_sentence(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "deploy" / "triton.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith("usage: ") and "Traceback" not in done.stderr
