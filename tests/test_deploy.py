"""What is meant for deploying fits the program: installed lists are whole and pinned, commands and graphs are real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main

from kinds import KINDS, save_kind
from understill.cli import app
from understill.export.onnx_graph import write_onnx
from understill.inference.onnx import OnnxModel
from understill.models.folder import load_model
from understill.serve.settings import read_keys

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "understill.service").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
INSTALLED = re.findall(r"pip install .*constraints.txt \\\n\s+(.*) \\\n", DOCKERFILE)[0].split()


def takes(words: list[str]) -> None:
    """Parse the words after `understill serve` as the program does."""
    program = typer.main.get_command(app)
    program.commands["serve"].make_context("serve", words)  # type: ignore[attr-defined]


def test_the_image_has_what_the_server_needs_pinned_and_nothing_heavy() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = {re.split(r"[<>=]", each)[0] for each in project["optional-dependencies"]["serve"]}
    assert needed | {"numpy", "pydantic", "tokenizers", "typer"} == set(INSTALLED)
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert set(INSTALLED) <= pinned
    assert "pip install --no-cache-dir --no-deps /understill" in DOCKERFILE


def test_image_and_unit_start_a_server_that_there_is() -> None:
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.M)[0]) == ["understill", "serve"]
    takes(json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.M)[0]))
    takes(re.findall(r"^ExecStart=\S+/understill serve (.*)$", UNIT, re.M)[0].split())
    assert "USER understill" in DOCKERFILE and "STOPSIGNAL SIGTERM" in DOCKERFILE and "DynamicUser=yes" in UNIT


def test_the_pages_install_what_the_image_does() -> None:
    lists = re.findall(r"pip install (httptools .*)", PAGE)
    assert len(lists) == 2 and {tuple(sorted(each.split())) for each in lists} == {tuple(sorted(INSTALLED))}
    assert not re.search(r"pip install( --no-deps)? understill$", PAGE, re.M), "it is on no index"


def test_the_image_is_built_from_what_the_package_is_made_of_and_nothing_else() -> None:
    ignored, *let_in = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()[1:]
    assert ignored == "*"
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = {"src", "pyproject.toml", "constraints.txt", project["readme"], *project["license-files"]}
    assert {each.removeprefix("!") for each in let_in if each.startswith("!")} == needed
    assert all((ROOT / each).exists() for each in needed)


def test_the_steps_for_systemd_make_what_the_unit_asks_for(tmp_path: Path) -> None:
    """Run them in a folder instead of /, with an installer and a systemctl that only note that they were called."""
    steps = next(each for each in re.findall(r"```bash\n(.*?)```", PAGE, re.S) if "systemctl" in each)
    steps = re.sub(r"(?<!\S)/(?=(opt|srv|etc)/)", f"{tmp_path}/", steps)
    (tmp_path / "runs/inbox/export/int8").mkdir(parents=True)
    (tmp_path / "runs/inbox/export/int8/model.onnx").write_text("a graph", encoding="utf-8")
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for place in ("opt/understill/bin/pip", "bin/systemctl"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n', encoding="utf-8")
        (tmp_path / place).chmod(0o755)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "bin/python3.11").write_text(
        f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    (tmp_path / "bin/python3.11").chmod(0o755)
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", steps], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == ""
    model = re.findall(r"^ExecStart=\S+/understill serve /(\S+)", UNIT, re.M)[0]
    assert (tmp_path / model / "model.onnx").is_file()
    keys = tmp_path / re.findall(r"^LoadCredential=keys:/(\S+)", UNIT, re.M)[0]
    assert len(read_keys(keys)) == 1 and keys.stat().st_mode & 0o077 == 0
    assert (tmp_path / "etc/systemd/system/understill.service").read_text(encoding="utf-8") == UNIT
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert called[-1] == "enable --now understill" and len(called) == 3


@pytest.mark.parametrize("kind", ["bert", "bilstm"])
def test_triton_is_told_the_names_and_sizes_of_the_real_graph(kind: str, tmp_path: Path) -> None:
    network, heads = KINDS[kind]
    folder = load_model(save_kind(tmp_path / "model", network, **heads))
    (tmp_path / "inbox").mkdir()
    write_onnx(folder, folder.tasks, tmp_path / "inbox")
    program = [sys.executable, str(ROOT / "deploy" / "triton.py"), str(tmp_path / "inbox")]
    config = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True).stdout
    assert config.startswith('backend: "onnxruntime"\n'), "Triton names the model after its folder"
    entry = r'name: "(\w+)", data_type: (\w+), dims: \[ (.*?) \]'
    reported = {
        name: (kind, [int(size) for size in sizes.split(",")]) for name, kind, sizes in re.findall(entry, config)
    }
    rows, ids = ("TYPE_INT64", [-1]), ("TYPE_INT64", [-1, -1])
    assert {name: reported.pop(name) for name in OnnxModel(tmp_path / "inbox").asks} == {
        "ids": ids, "lengths": rows, "second": rows,
    }  # fmt: skip
    assert reported == {f"logits_{task.name}": ("TYPE_FP32", [-1, task.outputs]) for task in folder.tasks}


def test_a_folder_without_a_graph_is_one_sentence(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "deploy" / "triton.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith("usage: ") and "Traceback" not in done.stderr


def test_triton_config_without_onnxruntime_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError", encoding="utf-8")
    program = [sys.executable, str(ROOT / "deploy" / "triton.py"), str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "has no onnxruntime → run this with the Python that understill is installed for" in done.stderr


def test_the_steps_for_triton_are_the_same_on_the_page_and_in_the_program() -> None:
    steps = re.findall(r"^    (\S.*)$", (ROOT / "deploy" / "triton.py").read_text(encoding="utf-8"), re.M)[:3]
    assert steps[2].endswith("> models/inbox/config.pbtxt") and "\n".join(steps) in PAGE
