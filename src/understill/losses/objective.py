"""The objective: the loss that training minimises, and the checks of a first batch that all its forms share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.errors import TrainingError
from understill.losses.mixing import TaskTerms, task_rows, taught_rows, terms_of
from understill.recipe.schema import Distil
from understill.tasks import Task

#: What every objective reports of a step: the weighted loss, and its hard and its soft part, unweighted.
PARTS = ("total", "hard", "soft")


@dataclass(frozen=True)
class Loss:
    """The loss of a batch, and its parts by task."""

    total: Tensor  # scalar, with gradient
    parts: Tensor  # [parts, tasks], summed over each task's rows, without gradient
    counts: Tensor  # [parts, tasks], rows, or queries of a ranking: all, those with a hard part, those with a teacher


class Objective(nn.Module):
    """The loss of a batch that may mix tasks: a hard part from gold and, with `distil`, soft ones from teachers.

    They are added as hard·λ and soft·(1 − λ), or as hard and soft where nothing is annealed. A row without a teacher
    has its hard part alone, at weight 1. A row without gold takes the teacher's answer as its label. In a ranking all
    this applies to whole queries.
    """

    parts: tuple[str, ...] = PARTS
    why_plain: str = ""  # why the fast path cannot take it; nothing where it can

    def __init__(self, tasks: Sequence[Task], regression: str, distil: Distil | None = None) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.regression = regression
        self.distil = distil
        self.terms = [terms_of(task, distil) for task in tasks]

    def forward(
        self, logits: Tensor, batch: Batch | Packed, denominator: float = 1.0, progress: float | Tensor = 0.0
    ) -> Loss:
        """Return the weighted sum of the rows' losses over the denominator (units for a mean, 1 for a sum).

        `progress` is the share of the run that is done, which is what annealing goes by.
        """
        raise NotImplementedError

    def mix(self, progress: float) -> float | None:
        """Return the λ of tasks without one of their own; None where nothing is annealed."""
        return self.distil.anneal.at(progress) if self.distil and self.distil.anneal else None

    def check(self, logits: Tensor, batch: Batch | Packed) -> None:
        """Refuse, before the first step, shapes that would broadcast and targets that no output stands for."""
        rows, columns = len(batch.gold), sum(task.outputs for task in self.tasks)
        if logits.shape != (rows, columns):
            raise TrainingError(
                f"logits have shape {tuple(logits.shape)}; {rows} rows and {columns} outputs are needed"
            )
        for number, terms in enumerate(self.terms):
            where = (batch.task == number).nonzero().squeeze(1)
            if len(where) and (fault := self._fault(terms, batch, where)):
                raise TrainingError(f"task {terms.task.name}: {fault}")

    def _fault(self, terms: TaskTerms, batch: Batch | Packed, where: Tensor) -> str:
        """Say what is wrong with the rows of one task; nothing where all is well."""
        rows = task_rows(terms, batch, where, self.regression)
        taught = torch.zeros_like(where, dtype=torch.bool)
        for part, term in terms.soft.items():
            for name in term.needs.columns:
                if name in rows.columns and (fault := _holes(rows.columns[name], terms.task.outputs, name)):
                    return fault
            with_targets = taught_rows(rows, term.needs.columns)
            taught = with_targets if part == "soft" else taught
            if with_targets.any() and (fault := term.check(rows.only(with_targets))):
                return fault
        if not (rows.given | taught).all():
            also = "" if self.distil is None else " and no teacher"
            return f"a training row has no gold label{also}"
        given = rows.every(rows.given)
        return terms.hard.check(rows.only(given)) if given.any() else ""


def _holes(column: Tensor, outputs: int, name: str) -> str:
    """Say what no teacher can give: some numbers of a row without the others, or an infinite one."""
    values = column.reshape(len(column), -1)
    wanted = outputs if name == "logits" else values.shape[1]
    count = (~values.isnan()).sum(dim=1)
    partly = (count > 0) & (count < wanted)
    if partly.any():
        what = "outputs" if name == "logits" else f"numbers of {name}"
        return f"a teacher's row has {int(count[partly][0])} of its {wanted} {what}"
    return "a teacher's row holds an infinite value" if values.isinf().any() else ""
