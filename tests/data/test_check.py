"""On which side of a split or fold a row falls: by its texts alone, in every task, whatever that is called."""

from __future__ import annotations

import csv
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understill.data.check import Check, Rules, text_key
from understill.data.load import LoadedTask, load_tasks
from understill.data.taskdata import held_out
from understill.errors import UserError
from understill.recipe import make_recipe
from understill.tasks import Task
from understill.teachers.folds import fold_of

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)


def write(path: Path, rows: Sequence[Sequence[object]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("one", "two", "label"), *rows])
    return str(path)


def messages(count: int) -> list[tuple[str, str, str]]:
    return [(f"message {index}", f"other {index}", ("no", "yes")[index % 2]) for index in range(count)]


def load(folder: Path, **tasks: dict[str, Any]) -> dict[str, LoadedTask]:
    filled = {name: {"dev": 0.2, "text": "one", "label": "label", **spec} for name, spec in tasks.items()}
    return load_tasks(make_recipe({"tasks": filled}), folder / "cache")


def texts(task: LoadedTask, split: str) -> set[frozenset[str]]:
    columns = [name for name in ("text1", "text2") if name in task.splits[split].table().column_names]
    return {frozenset(row[name] for name in columns) for row in task.splits[split].table().to_pylist()}


def unit(name: str, values: Sequence[str], kind: str = "classification") -> str:
    task = Task(name, kind, ("one", "two")[: len(values)], "label", ("no", "yes"))
    return Check(task, Rules(by_text=True))([*values, "yes"]).unit


@given(NAMES, NAMES, st.lists(TEXTS, min_size=1, max_size=2))
def test_a_row_falls_on_one_side_whatever_its_task_is_called(one: str, other: str, values: list[str]) -> None:
    assert unit(one, values) == unit(other, values)


@given(TEXTS, TEXTS, st.floats(0.01, 0.99))
def test_a_pair_falls_on_one_side_either_way_round(one: str, two: str, share: float) -> None:
    assert unit("a", [one, two]) == unit("b", [two, one])
    assert held_out(unit("a", [one, two]), share) == held_out(text_key([two.encode(), one.encode()]), share)


@given(TEXTS, TEXTS, TEXTS)
def test_a_query_falls_where_its_text_alone_does(query: str, one: str, two: str) -> None:
    assert unit("a", [query, one], "ranking") == unit("b", [query, two], "ranking") == unit("c", [query])


@given(st.lists(TEXTS, min_size=2, max_size=2, unique=True))
def test_other_texts_have_other_keys(values: list[str]) -> None:
    one, two = (value.encode() for value in values)
    assert len({text_key(each) for each in ([one], [two], [one, two], [one, one], [one + two])}) == 5


@settings(max_examples=40)
@given(st.floats(0.02, 0.98), st.integers(0, 10**6))
def test_about_the_share_is_held_out(share: float, start: int) -> None:
    count = sum(held_out(text_key([f"text {start + index}".encode()]), share) for index in range(2000))
    assert abs(count - 2000 * share) < 6 * (2000 * share * (1 - share)) ** 0.5 + 1


def test_tasks_on_one_file_have_the_same_rows_in_dev(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", messages(300))
    loaded = load(tmp_path, mood={"train": file}, queue={"train": file})
    assert texts(loaded["mood"], "dev") == texts(loaded["queue"], "dev")
    assert 30 < loaded["mood"].splits["dev"].rows < 90


def test_no_text_is_in_dev_of_one_task_and_in_train_of_another(tmp_path: Path) -> None:
    rows = messages(300)
    turned = [(two, one, label) for one, two, label in rows[100:]]
    pair = {"text": ["one", "two"]}
    loaded = load(
        tmp_path,
        same={"train": write(tmp_path / "pairs.csv", rows[:200]), **pair},
        alike={"train": write(tmp_path / "turned.csv", turned), **pair, "symmetric": True},
        mood={"train": write(tmp_path / "single.csv", rows[50:])},
        answer={
            "train": write(tmp_path / "queries.csv", [(one, f"{two} {n}", n) for one, two, _ in rows for n in (0, 1)]),
            **pair,
            "kind": "ranking",
        },
    )
    assert not texts(loaded["same"], "dev") & texts(loaded["alike"], "train")
    assert not texts(loaded["alike"], "dev") & texts(loaded["same"], "train")
    assert texts(loaded["same"], "dev") & texts(loaded["alike"], "dev")
    queries, asked = ({one for one, *_ in _rows(loaded["answer"], split)} for split in ("train", "dev"))
    assert not {one for (one,) in texts(loaded["mood"], "dev")} & queries
    assert not {one for (one,) in texts(loaded["mood"], "train")} & asked
    assert all(not task.across for task in loaded.values())


def _rows(task: LoadedTask, split: str) -> list[tuple[Any, ...]]:
    return [(row["text1"], row["label"]) for row in task.splits[split].table().to_pylist()]


@pytest.mark.parametrize("more", [{}, {"rows": 40}, {"text": ["one", "two"]}, {"kind": "ranking", "rows": 40}])
def test_renaming_a_task_moves_no_row(tmp_path: Path, more: dict[str, Any]) -> None:
    rows = messages(300)
    if more.get("kind") == "ranking":
        more = {**more, "text": ["one", "two"]}
        rows = [(one, f"{two} {right}", right) for one, two, _ in rows for right in ("no", "yes")]
    file = write(tmp_path / "all.csv", rows)
    (before,), (after,) = (load(tmp_path, **{name: {"train": file, **more}}).values() for name in ("old", "renamed"))
    for split in ("train", "dev"):
        assert _rows(before, split) == _rows(after, split)
    assert before.splits["train"].table()["id"] != after.splits["train"].table()["id"]


def test_folds_are_the_same_in_every_task_and_either_way_round(tmp_path: Path) -> None:
    rows = messages(300)
    file, turned = write(tmp_path / "all.csv", rows), write(tmp_path / "turned.csv", [(b, a, c) for a, b, c in rows])
    pair = {"text": ["one", "two"], "dev": file}
    loaded = load(tmp_path, a={"train": file, **pair}, b={"train": turned, **pair})
    one, two = (fold_of(loaded[name].splits["train"], 3) for name in "ab")
    np.testing.assert_array_equal(one, two)
    assert np.bincount(one, minlength=3).min() > 70


def test_a_label_that_is_held_out_altogether_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few = [held_out(text_key([one.encode()]), 0.05) for one, *_ in messages(99)]
    rows = [(one, two, "rare" if rare else label) for (one, two, label), rare in zip(messages(99), few, strict=True)]
    assert any(few)
    task = {"train": write(tmp_path / "all.csv", rows)}
    with caplog.at_level(logging.WARNING):
        load(tmp_path, queue=task)
    assert "queue/train: no row with label rare is left → give dev a file" in caplog.text
    caplog.clear()
    load(tmp_path, queue={**task, "dev": task["train"]})
    assert "no row is left" not in caplog.text


def test_a_held_out_dev_set_of_few_rows_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few, many = (write(tmp_path / f"{count}.csv", messages(count)) for count in (120, 600))
    with caplog.at_level(logging.WARNING):
        dev = load(tmp_path, queue={"train": few})["queue"].splits["dev"]
    assert f"queue/dev: only {dev.rows} rows held out, so its scores are mostly chance" in caplog.text
    caplog.clear()
    load(tmp_path, queue={"train": many})
    load(tmp_path, own={"train": many, "dev": few})
    assert "mostly chance" not in caplog.text


def test_of_fewer_than_a_hundred_rows_hardly_any_is_held_out_unless_the_recipe_says_how_many(tmp_path: Path) -> None:
    few, many = (write(tmp_path / f"{count}.csv", messages(count)) for count in (90, 600))

    def held(**tasks: dict[str, object]) -> int:
        recipe = {"tasks": {name: {"text": "one", "label": "label", **spec} for name, spec in tasks.items()}}
        return load_tasks(make_recipe(recipe), tmp_path / "cache")["few"].splits["dev"].rows

    assert 1 <= held(few={"train": few}) <= 4
    assert held(few={"train": few, "dev": 0.1}) > 4
    # A text is on the same side in every task, so a task of many rows decides for all.
    assert held(few={"train": few}, many={"train": many}) > 4


@pytest.mark.parametrize(("share", "larger"), [(0.01, 0.3), (0.3, 0.5)])
def test_an_empty_dev_part_is_told_a_share_that_is_larger(tmp_path: Path, share: float, larger: float) -> None:
    kept = [row for row in messages(60) if not held_out(text_key([row[0].encode()]), share)][:6]
    with pytest.raises(UserError, match=rf"leaves dev empty → give dev a file, or a larger share such as {larger}"):
        load(tmp_path, queue={"train": write(tmp_path / "all.csv", kept), "dev": share})


def test_where_the_usual_share_holds_no_row_out_a_larger_one_is_held_out_of_every_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = [row for row in messages(200) if not held_out(unit("few", row[:1]), 0.1)][:16]
    one, other = write(tmp_path / "few.csv", few), write(tmp_path / "many.csv", messages(200))
    tasks = {name: {"train": file, "text": "one", "label": "label"} for name, file in (("few", one), ("many", other))}
    alone = load_tasks(make_recipe({"tasks": {"many": tasks["many"]}}), tmp_path / "cache")
    with caplog.at_level(logging.WARNING):
        loaded = load_tasks(make_recipe({"tasks": tasks}), tmp_path / "cache")
    assert "holding out a larger share of every task instead" in caplog.text
    assert loaded["few"].splits["dev"].rows
    assert loaded["many"].splits["dev"].rows > alone["many"].splits["dev"].rows
    assert not texts(loaded["few"], "dev") & texts(loaded["many"], "train")
    given = {**tasks["few"], "dev": 0.1}
    with pytest.raises(UserError, match="leaves dev empty"):
        load_tasks(make_recipe({"tasks": {"few": given}}), tmp_path / "other")


def test_labels_that_look_the_same_are_one_class(tmp_path: Path) -> None:
    labels = ["환불", "배송", "결제"]
    rows = [f"text {n},{normalize(form, labels[n % 3])}" for n in range(30) for form in ("NFC", "NFD")]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    loaded = load(tmp_path, a={"train": str(tmp_path / "a.csv"), "text": "text", "label": "label"})
    assert loaded["a"].task.labels == tuple(sorted(labels))
