"""Classification: one of several named classes for each row."""

from __future__ import annotations

from types import MappingProxyType

from understill.tasks.base import Kind, Task, register


class Classification(Kind):
    """One of several named classes for each row."""

    name = "classification"
    metrics = ("accuracy", "f1", "macro_f1", "matthews")
    hard = "cross_entropy"
    soft = MappingProxyType({"cross_entropy": "soft_cross_entropy", "logits": "logits"})

    def outputs(self, task: Task) -> int:
        """A logit for each class."""
        return len(task.labels)


CLASSIFICATION = register(Classification())
