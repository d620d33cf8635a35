"""Soft cross-entropy: the divergence from the teacher's distribution, times T² (Hinton, Vinyals and Dean, 2015)."""

from __future__ import annotations

from torch import Tensor

from understill.losses.term import Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES


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
