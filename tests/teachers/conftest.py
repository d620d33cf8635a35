"""Rows of a task as the reader leaves them, with their true ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from understill.atomic import fingerprint
from understill.data.check import row_id
from understill.data.taskdata import TaskData, Writer
from understill.tasks import Task

Stand = Callable[..., TaskData]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    """A function that writes a split: texts, or pairs of them, gold where there is some, and groups with own names."""

    def write(
        task: Task, texts: Sequence[Any], gold: Sequence[Any] = (), split: str = "train", groups: Sequence[str] = ()
    ) -> TaskData:
        name = fingerprint([task.name, split, list(texts), list(gold), list(groups)])
        path = tmp_path / f"{name}.arrow"
        writer = Writer(path, task)
        for place, (text, label) in enumerate(zip(texts, gold or [None] * len(texts), strict=True)):
            columns = list(text) if task.pair else [text]
            group = [groups[place] if groups else columns[0]] if task.kind.name == "ranking" else []
            writer.add(row_id(task.name, columns), [*columns, *group], label)
        writer.close()
        return TaskData(task, split, path, name, len(texts))

    return write
