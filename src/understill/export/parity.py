"""Parity: whether the answers of an export are those of its model, and what rounding its weights costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understill.errors import UserError
from understill.inference.predictor import Predictions
from understill.tasks.metric import is_error

#: What logits, or scores, may differ by.
TOLERANCE = 1e-4
#: Rows of each dev set that an export is checked with.
ROWS = 1000
#: What a recorded score may lie beyond the interval of the one that is worked out anew.
SCORE_SLACK = 0.01
#: Points by which arithmetic may let a loss seem to pass the limit; one row of a million is a hundred times that.
SLACK = 1e-6


@dataclass(frozen=True)
class DevScore:
    """A model's score on a dev set, with where it would lie on other rows."""

    place: str
    rows: int
    metric: str
    value: float
    low: float
    high: float


def refuse_other_score(now: DevScore, recorded: float) -> None:
    """Refuse a model whose folder has another score for the same rows, by more than arithmetic in bf16 explains."""
    if not now.low - SCORE_SLACK <= recorded <= now.high + SCORE_SLACK:
        what = f"{now.place}: {now.metric} is {now.value:.4f}, and its folder says {recorded:.4f} for the same rows"
        raise UserError(f"{what} → these are not the weights that were scored; run the recipe again, or copy it again")


@dataclass(frozen=True)
class Parity:
    """How far an export is from its model on real rows."""

    place: str
    rows: int
    worst: float  # the largest difference of a logit, or of a score
    changed: int  # rows with another label


def compare(place: str, model: Predictions, export: Predictions) -> Parity:
    """Compare the predictions of a model and its export for the same rows."""
    apart = np.abs(model.logits - export.logits)
    worst = float(apart.max(initial=0.0)) if np.isfinite(apart).all() else float("inf")
    changed = int((model.values != export.values).sum()) if model.task.kind.has_classes else 0
    return Parity(place, len(apart), worst, changed)


def refuse_difference(parity: Sequence[Parity]) -> None:
    """Refuse an export whose logits differ from those of its model."""
    # Labels may change only where two logits tie within the tolerance.
    bad = [each for each in parity if not each.worst <= TOLERANCE]
    if bad:
        differences = "; ".join(
            f"{each.place}: logits differ by up to {each.worst:.1e}, {each.changed:,} of {each.rows:,} labels change"
            for each in bad
        )
        fix = "nothing was written; please report the encoder and the versions of torch and onnxruntime"
        raise UserError(f"the export's logits differ from the model's ({differences}) → {fix}")


# int8 -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounded:
    """A metric of a dev set before and after rounding, as fractions of 1."""

    place: str
    metric: str
    before: float
    after: float
    scale: float = 1.0  # of an error: what counts as 1

    @property
    def loss(self) -> float:
        """The points out of 100 that are lost; of an error, hundredths of its scale."""
        grown = (self.after - self.before) / self.scale
        return 100 * grown if is_error(self.metric) else -100 * grown


def refuse_loss(costs: Sequence[Rounded], limit: float) -> None:
    """Refuse rounded weights that lose more than so many points by any metric of any dev set, or that have no score."""
    bad = [each for each in costs if not each.loss <= limit + SLACK]
    if bad:
        losses = "; ".join(f"{each.place} {each.metric} {each.before:.4f} → {each.after:.4f}" for each in bad)
        if not all(math.isfinite(each.loss) for each in bad):
            raise UserError(f"int8 scores are NaN: {losses} → write --to onnx")
        fix = f"allow it with --limit {max(each.loss for each in bad) + 0.1:.1f}, or write --to onnx"
        raise UserError(f"int8 loses more than {limit:g} points: {losses} → {fix}")
