"""An int8 ONNX file such as onnxruntime's dynamic quantisation leaves behind, for tests that read one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]


def write_quantised(weights: Weights, path: Path) -> Weights:
    """Write an encoder's weights with its tables and matrices quantised, and return what can be had back of them."""
    from onnx import helper, numpy_helper, save

    tensors: list[Any] = []
    nodes: list[Any] = [
        # Attention multiplies two activations, one of which has a name like a stored matrix.
        helper.make_node("MatMulInteger", ["query_quantized", "key_quantized"], ["products"]),
    ]
    back = {}
    for number, (name, value) in enumerate(weights.items()):
        if value.ndim == 1:
            tensors.append(numpy_helper.from_array(value, name))
            back[name] = value
            continue
        table = "embeddings" in name
        stem = name if table else f"onnx::MatMul_{number}"
        integers, scale, zero = _of_table(value) if table else _of_matrix(value.T)
        parts = {"quantized": integers, "scale": scale, "zero_point": zero}
        tensors += [numpy_helper.from_array(part, f"{stem}_{key}") for key, part in parts.items()]
        exact = ((integers.astype(np.int64) - int(zero)) * np.float64(scale)).astype(np.float32)
        back[name] = exact if table else np.ascontiguousarray(exact.T)
        if not table:
            nodes += _product(stem, name.replace(".weight", ".bias"), number)
    graph = helper.make_graph(nodes, "encoder", [], [], tensors)
    save(helper.make_model(graph), path)
    return back


def _of_table(value: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.uint8]]:
    """Quantise between the smallest and the largest value."""
    scale = np.float32((value.max() - value.min()) / 255)
    zero = np.uint8(round(-value.min() / scale))
    integers = np.clip(np.round(value / scale) + zero, 0, 255).astype(np.uint8)
    return integers, np.asarray(scale), np.asarray(zero)


def _of_matrix(value: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int8]]:
    """Quantise around zero."""
    scale = np.float32(abs(value).max() / 127)
    return np.round(value / scale).astype(np.int8), np.asarray(scale), np.asarray(np.int8(0))


def _product(stem: str, bias: str, number: int) -> list[Any]:
    """The nodes that multiply by a stored matrix, undo the scales and add the bias."""
    from onnx import TensorProto, helper

    at = f"node{number}"
    return [
        helper.make_node("DynamicQuantizeLinear", [f"{at}_x"], [f"{at}_x_quantized", f"{at}_x_scale", f"{at}_x_zero"]),
        helper.make_node("Mul", [f"{at}_x_scale", f"{stem}_scale"], [f"{at}_scales"]),
        helper.make_node(
            "MatMulInteger",
            [f"{at}_x_quantized", f"{stem}_quantized", f"{at}_x_zero", f"{stem}_zero_point"],
            [f"{at}_integers"],
        ),
        helper.make_node("Cast", [f"{at}_integers"], [f"{at}_cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{at}_cast", f"{at}_scales"], [f"{at}_product"]),
        helper.make_node("Add", [bias, f"{at}_product"], [f"{at}_y"]),
    ]
