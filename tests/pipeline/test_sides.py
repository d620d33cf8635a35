"""Rows that belong together are drawn together, from a column of the user's files to the test of two models."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from understill import pipeline
from understill.errors import UserError
from understill.pipeline.sides import find_side, read_sides
from understill.recipe import Recipe


def write_notes(path: Path, rows: int) -> str:
    """Write rows of which four at a time come from one document, except for the last, which names none."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "label", "document"])
        for row in range(rows):
            document = "" if row >= rows - 2 else f"d{row // 4}"
            out.writerow([f"note {row} of {path.stem}", "fine" if row % 2 else "bad", document])
    return str(path)


def test_the_column_of_clusters_reaches_the_test(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    own = {"train": write_notes(tmp_path / "train.csv", 40), "dev": write_notes(tmp_path / "dev.csv", 42),
           "text": "text", "label": "label"}  # fmt: skip
    run = pipeline.run(make_tiny(tasks={"note": own}))
    weights = (run.models[0].folder / "model.safetensors").read_bytes()
    assert read_sides("note/dev", [find_side(str(run.folder))]).clusters is None
    events: list[object] = []
    run = pipeline.run(make_tiny(tasks={"note": {**own, "cluster": "document"}}), events.append)
    assert (run.models[0].folder / "model.safetensors").read_bytes() == weights, "nothing is trained again"
    clusters = read_sides("note/dev", [find_side(str(run.folder))]).clusters
    assert sorted(np.unique(clusters, return_counts=True)[1].tolist()) == [1, 1, *[4] * 10]


def test_a_column_of_clusters_that_is_not_there_is_said_before_anything_is_trained(
    make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    own = {"train": write_notes(tmp_path / "train.csv", 40), "text": "text", "label": "label", "cluster": "documnet"}
    with pytest.raises(UserError, match=r'there is no column "documnet".*did you mean "document"'):
        pipeline.make_plan(make_tiny(tasks={"note": own}))
    with pytest.raises(UserError, match="only files of your own have this"):
        make_tiny(tasks={"mood": {"cluster": "document"}})
