"""A column of its own: a teacher says how sure it is of each row, and a loss wants the student as sure."""

from typing import Any

import numpy as np
from torch import Tensor

from plugins.keywords import Keywords
from understill.losses import Needs, Outputs, TaskRows, Term
from understill.plugins import LOSSES, TEACHERS


@TEACHERS.register("sure_keywords")
class SureKeywords(Keywords):
    """Counts words, and knows how far its best label is ahead of the next."""

    columns = ("margin",)

    def column(self, name: str, data: Any, progress: Any = None) -> Any:
        """Return a column besides the logits: one number for each row, NaN where it has no answer."""
        ranked = np.sort(self.logits(data, progress), axis=1)
        return ranked[:, -1] - ranked[:, -2]


@LOSSES.register("margin")
class Margin(Term):
    """The squared error of the student's margin against the teacher's."""

    needs = Needs(columns=("margin",))
    kinds = ("classification",)

    def __call__(self, outputs: Outputs, rows: TaskRows) -> Tensor:
        """Return each row's squared error, [n]."""
        best = outputs["logits"].topk(2, dim=1).values
        return (best[:, 0] - best[:, 1] - rows.columns["margin"]).square()
