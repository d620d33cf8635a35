"""Squared error: of scores, against gold or a teacher's, and of logits (Ba and Caruana, 2014)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from understill.losses.term import Needs, Outputs, TaskRows, Term
from understill.models.heads import link
from understill.plugins import LOSSES
from understill.tasks import Task


def scale_of(task: Task, regression: str) -> tuple[float, float]:
    """Return the scores that a head's 0 and 1 stand for; 0 and 1 themselves where it gives scores as they are."""
    return task.range if task.range and regression != "raw" else (0.0, 1.0)


@LOSSES.own("squared_error")
class SquaredError(Term):
    """The squared error against gold; where a row has several numbers, the sum over them."""

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error."""
        return self.error(outputs["logits"], rows.gold, rows)

    def error(self, outputs: Tensor, wanted: Tensor, rows: TaskRows) -> Tensor:
        """Return squared errors of outputs, [n, k], where the wanted scores are on the task's scale."""
        low, high = scale_of(rows.task, rows.regression)
        goal = (wanted.view(outputs.shape) - low) / (high - low)
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
