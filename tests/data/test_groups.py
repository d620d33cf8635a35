"""Ranking tasks from files to rows: groups are found, numbered and never divided, and labels are wrong or right."""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.data import taskdata
from understill.data.check import row_id
from understill.data.encode import all_gold
from understill.data.groups import contested, count_queries, groups_of
from understill.data.load import LoadedTask, load_tasks
from understill.data.taskdata import Sample, TaskData, Writer
from understill.errors import UserError
from understill.recipe import make_recipe
from understill.tasks import Task
from understill.teachers.folds import fold_of

BY_GROUP = Task("answer", "ranking", ("question", "answer"), "right", ("0", "1"), group="query")
COLUMNS = ["query", "question", "answer", "right"]


def write(path: Path, rows: list[tuple[Any, ...]], header: list[str] | None = None) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header or COLUMNS, *rows])
    return str(path)


def candidates(seed: int, groups: int = 60, largest: int = 6) -> list[tuple[Any, ...]]:
    """Queries with two candidates or more, the first right and the second wrong, all rows in any order."""
    dice = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        for place in range(dice.integers(2, largest + 1)):
            right = place != 1 and dice.random() < 1 / (place + 1)
            rows.append((f"q{group}", f"question {group} ?", f"answer {group} {place}", int(right)))
    return [rows[place] for place in dice.permutation(len(rows))]


def spec(train: str, **changes: Any) -> dict[str, Any]:
    """A ranking task over a file of the usual columns; None takes a setting away."""
    usual = {"train": train, "dev": 0.3, "text": ["question", "answer"], "label": "right", "kind": "ranking"}
    return {key: value for key, value in {**usual, "group": "query", **changes}.items() if value is not None}


def load(folder: Path, train: str, **changes: Any) -> LoadedTask:
    teachers = [{}] if "unlabelled" in changes else []
    values = {"tasks": {"answer": spec(train, **changes)}, "teachers": teachers}
    return load_tasks(make_recipe(values), folder / "cache")["answer"]


def named(data: TaskData) -> list[str]:
    return data.table().column("group").to_pylist()  # type: ignore[no-any-return]


def written(path: Path, groups: list[int]) -> TaskData:
    """A split of one row for each of these groups, in small batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taskdata, "BATCH", 4)
        writer = Writer(path, BY_GROUP)
        for place, group in enumerate(groups):
            texts = [f"question {group}", f"answer {place}"]
            writer.add(row_id("answer", texts), [*texts, str(group)], "1")
        writer.close()
    return TaskData(BY_GROUP, "train", path, "", len(groups))


# Numbers


@given(st.lists(st.integers(0, 12), max_size=40))
def test_groups_are_numbered_as_they_appear(tmp_path_factory: Any, groups: list[int]) -> None:
    data = written(tmp_path_factory.mktemp("groups") / "data", groups)
    order = list(dict.fromkeys(groups))
    assert groups_of(data).tolist() == [order.index(group) for group in groups]
    assert groups_of(data).dtype == np.int64


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 1.0, np.nan])), max_size=20))
def test_there_is_a_choice_where_a_query_has_a_right_and_a_wrong_candidate(rows: list[tuple[int, float]]) -> None:
    groups, gold = np.array([group for group, _ in rows], np.int64), np.array([label for _, label in rows])
    expected = [{0.0, 1.0} <= {label for other, label in rows if other == group} for group, _ in rows]
    assert contested(groups, gold).tolist() == expected


# Nothing divides a group


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("group", ["query", None])
def test_a_group_is_held_out_as_a_whole(tmp_path: Path, seed: int, group: str | None) -> None:
    rows = candidates(seed)
    loaded = load(tmp_path, write(tmp_path / "train.csv", rows), group=group)
    train, dev = (Counter(named(loaded.splits[split])) for split in ("train", "dev"))
    assert not set(train) & set(dev)
    assert train + dev == Counter(row[0 if group else 1] for row in rows)
    assert 5 <= len(dev) <= 35  # about 18 of 60


@pytest.mark.parametrize("group", ["query", None])
def test_rows_takes_whole_groups_and_more_rows_only_add_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    monkeypatch.setattr(taskdata, "BATCH", 4)  # so that rows are turned away before all are read
    rows = candidates(0)
    sizes = Counter(row[0 if group else 1] for row in rows)
    train, before = write(tmp_path / "train.csv", rows), set()
    for count in (1, 2, 7, 30, 31, 100, 10_000):
        data = load(tmp_path, train, rows=count, group=group, dev=train).splits["train"]
        chosen = Counter(named(data))
        assert all(sizes[name] == rows for name, rows in chosen.items())
        assert before <= set(chosen)
        assert min(count, len(rows)) <= data.rows < count + 6
        before = set(chosen)
    assert before == set(sizes)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=120), st.integers(1, 40))
def test_a_sample_of_groups_is_the_same_whatever_the_order(
    tmp_path_factory: Any, groups: list[int], count: int
) -> None:
    folder = tmp_path_factory.mktemp("sample")
    chosen = []
    for order in (groups, groups[::-1]):
        sample = Sample(count)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(taskdata, "BATCH", 4)  # so that the bar is lowered again and again
            wanted = [group for group in order if sample.wants(row_id("answer", [f"question {group}"]))]
        data = written(folder / "all", wanted)
        rows = sample.choose(data.path, folder / "some", BY_GROUP)
        some = Counter(map(int, named(TaskData(BY_GROUP, "train", folder / "some", "", rows))))
        assert rows == some.total() >= min(count, len(groups))
        assert all(Counter(groups)[group] == number for group, number in some.items())
        chosen.append(some)
    assert chosen[0] == chosen[1]
    assert chosen[0].total() - count < max(chosen[0].values())  # the last group was needed


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60), st.integers(2, 5))
def test_a_group_is_in_one_fold(tmp_path_factory: Any, groups: list[int], folds: int) -> None:
    parts = fold_of(written(tmp_path_factory.mktemp("folds") / "data", groups), folds).tolist()
    assert len(set(zip(groups, parts, strict=True))) == len(set(groups))
    assert set(parts) <= set(range(folds))


def test_folds_go_by_the_query_whether_a_column_or_the_first_text_names_it(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", candidates(1, groups=200))
    for group in ("query", None):
        data = load(tmp_path, train, group=group, dev=train).splits["train"]
        parts = fold_of(data, 4)
        assert len(set(zip(named(data), parts.tolist(), strict=True))) == 200
        assert min(Counter(parts.tolist()).values()) > 0.15 * data.rows


def asked_again(groups: int = 60) -> list[tuple[Any, ...]]:
    """Every question under three groups, which share an answer; two of them are alike."""
    return [
        (f"{name}{group}", f"question {group} ?", f"answer {group} {place}", int(place == 0))
        for name, places in (("a", (0, 1)), ("b", (0, 1)), ("c", (0, 2, 3)))
        for group in range(groups)
        for place in places
    ]


def test_the_same_texts_in_several_groups_are_held_out_together(tmp_path: Path) -> None:
    rows = asked_again()
    loaded = load(tmp_path, write(tmp_path / "train.csv", rows))
    train, dev = (loaded.splits[split].table() for split in ("train", "dev"))
    assert len(train) + len(dev) == len(rows)
    assert not set(train.column("text1").to_pylist()) & set(dev.column("text1").to_pylist())
    assert loaded.overlap == {"dev": 0}


def test_the_same_texts_in_several_groups_share_a_fold_and_are_sampled_together(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", asked_again())
    data = load(tmp_path, train, dev=train).splits["train"]
    texts, parts = data.table().column("text1").to_pylist(), fold_of(data, 4).tolist()
    assert len(set(zip(texts, parts, strict=True))) == 60
    assert set(parts) == set(range(4))
    some = load(tmp_path, train, dev=train, rows=50).splits["train"].table().column("text1").to_pylist()
    assert set(Counter(some).values()) == {7}


# Columns


def test_a_ranking_task_keeps_the_name_of_each_rows_group(tmp_path: Path) -> None:
    rows = [("7", "Who ?", "Bo .", 1), ("8", "Who ?", "A .", 1), (" 7 ", "Who ?", "Mo .", 0), ("8", "Who ?", "B .", 0)]
    train = write(tmp_path / "train.csv", rows)
    data = load(tmp_path, train, dev=train).splits["train"]
    assert [field.name for field in data.table().schema] == ["id", "text1", "text2", "group", "label"]
    assert named(data) == ["7", "8", "7", "8"]
    by_text = load(tmp_path, train, dev=train, group=None).splits["train"]
    assert named(by_text) == ["Who ?"] * 4
    assert data.table().column("id").equals(by_text.table().column("id"))


def test_numbers_of_any_type_name_the_same_group(tmp_path: Path) -> None:
    values = [(7, 1), (7.0, 0), ("7", 0)]
    lines = [
        json.dumps({"query": query, "question": "Who ?", "answer": f"No {place} .", "right": right})
        for place, (query, right) in enumerate(values)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    train = str(tmp_path / "train.jsonl")
    assert named(load(tmp_path, train, dev=train).splits["train"]) == ["7", "7", "7"]


def test_another_group_column_is_other_data(tmp_path: Path) -> None:
    rows = [(*row, row[0]) for row in candidates(0)]
    train = write(tmp_path / "train.csv", rows, [*COLUMNS, "again"])
    prints = [
        {split: data.fingerprint for split, data in load(tmp_path, train, group=group).splits.items()}
        for group in ("query", "again", None)
    ]
    assert all(len({one[split] for one in prints}) == 3 for split in ("train", "dev"))


def test_unlabelled_and_test_rows_have_groups_too(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", candidates(0))
    bare = [(row[:3]) for row in candidates(1, groups=3)]
    more = write(tmp_path / "more.csv", bare, COLUMNS[:3])
    for group, place in (("query", 0), (None, 1)):
        splits = load(tmp_path, train, unlabelled=more, test=more, group=group).splits
        for split in ("unlabelled", "test"):
            assert named(splits[split]) == [row[place] for row in bare]
            assert np.isnan(all_gold(splits[split])).all()
    with pytest.raises(UserError, match='there is no column "query"'):
        load(tmp_path, train, test=write(tmp_path / "lone.csv", [row[1:] for row in bare], COLUMNS[1:3]))


def test_a_group_has_one_query(tmp_path: Path) -> None:
    rows = [("1", "Who ?", "Bo .", 1), ("1", "Who ?", "Mo .", 0), ("1", "When ?", "Now .", 1)]
    train = write(tmp_path / "train.csv", rows)
    with pytest.raises(UserError, match=r'train\.csv:4: the rows of group "1" have different texts in column "q'):
        load(tmp_path, train, dev=train)
    values = {"tasks": {"answer": spec(train, dev=train)}, "data": {"on_bad_row": "skip"}}
    assert load_tasks(make_recipe(values), tmp_path / "cache")["answer"].splits["train"].rows == 2


# Labels


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("0", "1"), ("false", "true"), ("False", "True"), ("no", "yes"), ("NO", "Yes"), ("wrong", "right")],
)
def test_some_labels_say_which_one_is_right(tmp_path: Path, wrong: str, right: str) -> None:
    rows = [("1", "Who ?", "Bo .", right), ("1", "Who ?", "Mo .", wrong), ("1", "Who ?", "Jo .", right)]
    train = write(tmp_path / "train.csv", rows)
    loaded = load(tmp_path, train, dev=train)
    assert loaded.task.labels == (wrong, right)
    assert all_gold(loaded.splits["dev"]).tolist() == [1, 0, 1]
    assert (loaded.task.outputs, loaded.task.metrics) == (1, ("precision_at_1",))


def test_of_other_labels_the_recipe_says_which_one_is_right(tmp_path: Path) -> None:
    rows = [("1", "Who ?", "Bo .", "good"), ("1", "Who ?", "Mo .", "poor")]
    train = write(tmp_path / "train.csv", rows)
    with pytest.raises(UserError, match=r"has the labels good and poor, .*write labels, the right one last"):
        load(tmp_path, train, dev=train)
    for labels, gold in ((["poor", "good"], [1, 0]), (["good", "poor"], [0, 1])):
        loaded = load(tmp_path, train, dev=train, labels=labels)
        assert loaded.task.labels == tuple(labels)
        assert all_gold(loaded.splits["train"]).tolist() == gold


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["0", "1", "2"], 'column "right" has 3 different labels; candidates are wrong or right'),
        (["1", "1", "1"], 'every row has the label "1"; there is nothing to learn'),
    ],
)
def test_candidates_are_wrong_or_right(tmp_path: Path, labels: list[str], message: str) -> None:
    train = write(tmp_path / "train.csv", [("1", "Who ?", f"No {n} .", label) for n, label in enumerate(labels)])
    with pytest.raises(UserError, match=message):
        load(tmp_path, train, dev=train)


# Queries without a choice


def test_queries_without_a_choice_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        ("1", "Who ?", "Bo .", 1),
        ("1", "Who ?", "Mo .", 0),
        ("2", "When ?", "Now .", 1),
        ("3", "How ?", "So .", 0),
    ]
    train = write(tmp_path / "train.csv", rows)
    with caplog.at_level(logging.WARNING):
        loaded = load(tmp_path, train, dev=write(tmp_path / "dev.csv", rows[:3]))
    assert [record.getMessage() for record in caplog.records][:2] == [
        "answer/train: 1 of 3 queries have both a right and a wrong candidate; the others teach nothing",
        "answer/dev: 1 of 2 queries have both a right and a wrong candidate; the others are not scored",
    ]
    assert [count_queries(loaded.splits[split]) for split in ("train", "dev")] == [(1, 3), (1, 2)]


def test_without_any_choice_there_is_nothing_to_learn_or_to_score(tmp_path: Path) -> None:
    fair = write(tmp_path / "fair.csv", [("1", "Who ?", "Bo .", 1), ("1", "Who ?", "Mo .", 0)])
    apart = write(tmp_path / "apart.csv", [("1", "Who ?", "Bo .", 1), ("2", "Who ?", "Mo .", 0)])
    with pytest.raises(UserError, match=r"none of the 2 queries of train has both .*; nothing to learn .* \"query\""):
        load(tmp_path, apart, dev=fair)
    with pytest.raises(UserError, match=r"none of the 2 queries of dev has both .*; nothing to score"):
        load(tmp_path, fair, dev=apart)
    assert load(tmp_path, apart, dev=apart, group=None).splits["train"].rows == 2


def test_without_labels_two_candidates_are_a_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fair = write(tmp_path / "fair.csv", [("1", "Who ?", "Bo .", 1), ("1", "Who ?", "Mo .", 0)])
    rows = [("7", "When ?", "Now .", ""), ("8", "How ?", "So .", ""), ("7", "When ?", "Soon .", "")]
    words = r"none of the 2 queries of unlabelled has two .*; nothing to learn → .* \"query\" .* name other files"
    with pytest.raises(UserError, match=words):
        load(tmp_path, fair, dev=fair, unlabelled=write(tmp_path / "alone.csv", rows[:2]))
    with caplog.at_level(logging.WARNING):
        load(tmp_path, fair, dev=fair, unlabelled=write(tmp_path / "more.csv", rows))
    words = "answer/unlabelled: 1 of 2 queries have two candidates or more; the others teach nothing"
    assert words in [record.getMessage() for record in caplog.records]


# The demo


def test_the_demos_answers_are_a_ranking_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = {"data": {"demo": 400}, "tasks": ["mood", "answer"], "teachers": [{}], "student": {"unlabelled": 0.5}}
    loaded = load_tasks(make_recipe(values), tmp_path)["answer"]
    assert (loaded.task.labels, loaded.task.group, loaded.task.outputs) == (("0", "1"), "group", 1)
    assert {split: data.rows for split, data in loaded.splits.items()} == {
        "train": 400, "dev": 200, "test": 200, "unlabelled": 1600
    }  # fmt: skip
    for split, data in loaded.splits.items():
        groups = groups_of(data)
        assert np.array_equal(groups, np.arange(data.rows) // 4)
        if split != "unlabelled":
            assert np.bincount(groups, all_gold(data)).tolist() == [1] * (data.rows // 4)
    assert not caplog.records
