"""Loss terms: a small class says what it needs and gives a value for each row of a task or query of a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from understill.tasks import Task

Outputs = Mapping[str, Tensor]


class BatchQueries:
    """The queries of a batch, whose candidates are adjacent rows; each result is repeated at every row of its query."""

    def __init__(self, group: Tensor) -> None:
        new = torch.ones_like(group, dtype=torch.bool)
        new[1:] = group[1:] != group[:-1]
        self.first = new  # [n], whether a row is the first of its query
        self.number = new.long().cumsum(0) - 1  # [n], of each row's query

    def sum(self, values: Tensor) -> Tensor:
        """Sum values, [n], over the candidates."""
        return torch.zeros_like(values).index_add(0, self.number, values)[self.number]

    def any(self, flags: Tensor) -> Tensor:
        """Tell whether any candidate is flagged."""
        return self.sum(flags.float()) > 0

    def best(self, values: Tensor) -> Tensor:
        """Return the highest value of any candidate, without gradient."""
        lowest = torch.full_like(values, -torch.inf)
        return lowest.scatter_reduce(0, self.number, values.detach(), "amax")[self.number]

    def log_softmax(self, values: Tensor) -> Tensor:
        """Return log-probabilities that sum to 1 over the candidates."""
        shifted = values - self.best(values)
        return shifted - self.sum(shifted.exp()).log()

    def surprise(self, scores: Tensor, right: Tensor) -> Tensor:
        """Return −log of the probability that the choice falls on a right candidate; of a query without any, 0."""
        log_p = self.log_softmax(scores).masked_fill(~right, -torch.inf)
        best = self.best(log_p)
        best = torch.where(best.isinf(), 0.0, best)
        total = self.sum((log_p - best).exp())
        return -torch.where(total == 0, 1.0, total).log() - best

    def divergence(self, scores: Tensor, log_q: Tensor) -> Tensor:
        """Return KL(Q ‖ softmax of the scores), where Q is brought to sum to 1 over the candidates that are there."""
        log_q = self.log_softmax(log_q)
        return self.sum(log_q.exp() * (log_q - self.log_softmax(scores)))


@dataclass(frozen=True)
class Needs:
    """What a term reads: columns of the batch, which teachers filled, and outputs of the model."""

    columns: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logits",)
    #: How teachers' raw logits come, where they are among the columns: joined as they are, or as log-probabilities at
    #: the recipe's temperature. Scores of a regression are scores in both.
    form: Literal["logits", "log_probabilities"] = "logits"


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows of one task, as its terms see them; only rows that have what a term needs are given to it."""

    task: Task
    regression: str  # what the head's output of a score means: sigmoid, unit or raw
    temperature: float
    gold: Tensor  # [n], or [n, k] where a row's gold has k numbers
    columns: Mapping[str, Tensor]  # [n, …] each; of "logits", the task's own outputs
    queries: BatchQueries | None = None  # of a grouped kind: which rows are candidates of the same query

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def given(self) -> Tensor:
        """Which rows have gold, [n]; of several numbers, all of them."""
        return ~self.gold.view(len(self), -1).isnan().any(dim=1)

    def only(self, mask: Tensor) -> TaskRows:
        """Return some of the rows; of a grouped kind, whole queries."""
        queries = None if self.queries is None else BatchQueries(self.queries.number[mask])
        columns = {name: values[mask] for name, values in self.columns.items()}
        return replace(self, gold=self.gold[mask], columns=columns, queries=queries)

    def every(self, mask: Tensor) -> Tensor:
        """Tell which rows have a mark, [n]; of a grouped kind, whose whole query has it."""
        return mask if self.queries is None else ~self.queries.any(~mask)


class Term:
    """A loss term: `needs` says what it reads, calling it gives one unweighted value for each row, [n].

    A hard term is given rows with gold, a soft one rows with its teachers' columns.
    """

    needs: ClassVar[Needs] = Needs()
    kinds: ClassVar[tuple[str, ...]] = ()  # the kinds of task it is for, by name; any, where none is named

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's loss, [n]; that of a query stands at its first candidate, the others have 0."""
        raise NotImplementedError

    def known(self, rows: TaskRows) -> Tensor:
        """Tell which rows' gold gives a loss, [n]; asked of a hard term only."""
        return rows.every(rows.given)

    def gold_of(self, rows: TaskRows) -> Tensor | None:
        """Return labels from the teachers' columns, for rows without gold; None where there are none to be had."""
        return None

    def check(self, rows: TaskRows) -> str:
        """Say what is wrong with the first batch's rows, which all have what is needed; nothing where all is well."""
        return ""
