"""Logits: the squared error of the student's logits against the teacher's (Ba and Caruana, 2014)."""

from __future__ import annotations

from torch import Tensor

from understill.losses.term import Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES


@LOSSES.own("logits")
class LogitMatching(Term):
    """The squared error of logits, summed over the outputs; neither temperature nor link enters."""

    needs = Needs(columns=("logits",))

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error."""
        return (outputs["logits"] - rows.columns["logits"]).square().sum(dim=1)
