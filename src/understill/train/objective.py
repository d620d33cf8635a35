"""The objective: every loss there is, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.data.batch import Batch
from understill.errors import TrainingError
from understill.models.heads import link
from understill.tasks import Task


@dataclass(frozen=True)
class Loss:
    """What to descend, and where it came from."""

    total: Tensor  # scalar, with gradient
    parts: Tensor  # [tasks], summed loss of each task's rows, without gradient
    counts: Tensor  # [tasks], rows of each task


class Objective(nn.Module):
    """The loss of a batch that may mix tasks: cross-entropy for classes, squared error for scores."""

    # Everything below is a lookup by task number, so that one batch of fixed shape needs no Python per task.
    owner: Tensor  # [columns] the task of each output
    first: Tensor  # [tasks] its first output
    width: Tensor  # [tasks] its number of outputs
    scored: Tensor  # [tasks] whether it is a regression
    low: Tensor  # [tasks] a score is read as (score − low) / span
    span: Tensor

    def __init__(self, tasks: Sequence[Task], regression: str) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.regression = regression
        widths = [task.outputs for task in tasks]
        ranges = [task.range if task.range and regression != "raw" else (0.0, 1.0) for task in tasks]
        tables = {
            "owner": torch.tensor([index for index, width in enumerate(widths) for _ in range(width)]),
            "first": torch.tensor([sum(widths[:index]) for index in range(len(widths))]),
            "width": torch.tensor(widths),
            "scored": torch.tensor([task.kind == "regression" for task in tasks]),
            "low": torch.tensor([low for low, _ in ranges]),
            "span": torch.tensor([high - low for low, high in ranges]),
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, logits: Tensor, batch: Batch, denominator: float = 1.0) -> Loss:
        """Return the weighted sum of the rows' losses over the denominator (rows for a mean, 1 for a sum)."""
        rows = self.per_row(logits.float(), batch) * batch.weight
        parts = torch.zeros(len(self.tasks), device=rows.device).index_add(0, batch.task, rows.detach())
        counts = torch.zeros_like(parts).index_add(0, batch.task, torch.ones_like(rows))
        return Loss(rows.sum() / denominator, parts, counts)

    def per_row(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return each row's unweighted loss, [n]."""
        scored = self.scored[batch.task]
        first = self.first[batch.task]
        foreign = self.owner.unsqueeze(0) != batch.task.unsqueeze(1)  # [n, columns]
        log_probabilities = logits.masked_fill(foreign, -torch.inf).log_softmax(dim=1)
        column = first + torch.where(scored, 0, batch.gold.nan_to_num()).long()
        hard = -log_probabilities.gather(1, column.unsqueeze(1)).squeeze(1)
        output = link(logits.gather(1, first.unsqueeze(1)).squeeze(1), self.regression)
        wanted = (batch.gold.nan_to_num() - self.low[batch.task]) / self.span[batch.task]
        # Each branch is finite for every row, so the branch not taken adds no NaN to the gradient.
        return torch.where(scored, functional.mse_loss(output, wanted, reduction="none"), hard)

    def check(self, logits: Tensor, batch: Batch) -> None:
        """Refuse, before the first step, shapes that would broadcast and targets that no output stands for."""
        rows, columns = len(batch.gold), len(self.owner)
        if logits.shape != (rows, columns):
            raise TrainingError(
                f"logits have shape {tuple(logits.shape)}; {rows} rows and {columns} outputs are needed"
            )
        if batch.gold.isnan().any():
            raise TrainingError("a training row has no gold label")
        classes = ~self.scored[batch.task]
        wrong = classes & ((batch.gold < 0) | (batch.gold >= self.width[batch.task]) | (batch.gold % 1 != 0))
        if wrong.any():
            name = self.tasks[int(batch.task[wrong][0])].name
            raise TrainingError(f"task {name}: gold {batch.gold[wrong][0]} is not one of its classes")
