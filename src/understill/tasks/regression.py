"""Regression: one score for each row."""

from __future__ import annotations

from types import MappingProxyType

from understill.tasks.base import Kind, Task, register


class Regression(Kind):
    """One score for each row."""

    name = "regression"
    metrics = ("pearson_spearman", "pearson", "spearman", "mse")
    hard = "squared_error"
    soft = MappingProxyType({"cross_entropy": "squared_error", "logits": "squared_error"})

    def outputs(self, task: Task) -> int:
        """The score."""
        return 1


REGRESSION = register(Regression())
