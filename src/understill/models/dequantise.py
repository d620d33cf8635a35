"""Dequantising: the weights of an int8 ONNX encoder as float32, under their names in Hugging Face's model."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How onnxruntime's quantiser names the three tensors that one weight becomes.
_INTEGERS, _SCALE, _ZERO_POINT = "_quantized", "_scale", "_zero_point"


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the weights of an encoder that onnxruntime quantised dynamically; raise ImportError without onnx."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    stored: dict[str, NDArray[Any]] = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    stems = [name.removesuffix(_INTEGERS) for name in stored if name.endswith(_INTEGERS)]
    parts = {stem + part for stem in stems for part in (_INTEGERS, _SCALE, _ZERO_POINT)}
    weights = {name: value for name, value in stored.items() if name not in parts}
    matrices = _matrices(graph, set(stems))
    for stem in stems:
        value = dequantise(stored[stem + _INTEGERS], stored[stem + _SCALE], stored[stem + _ZERO_POINT])
        if stem in matrices:
            # The exporter turned each linear layer's matrix round and dropped its name.
            weights[matrices[stem]] = np.ascontiguousarray(value.T)
        else:
            weights[stem] = value
    return weights


def dequantise(integers: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any]) -> NDArray[np.float32]:
    """Return (integers − zero point)·scale, rounded once."""
    shifted = integers.astype(np.float32) - zero_point.astype(np.float32)  # small whole numbers: exact
    result: NDArray[np.float32] = shifted * scale
    return result


def _matrices(graph: Any, stems: Set[str]) -> Mapping[str, str]:
    """Name the matrix of every linear layer after the bias that is added to its product."""
    readers = {name: node for node in graph.node for name in node.input}
    names = {}
    for node in graph.node:
        # Attention multiplies as well, but no stored matrix.
        if node.op_type == "MatMulInteger" and (stem := node.input[1].removesuffix(_INTEGERS)) in stems:
            adding = node
            while adding.op_type != "Add":
                adding = readers[adding.output[0]]
            bias = next(name for name in adding.input if name.endswith(".bias"))
            names[stem] = f"{bias.removesuffix('.bias')}.weight"
    return names
