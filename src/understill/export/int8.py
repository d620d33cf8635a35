"""int8: an exported graph with weights of one byte each, and what that costs on dev sets."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from understill.disk import seal, write_json
from understill.errors import UserError
from understill.export.rowwise_int8 import round_products
from understill.runtime.onnx import GRAPH, MANIFEST
from understill.tasks.metric import is_error

#: Points by which arithmetic may let a loss seem to pass the limit; one row of a million is a hundred times that.
SLACK = 1e-6


@dataclass(frozen=True)
class Rounded:
    """A metric of a dev set before and after rounding, as fractions of 1."""

    place: str
    metric: str
    before: float
    after: float

    @property
    def loss(self) -> float:
        """The points out of 100 that are lost; of an error, which has no such scale, what it grew by."""
        return self.after - self.before if is_error(self.metric) else 100 * (self.before - self.after)


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


def refuse_loss(found: Sequence[Rounded], limit: float) -> None:
    """Refuse rounded weights that lose more than so many points by any metric of any dev set, or that have no score."""
    bad = [each for each in found if not each.loss <= limit + SLACK]
    if bad:
        said = "; ".join(f"{each.place} {each.metric} {each.before:.4f} → {each.after:.4f}" for each in bad)
        if not all(math.isfinite(each.loss) for each in bad):
            raise UserError(f"int8 has scores that are no numbers: {said} → write --to onnx")
        fix = f"allow it with --limit {max(each.loss for each in bad) + 0.1:.1f}, or write --to onnx"
        raise UserError(f"int8 loses more than {limit:g} points: {said} → {fix}")
