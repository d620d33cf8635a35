"""Listwise ranking: the candidates of a query take the place of the classes of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from understill.losses.cross_entropy import no_class
from understill.losses.term import BatchQueries, Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES


def _queries(rows: TaskRows) -> BatchQueries:
    assert rows.queries is not None, "a listwise loss is for kinds with queries"
    return rows.queries


@LOSSES.own("listwise")
class Listwise(Term):
    """−log of the probability that the choice falls on a right candidate, whichever it is."""

    kinds = ("ranking",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each query's surprise at its first row."""
        queries = _queries(rows)
        return torch.where(queries.first, queries.surprise(outputs["logits"][:, 0], rows.gold == 1), 0.0)

    def known(self, rows: TaskRows) -> Tensor:
        """Only a choice between right and wrong teaches something."""
        return super().known(rows) & _queries(rows).any(rows.gold == 1)

    def gold_of(self, rows: TaskRows) -> Tensor | None:
        """The teacher's best candidate is the right one."""
        score = rows.columns["logits"][:, 0]
        return (score == _queries(rows).best(score)).float()

    def check(self, rows: TaskRows) -> str:
        """A candidate is wrong or right, and one of each query is right."""
        lost = ~_queries(rows).any(rows.gold == 1)
        return no_class(rows.gold, 2) or ("a query has no right candidate" if lost.any() else "")


@LOSSES.own("soft_listwise")
class SoftListwise(Term):
    """T²·KL of the teacher's distribution over the candidates that are there, from the student's."""

    needs = Needs(columns=("logits",), form="log_probabilities")
    kinds = ("ranking",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each query's divergence at its first row."""
        queries, heat = _queries(rows), rows.temperature
        divergence = queries.divergence(outputs["logits"][:, 0] / heat, rows.columns["logits"][:, 0])
        return torch.where(queries.first, heat**2 * divergence, 0.0)

    def check(self, rows: TaskRows) -> str:
        """Probabilities sum to 1 at most: some candidates may have been left out of this step."""
        total = _queries(rows).sum(rows.columns["logits"][:, 0].exp())
        skewed = total > 1 + 1e-3
        return f"a teacher's probabilities sum to {float(total[skewed][0]):g}, not to 1" if skewed.any() else ""
