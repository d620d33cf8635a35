"""Ranking: which of a query's candidates is right."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from understill.tasks.base import Kind, Task, register


class Ranking(Kind):
    """Which of a query's candidates is right: a score for each row, compared among the rows of its query."""

    name = "ranking"
    metrics = ("precision_at_1", "mrr", "accuracy")
    hard = "listwise"
    soft = MappingProxyType({"cross_entropy": "soft_listwise", "logits": "squared_error"})
    grouped = True

    def outputs(self, task: Task) -> int:
        """The candidate's score."""
        return 1

    def facts(self, task: Task) -> dict[str, Any]:
        """Return the column that names a row's query."""
        return {"group": task.group}


RANKING = register(Ranking())
