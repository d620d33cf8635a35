"""A loss against teachers: the Jensen-Shannon divergence, which no single row can make large."""

from torch import Tensor

from understill.losses import Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES


@LOSSES.register("jensen_shannon")
class JensenShannon(Term):
    """T²·JS(teacher, student): how far both distributions are from the mean of the two."""

    needs = Needs(columns=("logits",), form="log_probabilities")
    kinds = ("classification",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's divergence, [n]."""
        log_p = (outputs["logits"] / rows.temperature).log_softmax(dim=1)
        log_q = rows.columns["logits"]
        log_m = ((log_p.exp() + log_q.exp()) / 2).log()
        both = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)
        return rows.temperature**2 * both.sum(dim=1) / 2
