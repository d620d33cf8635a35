"""Data, tasks and assets are listed with what is odd about them."""

from __future__ import annotations

import io
from pathlib import Path

from terminal_cases import MOOD, SIMILAR, rows

from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.models.assets import AssetStatus
from understill.tasks import Task
from understill.terminal import listings


def loaded(task: Task, **counts: int) -> LoadedTask:
    splits = {
        split: TaskData(task, split, Path("x"), "f", count, 2 if split == "train" else 0)
        for split, count in counts.items()
    }
    return LoadedTask(task, splits, {"dev": 3})


def test_data_is_shown_with_rows_and_what_is_odd_about_them(shown: io.StringIO) -> None:
    listings.show_data({"mood": loaded(MOOD, train=1200, dev=30)}, 0)
    (row,) = rows(shown)
    assert row[:4] == ["mood", "classification", "message", "calm, upset"]
    assert row[4] == "train 1,200, dev 30"
    assert row[5] == "3 rows of dev are in train; 2 rows of train left out"


def test_many_labels_are_counted(shown: io.StringIO) -> None:
    many = Task("many", "classification", ("t",), "l", tuple(f"l{number}" for number in range(20)))
    listings.show_tasks({"own": [many, SIMILAR]})
    assert rows(shown)[0][3] == "l0, l1, l2, l3, l4, l5, … (20)"
    assert rows(shown)[1][3] == "0 to 5"


def test_a_folder_without_runs_is_said_to_have_none(shown: io.StringIO) -> None:
    listings.show_runs([])
    assert shown.getvalue() == "no runs here yet; understill run RECIPE makes one\n"


def test_counts_say_what_is_complete(shown: io.StringIO) -> None:
    listings.show_counts([("rte", "train", 2490, 2490), ("rte", "dev", 3, 277), ("qqp", "dev", 0, 40430)])
    assert [row[2:] for row in rows(shown)] == [
        ["2,490", "2,490", "complete"],
        ["3", "277", "differs"],
        ["0", "40,430", "missing"],
    ]


def test_assets_are_shown_with_the_line_that_installs_them(shown: io.StringIO) -> None:
    here = AssetStatus("one", "an encoder", 83_400_000, True, Path("here"), "pip install one")
    away = AssetStatus("two", "another", 1_000_000, False, None, "pip install two")
    listings.show_assets([here, away])
    assert shown.getvalue() == (
        "one: an encoder (83.4 MB)\n  installed: here\ntwo: another (1.0 MB)\n  not installed: pip install two\n"
    )
