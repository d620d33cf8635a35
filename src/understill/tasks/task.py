"""Tasks: one question asked of a text or a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understill.names import is_task_name
from understill.tasks.base import KINDS, Kind
from understill.tasks.metric import METRICS


@dataclass(frozen=True)
class Task:
    """One question asked of a text or a pair of texts; everything here travels with the model."""

    name: str
    kind: Kind  # a name of one is taken too
    text: tuple[str, ...]
    label: str | None
    labels: tuple[str, ...] = ()  # class names in the order of the logits, or wrong and right; empty until inferred
    range: tuple[float, float] | None = None  # the scores a regression task can take
    metrics: tuple[str, ...] = ()  # the first is primary
    symmetric: bool = False  # the order of the two texts does not matter
    head: str = ""  # the task whose head answers this one; itself unless it is a diagnostic set
    group: str | None = None  # of a ranking task: the column that names a row's query; None: the first text does

    def __post_init__(self) -> None:
        if not isinstance(self.kind, Kind):
            object.__setattr__(self, "kind", KINDS[self.kind])
        if not self.metrics:
            object.__setattr__(self, "metrics", self.kind.metrics[:1])
        if not self.head:
            object.__setattr__(self, "head", self.name)

    @property
    def outputs(self) -> int:
        """How many numbers the head gives for one text."""
        return self.kind.outputs(self)

    @property
    def pair(self) -> bool:
        """Whether the task reads two texts."""
        return len(self.text) == 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every row has, with a label or without."""
        return (*self.text, *((self.group,) if self.group else ()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "kind": self.kind.name,
            "text": list(self.text),
            "label": self.label,
            "labels": list(self.labels),
            "range": list(self.range) if self.range else None,
            "metrics": list(self.metrics),
            "symmetric": self.symmetric,
            "head": self.head,
            **self.kind.facts(self),
            **self._plugins(),
        }

    def _plugins(self) -> dict[str, Any]:
        """Return what stands in fingerprints for a kind and metrics that plug-ins bring; nothing for our own."""
        plugins = [KINDS.facts(self.kind.name), *(METRICS.facts(name) for name in self.metrics if name in METRICS)]
        return {"plugins": [facts for facts in plugins if facts]} if any(plugins) else {}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Task:
        """Read back what `to_dict` wrote; a ValueError says what no task is like."""
        task = cls(
            name=values["name"],
            kind=KINDS[values["kind"]],
            text=tuple(values["text"]),
            label=values["label"],
            labels=tuple(values["labels"]),
            range=tuple(values["range"]) if values["range"] else None,
            metrics=tuple(values["metrics"]),
            symmetric=values["symmetric"],
            head=values["head"],
            group=values.get("group"),
        )
        task._refuse_nonsense()
        return task

    def _refuse_nonsense(self) -> None:
        """Refuse what a changed file may claim: names that lead out of a folder, labels and ranges that are none."""
        texts = [self.name, self.head, *self.text, *self.labels, *self.metrics]
        texts += [text for text in (self.label, self.group) if text is not None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name is no text")
        for name in (self.name, self.head):
            if not is_task_name(name):
                raise ValueError(f'"{name[:100]}" is no name of a task')
        if len(self.text) not in (1, 2) or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"{self.name} has not one or two texts, or a label twice")
        if self.range and not (len(self.range) == 2 and all(isinstance(end, (int, float)) for end in self.range)):
            raise ValueError(f"the range of {self.name} is not two numbers")
        if self.range and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError(f"nothing lies in the range of {self.name}")


def tasks_in(facts: Mapping[str, Any]) -> tuple[tuple[Task, ...], dict[str, int]]:
    """Return the tasks of a model and the tokens that each reads, as its manifest has them."""
    tasks = tuple(Task.from_dict(values) for values in facts["tasks"])
    lengths = {task.name: int(facts["max_lengths"][task.name]) for task in tasks}
    if not tasks or len(lengths) < len(tasks) or any(task.outputs < 1 for task in tasks):
        raise ValueError("it names no task, one of them twice, or one without labels")
    if strange := [task.name for task in tasks if task.head != task.name]:
        raise ValueError(f"{strange[0]} has the head of another task")
    if not all(0 < length < 2**16 for length in lengths.values()):
        raise ValueError("max_lengths lie between 1 and 65535")
    return tasks, lengths
