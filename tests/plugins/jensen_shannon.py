"""A plug-in: the Jensen-Shannon divergence as a loss against teachers, and a shape of annealing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from understill.losses import Needs, TaskRows, Term
from understill.plugins import ANNEALING, LOSSES


@LOSSES.register("jensen_shannon")
class JensenShannon(Term):
    """T²·JS(teacher, student): how far both are from the mean of the two distributions."""

    needs = Needs(columns=("logits",), form="log_probabilities")
    kinds = ("classification",)

    def __call__(self, outputs: Any, rows: TaskRows) -> Tensor:
        """Return each row's divergence."""
        log_p = (outputs["logits"] / rows.temperature).log_softmax(dim=1)
        log_q = rows.columns["logits"]
        log_m = ((log_p.exp() + log_q.exp()) / 2).log()
        both = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)
        return rows.temperature**2 * both.sum(dim=1) / 2


@ANNEALING.register("cubic")
def cubic(progress: Any) -> Any:
    """Begin even more slowly."""
    return progress**3
