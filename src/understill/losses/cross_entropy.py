"""Cross-entropy: of the gold class, and of the teacher's distribution times T² (Hinton, Vinyals and Dean, 2015)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from understill.losses.term import Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES


@LOSSES.own("cross_entropy")
class CrossEntropy(Term):
    """−log of the probability of the gold class."""

    kinds = ("classification",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return the surprise at each row's class."""
        return functional.cross_entropy(outputs["logits"], rows.gold.long(), reduction="none")

    def gold_of(self, rows: TaskRows) -> Tensor | None:
        """The teacher's best class."""
        return rows.columns["logits"].argmax(dim=1).float()

    def check(self, rows: TaskRows) -> str:
        """Gold is the number of a class."""
        return no_class(rows.gold, rows.task.outputs)


@LOSSES.own("soft_cross_entropy")
class SoftCrossEntropy(Term):
    """T²·KL(teacher ‖ student) at temperature T: summed over classes, never their mean.

    The teacher's entropy changes no gradient; with it the least loss is 0.
    """

    needs = Needs(columns=("logits",), form="log_probabilities")
    kinds = ("classification",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's divergence."""
        log_p = (outputs["logits"] / rows.temperature).log_softmax(dim=1)
        log_q = rows.columns["logits"]
        q = log_q.exp()
        # Where q is 0, 0·log 0 is 0.
        return rows.temperature**2 * (q * (log_q - log_p)).masked_fill(q == 0, 0.0).sum(dim=1)

    def check(self, rows: TaskRows) -> str:
        """Probabilities sum to 1."""
        total = rows.columns["logits"].exp().sum(dim=1)
        skewed = (total - 1).abs() > 1e-3
        return f"a teacher's probabilities sum to {float(total[skewed][0]):g}, not to 1" if skewed.any() else ""


def no_class(gold: Tensor, count: int) -> str:
    """Say which gold value is not the number of one of so many classes."""
    wrong = (gold < 0) | (gold >= count) | (torch.remainder(gold, 1) != 0)
    return f"gold {gold[wrong][0]} is not one of its classes" if wrong.any() else ""
