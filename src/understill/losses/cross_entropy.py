"""Cross-entropy: −log of the probability of the gold class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from understill.losses.term import Outputs, TaskRows, Term
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


def no_class(gold: Tensor, count: int) -> str:
    """Say which gold value is not the number of one of so many classes."""
    wrong = (gold < 0) | (gold >= count) | (torch.remainder(gold, 1) != 0)
    return f"gold {gold[wrong][0]} is not one of its classes" if wrong.any() else ""
