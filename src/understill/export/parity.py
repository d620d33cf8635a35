"""Parity: whether an export says what the model says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understill.errors import UserError
from understill.runtime.answers import Predictions

#: What logits, or scores, may differ by.
TOLERANCE = 1e-4
#: Rows of each dev set that an export is checked with.
ROWS = 1000


@dataclass(frozen=True)
class Parity:
    """How far an export is from its model on real rows."""

    place: str
    rows: int
    worst: float  # the largest difference of a logit, or of a score
    changed: int  # rows with another label


def compare(place: str, model: Predictions, export: Predictions) -> Parity:
    """Compare what a model and its export say of the same rows."""
    apart = np.abs(model.logits - export.logits)
    worst = float(apart.max(initial=0.0)) if np.isfinite(apart).all() else float("inf")
    changed = int((model.values != export.values).sum()) if model.task.kind.has_classes else 0
    return Parity(place, len(apart), worst, changed)


def refuse_no_numbers(who: str, place: str, said: Predictions) -> None:
    """Refuse a model, or an export of one, some of whose answers are no numbers."""
    bad = int((~np.isfinite(said.logits)).any(axis=1).sum())
    if bad:
        fix = "write --to onnx" if who == "int8" else "its weights are broken; train it again"
        what = f"{who} answers {bad:,} of {len(said.logits):,} rows of {place} with what is no number"
        raise UserError(f"{what} → {fix}")


def refuse_difference(found: Sequence[Parity]) -> None:
    """Refuse an export that says something else than its model."""
    # Labels may change only where two logits tie within the tolerance.
    bad = [each for each in found if not each.worst <= TOLERANCE]
    if bad:
        said = "; ".join(
            f"{each.place}: logits differ by up to {each.worst:.1e}, {each.changed:,} of {each.rows:,} labels change"
            for each in bad
        )
        fix = "nothing was written; please report the encoder and the versions of torch and onnxruntime"
        raise UserError(f"the export does not say what the model says ({said}) → {fix}")
