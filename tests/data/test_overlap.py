"""Rows that are scored and also learnt from, counted within a task and across tasks."""

from __future__ import annotations

import csv
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from understill.data import overlap
from understill.data.load import LoadedTask, load_tasks
from understill.recipe import make_recipe

LABELS = ("no", "yes")


def write(path: Path, rows: Sequence[int], turned: bool = False) -> str:
    texts = [(f"message {index}", f"other {index}") for index in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = [(*(pair[::-1] if turned else pair), LABELS[index % 2]) for index, pair in enumerate(texts)]
        csv.writer(file).writerows([("one", "two", "label"), *lines])
    return str(path)


def load(folder: Path, **tasks: dict[str, Any]) -> dict[str, LoadedTask]:
    filled = {name: {"text": "one", "label": "label", **spec} for name, spec in tasks.items()}
    return load_tasks(make_recipe({"tasks": filled}), folder / "cache")


def test_rows_of_a_test_file_that_are_in_train_are_counted_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {split: write(tmp_path / f"{split}.csv", rows) for split, rows in SPLITS.items()}
    with caplog.at_level(logging.WARNING):
        loaded = load(tmp_path, queue=files)["queue"]
    assert loaded.overlap == {"dev": 0, "test": 3}
    assert "queue/test: 3 of 10 rows are also in train, which inflates its scores" in caplog.text


SPLITS = {"train": range(30), "dev": range(30, 40), "test": range(27, 37)}


@pytest.mark.parametrize("together", [1, 32])
def test_rows_that_another_task_has_in_train_are_counted_once_for_each_pair_of_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(overlap, "TOGETHER", together)
    first = {"train": range(100, 130), "dev": range(25, 45), "test": range(40, 50)}
    second = {"train": range(30), "dev": range(200, 210), "test": [100, 100, 5]}
    tasks = {
        name: {split: write(tmp_path / f"{name}-{split}.csv", rows) for split, rows in splits.items()}
        for name, splits in (("mood", first), ("queue", second))
    }
    with caplog.at_level(logging.WARNING):
        loaded = load(tmp_path, **tasks)
    assert loaded["mood"].across == {("dev", "queue"): 5}
    assert loaded["queue"].across == {("test", "mood"): 2}
    messages = [record.getMessage() for record in caplog.records]
    assert sorted(message for message in messages if "train of" in message) == [
        "mood/dev: 5 of 20 rows are also in train of queue, which may inflate its scores",
        "queue/test: 2 of 3 rows are also in train of mood, which may inflate its scores",
    ]


def test_pairs_are_counted_either_way_round_and_singles_are_no_pairs(tmp_path: Path) -> None:
    pair = {"text": ["one", "two"]}
    loaded = load(
        tmp_path,
        same={"train": write(tmp_path / "a.csv", range(30)), "dev": write(tmp_path / "b.csv", range(50, 60)), **pair},
        alike={
            "train": write(tmp_path / "c.csv", range(100, 130)),
            "dev": write(tmp_path / "d.csv", range(20, 40), turned=True),
            **pair,
        },
        mood={"train": write(tmp_path / "e.csv", range(300, 330)), "dev": write(tmp_path / "f.csv", range(9))},
    )
    assert loaded["alike"].across == {("dev", "same"): 10}
    assert loaded["same"].across == loaded["mood"].across == {}


def test_shares_that_differ_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", range(300))
    loaded = load(tmp_path, mood={"train": file, "dev": 0.1}, queue={"train": file, "dev": 0.3})
    less, more = (loaded[name].splits["dev"].rows for name in ("mood", "queue"))
    assert loaded["mood"].across == {}
    assert loaded["queue"].across == {("dev", "mood"): more - less}
