"""The server of an ONNX export needs no torch, no transformers and no other heavy library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from serving import serving

#: What a training machine has, and a serving machine need not have.
HEAVY = (
    "torch",
    "transformers",
    "accelerate",
    "pyarrow",
    "scipy",
    "sklearn",
    "safetensors",
    "jinja2",
    "joblib",
    "onnx",
)

PROGRAM = f"""
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            print(f"somebody wants {{name}}", file=sys.stderr)
            raise ImportError(f"{{name}} is not there", name=name)

sys.meta_path.insert(0, Refusing())
from understill.cli import main
main()
"""


def test_an_export_is_served_where_no_heavy_library_can_be_imported(exports: dict[str, Path], tmp_path: Path) -> None:
    options = ("--teacher", exports["teacher"], "--log", "errors")
    with serving(exports["student"], tmp_path, *options, program=PROGRAM) as server:
        reply = server.ask(texts=["good"], teacher=True)
        assert reply.status_code == 200 and set(reply.json()["answers"][0]) == {"mood", "topic", "stars"}
        for path in ("/", "/docs", "/openapi.json", "/metrics", "/v1/tasks", "/readyz"):
            assert server.get(path).status_code == 200
        assert [line["event"] for line in server.lines()] == ["ready"], "nor does anybody try"
        maps = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
        assert "libtorch" not in maps and "onnxruntime" in maps


def test_what_needs_torch_says_so_where_there_is_none(exports: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "understill.json").write_text(json.dumps({"format": 1}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "serve", folder, "--port", "0"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is no ONNX export, and other models need torch, which is not installed" in done.stderr
