"""The contrastive objective: texts of a class are drawn together, those of different classes apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.losses.objective import Loss, Objective
from understill.models.multitask import MultiTaskModel
from understill.tasks import Task


class Vectors(nn.Module):
    """A model whose heads are left out: it gives each row's vector."""

    def __init__(self, model: MultiTaskModel) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(self, batch: Batch | Packed, only: int | None = None) -> Tensor:
        """Return one vector per row, [n, width]."""
        return self.encoder(batch)  # type: ignore[no-any-return]


class Contrast(Objective):
    """The squared error of cosines, whose target is 1 for two rows of a class and 0 for rows of different classes.

    All pairs of a batch's rows of the same task are compared; positive and negative pairs have the same total weight.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(tasks, "unit")
        self.why_plain = "contrastive losses are not fused"

    def forward(
        self, vectors: Tensor, batch: Batch | Packed, denominator: float = 1.0, progress: float | Tensor = 0.0
    ) -> Loss:
        """Return the loss of a batch; it is a mean, so the denominator does not enter."""
        units = functional.normalize(vectors.float(), dim=1)
        same = _pairs(batch.gold)
        itself = torch.eye(len(batch.gold), dtype=torch.bool, device=vectors.device)
        known = ~batch.gold.isnan()  # rows without a label are like and unlike none
        comparable = _pairs(batch.task) & ~itself & known.unsqueeze(0) & known.unsqueeze(1)
        squares = (units @ units.T - same.float()).square()
        alike, unlike = comparable & same, comparable & ~same
        total = (_mean(squares, alike) + _mean(squares, unlike)) / 2
        parts = torch.zeros(len(self.parts), len(self.tasks), device=vectors.device)
        counts = torch.zeros_like(parts)
        parts[:2, 0], counts[:2, 0] = total.detach() * len(batch.gold), len(batch.gold)
        return Loss(total, parts, counts)

    def check(self, vectors: Tensor, batch: Batch | Packed) -> None:
        """Every row of every task can be compared."""


def _pairs(values: Tensor) -> Tensor:
    """Tell which pairs of rows have the same value, [n, n]."""
    return values.unsqueeze(0) == values.unsqueeze(1)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)
