"""Regression: one score for each row."""

from __future__ import annotations

from types import MappingProxyType

from understill.tasks.base import KINDS, Kind
from understill.tasks.task import Task


class Regression(Kind):
    """One score for each row, which is what the base class speaks of."""

    name = "regression"
    metrics = ("pearson_spearman", "pearson", "spearman", "mse")
    hard = "squared_error"
    soft = MappingProxyType({"cross_entropy": "soft_squared_error", "logits": "soft_squared_error"})
    settings = frozenset({"range", "decimal"})
    plain_metric = "mse"
    probe = "ridge"
    why = "its numbers look like scores; or classification, if the column holds labels"
    unfit = ""

    def outputs(self, task: Task) -> int:
        """The score."""
        return 1


REGRESSION = KINDS.own(Regression.name)(Regression())
