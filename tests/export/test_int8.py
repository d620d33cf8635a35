"""Products in int8 are those of the closed form, and no row sees another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinds import KINDS, SECOND, TASKS, TEXTS, save_kind
from understill.export.int8 import round_columns, round_products, round_weights
from understill.export.onnx_graph import write_onnx
from understill.inference.onnx import OnnxModel
from understill.models.folder import load_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Matrix = NDArray[np.float32]


def graph_of(nodes: list[Any], weights: dict[str, Matrix], width: int, outputs: list[str], rank: int = 2) -> Any:
    """A graph whose input is `x`, rows of any number."""
    free = [f"d{place}" for place in range(rank - 1)]
    real = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "products",
        [onnx.helper.make_tensor_value_info("x", real, [*free, width])],
        [onnx.helper.make_tensor_value_info(name, real, [*free, None]) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


def ask(model: Any, x: Matrix) -> list[Matrix]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: list[Matrix] = session.run(None, {"x": x})
    return result


def closed_form(x: Matrix, weights: Matrix) -> NDArray[np.float64]:
    """Each row in steps of a 127th of its widest number, each column likewise."""
    steps = np.maximum(np.abs(x).max(-1, keepdims=True) * np.float32(1 / 127), np.finfo(np.float32).tiny)
    columns, scales = round_columns(weights)
    return (np.rint(x / steps).astype(np.int64) @ columns.astype(np.int64)) * steps.astype(float) * scales.astype(float)


def matrices(rows: int, width: int, columns: int, seed: int) -> tuple[Matrix, Matrix]:
    """Rows of very different sizes, one of them zero, and weights."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, width)) * 10.0 ** draw.integers(-6, 7, (rows, 1))
    x[draw.integers(rows)] = 0
    return x.astype(np.float32), draw.standard_normal((width, columns)).astype(np.float32)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 70), st.integers(1, 40), st.integers(0, 10**6))
def test_a_product_is_the_closed_form(rows: int, width: int, columns: int, seed: int) -> None:
    x, weights = matrices(rows, width, columns, seed)
    model = graph_of([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights}, width, ["y"])
    round_products(model)
    assert [each.name for each in model.graph.initializer if each.name == "w"] == []
    (result,) = ask(model, x)
    sizes = np.abs(x).max(-1, keepdims=True) * np.abs(weights).max() * width
    # A number that lies on the edge between two steps, but for its last bit, may be rounded either way.
    assert (np.abs(result - closed_form(x, weights)) <= sizes * (1e-6 + 1 / 127 / width)).all()
    half = sizes * (0.5 / 127) * (1 + 1 + 0.5 / 127) + 1e-30
    assert (np.abs(result - x.astype(float) @ weights.astype(float)) <= half * 1.001).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 9), st.integers(1, 50), st.integers(0, 10**6))
def test_no_row_sees_another(rows: int, width: int, seed: int) -> None:
    x, weights = matrices(rows, width, 8, seed)
    model = graph_of([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights}, width, ["y"])
    round_products(model)
    (together,) = ask(model, x)
    for place in range(rows):
        np.testing.assert_array_equal(ask(model, x[place : place + 1])[0][0], together[place])


def test_biases_turned_matrices_and_shared_rows_are_taken() -> None:
    x, first = matrices(4, 12, 5, 0)
    second, bias = np.ascontiguousarray(first.T[:3]), np.arange(3, dtype=np.float32)
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=1.0, beta=1.0),
        onnx.helper.make_node("MatMul", ["x", "v"], ["z"]),
    ]
    model = graph_of(nodes, {"w": second, "b": bias, "v": first}, 12, ["y", "z"])
    round_products(model)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("MatMulIntegerToFloat") == 2
    y, z = ask(model, x)
    np.testing.assert_allclose(y, closed_form(x, second.T) + bias, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(z, closed_form(x, first), rtol=1e-5, atol=1e-4)


def test_rows_may_stand_in_several_dimensions() -> None:
    x, weights = matrices(12, 7, 4, 1)
    model = graph_of([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights}, 7, ["y"], rank=3)
    round_products(model)
    (result,) = ask(model, x.reshape(3, 4, 7))
    np.testing.assert_allclose(result.reshape(12, 4), closed_form(x, weights), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"alpha": 2.0}, {"transA": 1}])
def test_what_is_more_than_a_product_is_left_alone(options: dict[str, Any]) -> None:
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"], **options)
    model = graph_of([node], {"w": np.eye(4, dtype=np.float32)}, 4, ["y"])
    round_products(model)
    assert [each.op_type for each in model.graph.node] == ["Gemm"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_answered_alike_alone_and_among_others(kind: str, tmp_path: Path) -> None:
    network, heads = KINDS[kind]
    loaded = load_model(save_kind(tmp_path / kind, network, **heads))
    (place := tmp_path / "export").mkdir()
    write_onnx(loaded, loaded.tasks, place)
    round_weights(place)
    model = OnnxModel(place, threads=1)
    singles, pairs = [[task for task in TASKS if task.pair is pair] for pair in (False, True)]
    # onnxruntime's LSTM rounds a step of all rows together.
    near = 0.05 if network == "bilstm" else 2e-6
    for texts, second, tasks in ((TEXTS, None, singles), (TEXTS, SECOND, pairs)):
        together = model.logits(texts, second, tasks)
        for place_, text in enumerate(texts):
            alone = model.logits([text], second and [second[place_]], tasks)
            for task in tasks:
                off = np.abs(alone[task.name].logits[0] - together[task.name].logits[place_]).max()
                assert off <= near, (task.name, text, off)
