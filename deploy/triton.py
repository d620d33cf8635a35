"""Write the config.pbtxt with which Triton's ONNX Runtime backend serves an exported folder.

    mkdir -p models/inbox/1
    cp runs/inbox/export/int8/model.onnx models/inbox/1/
    .venv/bin/python deploy/triton.py runs/inbox/export/int8 > models/inbox/config.pbtxt

Any Python that has onnxruntime will do. Names, types and sizes are read from the graph itself; the model's name is left
out, because Triton takes the folder's. Whoever asks sends token ids, as docs/shipping.md tells.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from onnxruntime import InferenceSession
except ImportError:
    sys.exit(f"{sys.executable} has no onnxruntime → run this with the Python that understill is installed for")

TYPES = {"tensor(int64)": "TYPE_INT64", "tensor(float)": "TYPE_FP32"}


def config_of(folder: Path) -> str:
    """Return the config of a folder's graph."""
    session = InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    # 0: the first dimension is a dimension like others. Rows of one request are a batch already, padded by who asks.
    head = 'backend: "onnxruntime"\nmax_batch_size: 0\n'
    return head + _part("input", session.get_inputs()) + _part("output", session.get_outputs())


def _part(name: str, tensors: Sequence[Any]) -> str:
    entries = [
        f'  {{ name: "{each.name}", data_type: {TYPES[each.type]}, dims: [ {", ".join(map(_size, each.shape))} ] }}'
        for each in tensors
    ]
    return f"{name} [\n" + ",\n".join(entries) + "\n]\n"


def _size(dimension: int | str) -> str:
    """Return a dimension's size; -1 where any will do."""
    return str(dimension) if isinstance(dimension, int) else "-1"


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "model.onnx").is_file():
        sys.exit("usage: python3 deploy/triton.py FOLDER, an export to onnx or int8")
    sys.stdout.write(config_of(Path(sys.argv[1])))
