"""Squared error: of scores, against gold or a teacher's, and of logits (Ba and Caruana, 2014)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from understill.losses.term import Needs, Outputs, TaskRows, Term
from understill.models.heads import link
from understill.plugins import LOSSES


def unit(scores: Tensor, rows: TaskRows) -> Tensor:
    """Bring scores on the task's scale to what its head gives: from 0 to 1, or as they are."""
    low, high = rows.task.range if rows.task.range and rows.regression != "raw" else (0.0, 1.0)
    return (scores - low) / (high - low)


@LOSSES.own("squared_error")
class SquaredError(Term):
    """The squared error against gold; where a row has several numbers, the sum over them."""

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error."""
        return self.error(outputs["logits"], rows.gold, rows)

    def error(self, outputs: Tensor, wanted: Tensor, rows: TaskRows) -> Tensor:
        """Return squared errors of outputs, [n, k], where the wanted scores are on the task's scale."""
        goal = unit(wanted.view(outputs.shape), rows)
        return functional.mse_loss(link(outputs, rows.regression), goal, reduction="none").sum(dim=1)

    def gold_of(self, rows: TaskRows) -> Tensor | None:
        """The teacher's score."""
        return rows.columns["logits"].view(rows.gold.shape)


@LOSSES.own("soft_squared_error")
class SoftSquaredError(SquaredError):
    """The squared error against the teacher's score."""

    needs = Needs(columns=("logits",))

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error."""
        return self.error(outputs["logits"], rows.columns["logits"], rows)


@LOSSES.own("logits")
class LogitMatching(Term):
    """The squared error of logits, summed over the outputs; neither temperature nor link enters."""

    needs = Needs(columns=("logits",))

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error."""
        return (outputs["logits"] - rows.columns["logits"]).square().sum(dim=1)
