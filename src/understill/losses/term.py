"""What a loss term is: a small class that says what it needs and gives a value for each row of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from understill.losses.queries import BatchQueries
from understill.tasks import Task

Outputs = Mapping[str, Tensor]


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

    def only(self, mask: Tensor) -> TaskRows:
        """Return some of the rows; of a grouped kind, whole queries."""
        queries = None if self.queries is None else BatchQueries(self.queries.number[mask])
        columns = {name: values[mask] for name, values in self.columns.items()}
        return replace(self, gold=self.gold[mask], columns=columns, queries=queries)

    def with_gold(self, gold: Tensor) -> TaskRows:
        """Return the rows with other gold."""
        return replace(self, gold=gold)

    def every(self, mask: Tensor) -> Tensor:
        """Tell which rows have a mark, [n]; of a grouped kind, whose whole query has it."""
        return mask if self.queries is None else ~self.queries.any(~mask)


class Term:
    """A loss term: `needs` says what it reads, calling it gives one unweighted value for each row, [n].

    A term for gold is given rows that have some, a term for teachers rows of which they say something.
    """

    needs: ClassVar[Needs] = Needs()
    kinds: ClassVar[tuple[str, ...]] = ()  # the kinds of task it is for, by name; any, where none is named

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's loss, [n]; that of a query stands at its first candidate, the others have 0."""
        raise NotImplementedError

    def known(self, rows: TaskRows) -> Tensor:
        """Tell from which rows' gold there is something to learn, [n]; asked of a term for gold only."""
        return rows.every(~rows.gold.view(len(rows), -1).isnan().any(dim=1))

    def gold_of(self, rows: TaskRows) -> Tensor | None:
        """Return what stands in for gold where only teachers speak; None where nothing can."""
        return None

    def check(self, rows: TaskRows) -> str:
        """Say what is wrong with the first batch's rows, which all have what is needed; nothing where all is well."""
        return ""
