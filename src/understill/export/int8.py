"""int8: a graph whose products have weights of one byte, with a scale for each row of activations: batch-invariant."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understill.atomic import seal, write_json
from understill.inference.onnx import GRAPH, MANIFEST

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

#: Activations are bytes about a middle: what processors multiply fastest is bytes without a sign by bytes with one.
MIDDLE, REACH = 128, 127
#: Where onnxruntime keeps operators of its own.
OWN = "com.microsoft"
_UNIT, _TINY, _ONE, _MIDDLE, _ALL = (f"rows/{name}" for name in ("unit", "tiny", "one", "middle", "all"))
_CONSTANTS: dict[str, NDArray[Any]] = {
    _UNIT: np.array(1 / REACH, np.float32),
    _TINY: np.array(np.finfo(np.float32).tiny * REACH, np.float32),  # so that a row of zeros has a scale
    _ONE: np.array(1, np.float32),
    _MIDDLE: np.array(MIDDLE, np.uint8),
    _ALL: np.array([-1], np.int64),
}


def round_weights(folder: Path) -> None:
    """Exchange the graph of an exported folder for one with int8 weights; activations are rounded as they come.

    Products of matrices are rounded row by row; what is left for onnxruntime are tables of vectors and recurrences.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph, rounded = folder / GRAPH, folder / f"{GRAPH}.int8"
    model = onnx.load(graph)
    round_products(model)
    with _quiet():
        quantize_dynamic(model, rounded, weight_type=QuantType.QInt8, per_channel=True)
    rounded.replace(graph)
    facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    write_json(folder / MANIFEST, {**facts, "weights": "int8"})
    seal(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the root logger, which the quantiser writes its advice to, to errors."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def round_products(model: ModelProto) -> None:
    """Exchange each product with a matrix of weights for one in int8."""
    from onnx import helper, numpy_helper

    graph = model.graph
    writer = _NodeWriter(graph)
    nodes = [made for node in graph.node for made in writer.exchange(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    new = [numpy_helper.from_array(value, name) for name, value in writer.stored.items()]
    del graph.initializer[:]
    graph.initializer.extend(kept + new)
    if all(each.domain != OWN for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(OWN, 1))


def round_columns(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix as whole numbers from −127 to 127, and the scale of each column."""
    scales = np.maximum(np.abs(matrix).max(axis=0) / REACH, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(matrix / scales).astype(np.int8), scales


class _NodeWriter:
    """Writes the nodes that stand for products, and keeps the tensors that they need."""

    def __init__(self, graph: GraphProto) -> None:
        from onnx import numpy_helper

        arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self.matrices = {name: value for name, value in arrays.items() if value.ndim == 2 and value.dtype == np.float32}
        self.stored = dict(_CONSTANTS)
        self.rounded: set[str] = set()  # activations that an earlier product has rounded

    def exchange(self, node: NodeProto) -> list[NodeProto]:
        """Return what is to stand in a node's place."""
        from onnx import helper

        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in self.matrices:
            return [node]
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        turned = bool(options.pop("transB", 0))
        if any(value != {"transA": 0}.get(name, 1) for name, value in options.items()):
            return [node]
        rows, columns = node.input[0], self._columns(node.input[1], turned)
        product, biased = f"{node.output[0]}/rows/product", len(node.input) > 2
        whole = f"{node.output[0]}/rows/whole" if biased else node.output[0]
        made = self._rounding(rows)
        # onnxruntime would take a scale that it finds elsewhere for one number; so none is given here.
        asked = [f"{rows}/rows", columns, _ONE, f"{columns}/scales", _MIDDLE]
        made.append(helper.make_node("MatMulIntegerToFloat", asked, [product], domain=OWN))
        made.append(helper.make_node("Mul", [product, f"{rows}/rows/scales"], [whole]))
        if biased:
            made.append(helper.make_node("Add", [whole, node.input[2]], [node.output[0]]))
        return made

    def _columns(self, name: str, turned: bool) -> str:
        """Keep a matrix in int8 with the scales of its columns, and return its name."""
        own = f"{name}/columns{'/turned' if turned else ''}"
        if own not in self.stored:
            matrix = self.matrices[name]
            self.stored[own], self.stored[f"{own}/scales"] = round_columns(matrix.T if turned else matrix)
        return own

    def _rounding(self, name: str) -> list[NodeProto]:
        """Return what rounds activations, each row by its own widest number; products of the same share it."""
        from onnx import helper

        if name in self.rounded:
            return []
        self.rounded.add(name)

        def own(part: str) -> str:
            return f"{name}/rows/{part}"

        return [
            helper.make_node("Abs", [name], [own("sizes")]),
            helper.make_node("ReduceMax", [own("sizes"), _ALL], [own("widest")], keepdims=1),
            helper.make_node("Max", [own("widest"), _TINY], [own("reach")]),
            helper.make_node("Mul", [own("reach"), _UNIT], [own("scales")]),
            # One pass rounds all rows, if they come as a matrix, with their scales and middles as vectors.
            helper.make_node("Flatten", [name], [own("matrix")], axis=-1),
            helper.make_node("Reshape", [own("scales"), _ALL], [own("line")]),
            helper.make_node("Shape", [own("line")], [own("count")]),
            helper.make_node("Expand", [_MIDDLE, own("count")], [own("middles")]),
            helper.make_node("QuantizeLinear", [own("matrix"), own("line"), own("middles")], [own("bytes")], axis=0),
            helper.make_node("Shape", [name], [own("shape")]),
            helper.make_node("Reshape", [own("bytes"), own("shape")], [f"{name}/rows"]),
        ]
