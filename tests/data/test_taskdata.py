"""From files to checked, cached rows: ids, labels, held-out parts, samples, bad rows, and the cache itself."""

from __future__ import annotations

import csv
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill import artifact
from understill.atomic import publish
from understill.data import taskdata
from understill.data.check import row_id
from understill.data.load import LoadedTask, load_tasks
from understill.data.taskdata import Sample, TaskData, Writer, held_out, id_keys
from understill.errors import DataError, UserError
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.tasks import Task


def write_csv(path: Path, header: list[str], rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def tickets(path: Path, count: int = 60, start: int = 0) -> Path:
    rows = [
        (f"ticket number {index}", ("billing", "returns", "login")[index % 3]) for index in range(start, start + count)
    ]
    return write_csv(path, ["message", "queue"], rows)


def recipe(on_bad_row: str = "stop", **tasks: dict[str, Any]) -> Recipe:
    """A recipe of these tasks, with a teacher where there are texts to be labelled."""
    teachers = [{}] if any(spec.get("unlabelled") for spec in tasks.values()) else []
    return make_recipe({"data": {"on_bad_row": on_bad_row}, "tasks": tasks, "teachers": teachers})


def queue(folder: Path, **changes: Any) -> dict[str, Any]:
    """A task over tickets.csv in a folder; None takes a setting away."""
    spec = {"train": str(folder / "tickets.csv"), "dev": 0.3, "text": "message", "label": "queue", **changes}
    return {key: value for key, value in spec.items() if value is not None}


def load_one(folder: Path, on_bad_row: str = "stop", **changes: Any) -> LoadedTask:
    return load_tasks(recipe(on_bad_row, queue=queue(folder, **changes)), folder / "cache")["queue"]


def texts(data: TaskData) -> list[str]:
    return data.table().column("text1").to_pylist()  # type: ignore[no-any-return]


# Ids


def test_ids_are_as_they_always_were() -> None:
    # Soft targets are joined by these, so they must never change.
    assert row_id("queue", ["hello"]) == "a9bbef52716807c4901d591a"
    assert row_id("queue", ["hello", "you"]) == "de4af5bf9bb0fe2f7ec7fb40"


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=2), st.text(st.characters(codec="utf-8")))
def test_moving_a_letter_from_one_text_to_the_next_changes_the_id(words: list[str], task: str) -> None:
    moved = [words[0] + "a", *words[1:]]
    assert row_id(task, [*words, "ab"]) != row_id(task, [*moved, "b"])
    assert row_id(task, words) == row_id(task, list(words))
    assert len(row_id(task, words)) == 24


@given(st.lists(st.integers(0, 2**96 - 1), max_size=30), st.integers(0, 5))
def test_keys_are_the_last_64_bits_of_ids(numbers: list[int], skip: int) -> None:
    column = pa.array([f"{number:024x}" for number in numbers], pa.string()).slice(skip)
    assert id_keys(column).tolist() == [number % 2**64 for number in numbers[skip:]]
    assert id_keys(pa.chunked_array([column, column])).tolist() == [number % 2**64 for number in numbers[skip:]] * 2


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(1, 40))
def test_a_sample_has_the_lowest_keys_whatever_the_order(tmp_path_factory: Any, numbers: list[int], count: int) -> None:
    folder = tmp_path_factory.mktemp("sample")
    task = Task("t", "classification", ("text",), "label")
    sample = Sample(count)
    writer = Writer(folder / "all", task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taskdata, "BATCH", 4)  # so that the bar is lowered again and again
        for number in numbers:
            if sample.wants(f"{number:024x}"):
                writer.add(f"{number:024x}", [str(number)], None)
        writer.close()
    assert sample.choose(folder / "all", folder / "some", task) == min(count, len(numbers))
    data = TaskData(task, "train", folder / "some", "", 0)
    assert sorted(map(int, texts(data))) == sorted(numbers)[:count]


# Splits


def test_a_split_is_one_arrow_file_with_the_agreed_columns(tmp_path: Path) -> None:
    write_csv(tmp_path / "pairs.csv", ["a", "b", "same"], [(f"a{i}", f"b{i}", i / 10) for i in range(30)])
    spec = {"train": str(tmp_path / "pairs.csv"), "dev": 0.3, "text": ["a", "b"], "label": "same", "kind": "regression"}
    loaded = load_tasks(recipe(similar=spec), tmp_path / "cache")["similar"]
    train = loaded.splits["train"]
    kinds = [("id", "string"), ("text1", "string"), ("text2", "string"), ("label", "double")]
    assert [(field.name, str(field.type)) for field in train.table().schema] == kinds
    assert train.path == tmp_path / "cache" / f"data-{train.fingerprint[:16]}" / "data.arrow"
    first = train.table().to_pylist()[0]
    assert first["id"] == row_id("similar", [first["text1"], first["text2"]])
    assert loaded.task.range == (0.0, 2.9)
    assert loaded.task.metrics == ("pearson_spearman",)
    assert sum(data.rows for data in loaded.splits.values()) == 30


def test_batches_cover_the_table_in_order(tmp_path: Path) -> None:
    train = load_one(tickets(tmp_path / "tickets.csv").parent).splits["train"]
    batches = list(train.batches(7))
    assert max(batch.num_rows for batch in batches) == 7
    assert pa.Table.from_batches(batches).equals(train.table())


def test_the_held_out_part_takes_the_same_texts_whatever_else_there_is(tmp_path: Path) -> None:
    small = load_one(tickets(tmp_path / "tickets.csv", 60).parent)
    large = load_one(tickets(tmp_path / "tickets.csv", 3000).parent)
    assert set(texts(small.splits["dev"])) <= set(texts(large.splits["dev"]))
    assert not set(texts(large.splits["dev"])) & set(texts(large.splits["train"]))
    assert 800 <= large.splits["dev"].rows <= 1000
    assert large.overlap == {"dev": 0}


def test_without_dev_a_tenth_is_held_out(tmp_path: Path) -> None:
    splits = load_one(tickets(tmp_path / "tickets.csv", 2000).parent, dev=None).splits
    assert 150 <= splits["dev"].rows <= 250


@given(st.integers(0, 2**96 - 1), st.floats(0.01, 0.49))
def test_a_larger_share_holds_out_what_a_smaller_one_does(number: int, share: float) -> None:
    assert not held_out(f"{number:024x}", share) or held_out(f"{number:024x}", 2 * share)


def test_an_empty_held_out_part_says_what_to_do(tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [("one", "a"), ("two", "b")])
    with pytest.raises(UserError, match=r"tasks.queue: holding out 1e-06 of 2 rows leaves dev empty → give dev a file"):
        load_one(tmp_path, dev=1e-6)
    with pytest.raises(UserError, match=r"leaves train empty → give dev a file, or a smaller share"):
        load_one(tmp_path, dev=0.999999)


def test_rows_are_a_fair_sample_and_not_the_head_of_the_file(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv", 3000)
    tickets(tmp_path / "dev.csv", 50, start=5000)
    train = load_one(tmp_path, rows=300, dev=str(tmp_path / "dev.csv")).splits["train"]
    numbers = [int(text.split()[-1]) for text in texts(train)]
    assert train.rows == len(numbers) == 300
    assert numbers == sorted(numbers)  # still in the order of the file
    assert 1300 < np.mean(numbers) < 1700
    again = load_one(tmp_path, rows=100, dev=str(tmp_path / "dev.csv")).splits["train"]
    assert set(texts(again)) <= set(texts(train))


def test_rows_also_bound_the_held_out_part(tmp_path: Path) -> None:
    splits = load_one(tickets(tmp_path / "tickets.csv", 3000).parent, rows=50).splits
    assert {name: data.rows for name, data in splits.items()} == {"train": 50, "dev": 50}


def test_rows_in_several_files_and_formats_are_one_split(tmp_path: Path) -> None:
    tickets(tmp_path / "part1.csv", 20)
    tickets(tmp_path / "part2.csv", 20, start=20)
    pq.write_table(pa.table({"message": ["from parquet"], "queue": ["login"]}), tmp_path / "more.parquet")
    train = [str(tmp_path / "part*.csv"), str(tmp_path / "more.parquet")]
    splits = load_one(tmp_path, train=train).splits
    assert sum(data.rows for data in splits.values()) == 41


def test_paths_are_seen_from_the_working_folder_and_from_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    tickets(tmp_path / "there" / "tickets.csv")
    (tmp_path / "there" / "recipe.yaml").write_text(
        "tasks: {queue: {train: tick*.csv, dev: 0.3, text: message, label: queue}}", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    loaded = load_tasks(load_recipe(Path("there/recipe.yaml")), tmp_path / "cache")
    assert loaded["queue"].splits["train"].rows + loaded["queue"].splits["dev"].rows == 60


def test_rows_of_dev_that_are_in_train_are_counted_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tickets(tmp_path / "tickets.csv", 30)
    dev = tickets(tmp_path / "dev.csv", 20, start=25)
    with caplog.at_level(logging.WARNING):
        loaded = load_one(tmp_path, dev=str(dev))
    assert loaded.overlap == {"dev": 5}
    assert "queue/dev: 5 of 20 rows are also in train" in caplog.text


def test_a_test_split_may_lack_labels(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    write_csv(tmp_path / "bare.csv", ["message"], [("what is this",)])
    write_csv(tmp_path / "some.csv", ["message", "queue"], [("what is this", ""), ("and this", "login")])
    bare = load_one(tmp_path, test=str(tmp_path / "bare.csv")).splits["test"]
    some = load_one(tmp_path, test=str(tmp_path / "some.csv")).splits["test"]
    assert bare.table().column("label").to_pylist() == [None]
    assert some.table().column("label").to_pylist() == [None, "login"]


# Labels and scores


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (pa.array([1, 0, 10, 2]), ("0", "1", "2", "10")),
        (pa.array([1.0, 0.0, 2.0]), ("0", "1", "2")),
        (pa.array([True, False]), ("false", "true")),
        (pa.array(["b", "a", " b "]), ("a", "b")),
        (pa.array(["1.5", "nan", "-2"]), ("-2", "1.5", "nan")),
        (pa.array(["x", "y"]).dictionary_encode(), ("x", "y")),
        (pa.array(["はい", "いいえ"]), ("いいえ", "はい")),
    ],
)
def test_labels_are_names_in_order_whatever_their_type(
    tmp_path: Path, values: pa.Array, labels: tuple[str, ...]
) -> None:
    table = pa.table({"message": [f"text {index}" for index in range(len(values))], "queue": values})
    for name in ("train", "dev"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    loaded = load_one(tmp_path, train=str(tmp_path / "train.parquet"), dev=str(tmp_path / "dev.parquet"))
    assert loaded.task.labels == labels
    assert all(data.task == loaded.task for data in loaded.splits.values())


def test_json_labels_of_any_type_are_names(tmp_path: Path) -> None:
    values = [1, 2.0, True, "x"]
    lines = [json.dumps({"message": f"text {index}", "queue": value}) for index, value in enumerate(values * 8)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert load_one(tmp_path, train=str(tmp_path / "a.jsonl")).task.labels == ("1", "2", "true", "x")


def test_given_labels_keep_their_order(tmp_path: Path) -> None:
    loaded = load_one(tickets(tmp_path / "tickets.csv").parent, labels=["returns", "login", "billing", "other"])
    assert loaded.task.labels == ("returns", "login", "billing", "other")


def test_labels_are_known_from_all_of_train_even_when_few_rows_are_used(tmp_path: Path) -> None:
    assert load_one(tickets(tmp_path / "tickets.csv").parent, rows=1).task.labels == ("billing", "login", "returns")


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([(f"t{i}", "same") for i in range(9)], {}, 'every row has the label "same"; there is nothing to learn'),
        ([(f"t{i}", f"{i}") for i in range(25)], {}, "has 25 different labels in 25 rows; it looks like scores or ids"),
        ([(f"t{i}", f"{i // 2}") for i in range(3000)], {}, "has more than 1,000 different labels in 3,000 rows"),
        ([(f"t{i}", "3") for i in range(9)], {"kind": "regression"}, "every row has the score 3; there is nothing"),
    ],
)
def test_what_cannot_be_learnt_gives_one_sentence(
    tmp_path: Path, rows: list[tuple[str, str]], changes: dict[str, Any], message: str
) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], rows)
    with pytest.raises(UserError) as error:
        load_one(tmp_path, **changes)
    assert message in str(error.value)
    assert str(error.value).startswith("tasks.queue")
    assert "\n" not in str(error.value)


def test_an_inferred_range_makes_no_dev_row_bad(tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [(f"t{i}", i) for i in range(5)])
    write_csv(tmp_path / "dev.csv", ["message", "queue"], [("far", 99)])
    loaded = load_one(tmp_path, dev=str(tmp_path / "dev.csv"), kind="regression")
    assert loaded.task.range == (0.0, 4.0)
    with pytest.raises(DataError, match=r"dev.csv:2: the score 99 lies outside 0 to 4"):
        load_one(tmp_path, dev=str(tmp_path / "dev.csv"), kind="regression", range=[0, 4])


# Bad rows


BAD = b"message,queue\ngood,a\n,a\nfine,\nbr\xe4ken,b\nx,y,z\nso sch\xc3\xb6n,b\n   ,a\n"


def test_bad_rows_of_all_files_and_tasks_are_listed_together(tmp_path: Path) -> None:
    (tmp_path / "tickets.csv").write_bytes(BAD)
    (tmp_path / "dev.jsonl").write_text('{"message": "fine", "queue": "aa"}\n{"mess', encoding="utf-8")
    scores = [("a", "1"), ("b", "much"), ("c", "inf"), ("d", "1_0"), ("e", "9"), ("f", "")]
    write_csv(tmp_path / "scores.csv", ["message", "queue"], scores)
    both = recipe(
        queue=queue(tmp_path, dev=str(tmp_path / "dev.jsonl")),
        score=queue(tmp_path, train=str(tmp_path / "scores.csv"), kind="regression", range=[0, 5]),
    )
    with pytest.raises(DataError) as error:
        load_tasks(both, tmp_path / "cache")
    assert str(error.value).replace(f"{tmp_path}/", "").splitlines() == [
        "12 rows cannot be used; fix them, or skip them with data.on_bad_row: skip",
        '  tickets.csv:3: no text in column "message"',
        '  tickets.csv:4: no label in column "queue"',
        "  tickets.csv:5: the text is not valid UTF-8 → save the file as UTF-8",
        '  tickets.csv:6: 3 cells where the header has 2 → put quotes around texts that contain ","',
        '  tickets.csv:8: no text in column "message"',
        '  dev.jsonl:1: unknown label "aa" → did you mean "a"?',
        "  dev.jsonl:2: not a JSON object",
        '  scores.csv:3: "much" is not a number',
        "  scores.csv:4: the score inf is not finite",
        '  scores.csv:5: "1_0" is not a number',
        "  scores.csv:6: the score 9 lies outside 0 to 5",
        '  scores.csv:7: no score in column "queue"',
    ]
    assert not list((tmp_path / "cache").glob("data-*"))
    assert not list((tmp_path / "cache").glob(".data-*"))


def test_bad_rows_can_be_left_out_and_are_then_listed_in_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tickets.csv").write_bytes(BAD)
    write_csv(tmp_path / "dev.csv", ["message", "queue"], [("hello", "b")])
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            train = load_one(tmp_path, "skip", dev=str(tmp_path / "dev.csv")).splits["train"]
        assert (train.rows, train.rejected) == (2, 5)
        rejects = train.path.parent / "rejects.jsonl"
        assert f'5 bad rows left out, listed in {rejects}: 2 × no text in column "message", 1 × ' in caplog.text
    listed = [json.loads(line) for line in rejects.read_text(encoding="utf-8").splitlines()]
    assert [entry["place"].rsplit(":")[-1] for entry in listed] == ["3", "4", "5", "6", "8"]
    assert listed[2]["values"] == ["br\\xe4ken", "b"]
    assert listed[3] == {
        "place": f"{tmp_path}/tickets.csv:6",
        "reason": "3 cells where the header has 2",
        "values": ["x", "y", "z"],
    }
    with pytest.raises(DataError, match="5 rows cannot be used"):  # what was skipped is not silently reused
        load_one(tmp_path, dev=str(tmp_path / "dev.csv"))


def test_many_bad_rows_are_all_counted_but_not_all_kept(tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [("", "a")] * 2000 + [("x", "a"), ("y", "b")])
    with pytest.raises(DataError) as error:
        load_one(tmp_path)
    assert error.value.total == 2000
    assert len(error.value.problems) == 300
    assert "… and 1,980 more" in str(error.value)


def test_nothing_left_after_skipping_is_an_error(tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [("", "a")])
    with pytest.raises(UserError, match=r"tasks.queue: no row of train can be used"):
        load_one(tmp_path, "skip")


def test_lists_and_mappings_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"message": ["a"], "queue": {"x": 1}}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r'a.jsonl:1: column "message" holds a list, not text'):
        load_one(tmp_path, train=str(tmp_path / "a.jsonl"))


def test_a_lone_surrogate_in_json_is_a_bad_row(tmp_path: Path) -> None:
    lines = ['{"message": "\\ud800", "queue": "a"}', '{"message": ["\\ud800"], "queue": "a"}']
    lines += [f'{{"message": "{word}", "queue": "{word}"}}' for word in "abcdef" * 3]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=r"a.jsonl:1: the text is not valid UTF-8"):
        load_one(tmp_path, train=str(tmp_path / "a.jsonl"))
    train = load_one(tmp_path, "skip", train=str(tmp_path / "a.jsonl")).splits["train"]
    rejects = (train.path.parent / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["values"][0] for line in rejects] == ["\\ud800", ["?"]]


def test_troubles_with_files_and_rows_come_together(tmp_path: Path) -> None:
    (tmp_path / "tickets.csv").write_bytes(BAD)
    write_csv(tmp_path / "dev.csv", ["message", "que"], [("hello", "b")])
    with pytest.raises(DataError) as error:
        load_one(tmp_path, dev=str(tmp_path / "dev.csv"))
    lines = str(error.value).splitlines()
    assert lines[0].startswith("6 problems with the data; 5 rows cannot be used")
    assert 'dev.csv: there is no column "queue"; the columns are: message, que → did you mean "que"?' in lines[1]


def test_all_missing_files_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_one(tmp_path, dev="no.csv", test="none*.csv")
    assert [problem.what for problem in error.value.problems] == [
        "no such file",
        "no file matches this pattern",
        "no such file",
    ]


# The cache


def test_the_cache_is_used_while_nothing_changes(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    first = load_one(tmp_path)
    before = first.splits["train"].path.stat().st_mtime_ns
    again = load_one(tmp_path, metrics=["macro_f1"])  # a metric does not touch the rows
    assert again.splits["train"].path.stat().st_mtime_ns == before
    assert again.task.labels == first.task.labels
    assert again.task.metrics == ("macro_f1",)


@pytest.mark.parametrize(
    "changes",
    [{"rows": 5}, {"dev": 0.4}, {"labels": ["login", "returns", "payment"]}, {"text": "queue", "label": "message"}],
)
def test_the_fingerprint_covers_what_determines_the_rows(tmp_path: Path, changes: dict[str, Any]) -> None:
    rows = [("a", "payment"), ("b", "returns"), ("c", "login"), ("d", "login"), ("e", "login"), ("f", "login")] * 6
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], rows)
    assert load_one(tmp_path).splits["train"].fingerprint != load_one(tmp_path, **changes).splits["train"].fingerprint


def test_other_content_or_another_task_name_is_other_data(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv", 60)
    first = load_one(tmp_path).splits["train"].fingerprint
    renamed = load_tasks(recipe(other=queue(tmp_path)), tmp_path / "cache")["other"].splits["train"].fingerprint
    tickets(tmp_path / "tickets.csv", 61)
    assert len({first, renamed, load_one(tmp_path).splits["train"].fingerprint}) == 3


def test_dev_depends_on_the_labels_that_train_has(tmp_path: Path) -> None:
    # A class's number follows from all labels, so tokens of dev must not outlive a change of train's labels.
    dev = tickets(tmp_path / "dev.csv", 9, start=100)
    tickets(tmp_path / "tickets.csv")
    first = load_one(tmp_path, dev=str(dev)).splits["dev"].fingerprint
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [(q, q) for q in ("a", "billing", "login", "returns")])
    assert load_one(tmp_path, dev=str(dev)).splits["dev"].fingerprint != first


@pytest.mark.parametrize("damage", ["cut", "facts", "gone", "footer", "bit"])
def test_a_damaged_cache_is_built_again(tmp_path: Path, damage: str) -> None:
    tickets(tmp_path / "tickets.csv")
    data = load_one(tmp_path).splits["train"]
    expected = data.table().to_pylist()
    content = data.path.read_bytes()
    if damage == "cut":
        data.path.write_bytes(content[:-100])
    elif damage == "facts":
        (data.path.parent / "data.json").write_text('{"rows"', encoding="utf-8")
    elif damage == "gone":
        data.path.unlink()
    elif damage == "bit":
        middle = len(content) // 2
        data.path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        data.path.write_bytes(content[:-10] + b"0123456789")
    assert load_one(tmp_path).splits["train"].table().to_pylist() == expected


def test_half_written_folders_are_never_taken_for_whole_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets(tmp_path / "tickets.csv")

    def stop(part: Path, folder: Path, sound: Callable[[], bool]) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact, "publish", stop)
    with pytest.raises(KeyboardInterrupt):
        load_one(tmp_path)
    assert not list((tmp_path / "cache").iterdir())
    monkeypatch.undo()
    assert load_one(tmp_path).splits["train"].rows


def test_another_process_that_was_quicker_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets(tmp_path / "tickets.csv")
    load_one(tmp_path)
    shutil.copytree(tmp_path / "cache", tmp_path / "other")
    shutil.rmtree(tmp_path / "cache")

    def late(part: Path, folder: Path, sound: Callable[[], bool]) -> bool:
        shutil.copytree(tmp_path / "other" / folder.name, folder)
        return publish(part, folder, sound)

    monkeypatch.setattr(artifact, "publish", late)
    assert load_one(tmp_path).splits["train"].rows
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_progress_tells_task_split_and_rows(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv", 20_000)
    seen: list[tuple[str, int]] = []
    load_tasks(recipe(queue=queue(tmp_path)), tmp_path / "cache", lambda what, count: seen.append((what, count)))
    assert seen == [("queue/train", 8192), ("queue/train", 16384), ("queue/train", 20_000)]


# Named tasks


def test_demo_tasks_come_with_their_splits(tmp_path: Path) -> None:
    loaded = load_tasks(make_recipe({"data": {"demo": 50}, "tasks": {"mood": {"rows": 20}, "similar": {}}}), tmp_path)
    assert loaded["mood"].splits["train"].rows == 20
    assert set(loaded["mood"].splits) == {"train", "dev", "test"}
    labels = Counter(loaded["mood"].splits["dev"].table().column("label").to_pylist())
    assert set(labels) == set(loaded["mood"].task.labels)
    assert loaded["similar"].task.range == (0.0, 5.0)


def test_a_named_task_can_be_changed_in_some_ways(tmp_path: Path) -> None:
    spec = {"metrics": ["mse"], "symmetric": False}
    task = load_tasks(make_recipe({"data": {"demo": 50}, "tasks": {"similar": spec}}), tmp_path)["similar"].task
    assert (task.metrics, task.symmetric) == (("mse",), False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tasks": ["sst2"]}, "tasks.sst2: sst2 is a GLUE task → set data.glue to the folder that holds it"),
        ({"tasks": ["mood"]}, "tasks.mood: mood is a task of the demo data → set data.demo: true"),
        ({"data": {"demo": True}, "tasks": ["moods"]}, 'tasks.moods: there is no task "moods" → did you mean "mood"?'),
        ({"tasks": ["tickets"]}, 'there is no task "tickets" → give train, text and label for a task of your own'),
        ({"data": {"demo": True}, "tasks": {"follows": {"kind": "ranking"}}}, "which has its own kind"),
        ({"data": {"demo": True}, "tasks": {"answer": {"group": "question"}}}, "which has its own group"),
        ({"data": {"demo": True}, "tasks": {"answer": {"symmetric": True}}}, "a ranking task cannot be symmetric"),
        ({"data": {"demo": True}, "tasks": {"follows": {"candidates": 3}}}, "follows is no ranking task"),
        ({"data": {"demo": True}, "tasks": {"mood": {"labels": ["a", "b"]}}}, "mood is a known task"),
        ({"data": {"demo": True}, "tasks": {"mood": {"metrics": "mse"}}}, '"mse" is no metric for classification'),
        ({"data": {"demo": True}, "tasks": {"mood": {"symmetric": True}}}, "only a task with two texts"),
        ({"tasks": {"own": {"text": "message", "label": "x"}}}, "a task of your own needs train, text and label"),
    ],
)
def test_names_that_lead_nowhere_are_explained(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        load_tasks(make_recipe(values), tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_problems_of_several_tasks_come_together(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_tasks(make_recipe({"tasks": ["sst2", "mood"]}), tmp_path)
    assert len(error.value.problems) == 2


# Texts that only teachers label


def unlabelled(path: Path, labels: list[Any] | None = None, count: int = 5) -> str:
    """Write texts, with or without a column of labels; some have none of the labels that train has."""
    columns: dict[str, list[Any]] = {"message": [f"nobody knows {index}" for index in range(count)]}
    if labels is not None:
        columns["queue"] = labels
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        rows = [list(columns), *(list(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(sign.join(row) for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "labels", [None, ["billing", "returns", "login", "billing", "login"], ["a", "b", "", "9", "c"]]
)
@pytest.mark.parametrize("name", ["more.csv", "more.tsv", "more.jsonl", "more.parquet"])
def test_unlabelled_texts_have_ids_but_never_a_label(tmp_path: Path, name: str, labels: list[str] | None) -> None:
    tickets(tmp_path / "tickets.csv")
    loaded = load_one(tmp_path, unlabelled=unlabelled(tmp_path / name, labels), rows=2)
    data = loaded.splits["unlabelled"]
    table = data.table()
    assert data.rows == 5  # `rows` is about train alone
    assert data.task == loaded.task == loaded.splits["train"].task
    assert texts(data) == [f"nobody knows {index}" for index in range(5)]
    assert table.column("id").to_pylist() == [row_id("queue", [text]) for text in texts(data)]
    assert table.column("label").to_pylist() == [None] * 5
    assert table.schema == loaded.splits["train"].table().schema
    assert loaded.foreseen == {"dev": 0}


def test_the_scores_of_a_regression_are_not_read_from_unlabelled_texts(tmp_path: Path) -> None:
    write_csv(tmp_path / "tickets.csv", ["message", "queue"], [(f"t{i}", i / 10) for i in range(30)])
    more = unlabelled(tmp_path / "more.csv", ["99", "much", "", "nan", "1"])
    loaded = load_one(tmp_path, unlabelled=more, kind="regression", range=[0, 3])
    assert loaded.splits["unlabelled"].table().column("label").to_pylist() == [None] * 5


def test_unlabelled_texts_do_not_add_labels_and_may_repeat(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    more = unlabelled(tmp_path / "more.csv", ["zork"] * 5)
    loaded = load_one(tmp_path, unlabelled=[more, str(tmp_path / "more*.csv")])
    assert loaded.task.labels == ("billing", "login", "returns")
    assert loaded.splits["unlabelled"].rows == 10


def test_what_the_labels_are_does_not_touch_unlabelled_texts(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    more = unlabelled(tmp_path / "more.csv", ["zork"] * 5)
    first = load_one(tmp_path, unlabelled=more).splits
    again = load_one(tmp_path, unlabelled=more, labels=["returns", "login", "billing"]).splits
    assert again["train"].fingerprint != first["train"].fingerprint
    assert again["unlabelled"].path == first["unlabelled"].path
    assert again["unlabelled"].task.labels == ("returns", "login", "billing")
    other = load_one(tmp_path, unlabelled=unlabelled(tmp_path / "other.csv", count=6)).splits
    assert other["unlabelled"].fingerprint != first["unlabelled"].fingerprint
    test = load_one(tmp_path, test=more, labels=["billing", "login", "returns", "zork"]).splits["test"]
    assert test.fingerprint != first["unlabelled"].fingerprint
    assert test.table().column("label").to_pylist() == ["zork"] * 5


def test_unlabelled_texts_that_are_scored_on_are_counted_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tickets(tmp_path / "tickets.csv", 30)
    dev, test = tickets(tmp_path / "dev.csv", 20, start=30), tickets(tmp_path / "test.csv", 10, start=50)
    more = tickets(tmp_path / "more.csv", 30, start=25)
    with caplog.at_level(logging.WARNING):
        loaded = load_one(tmp_path, dev=str(dev), test=str(test), unlabelled=str(more))
    assert (loaded.overlap, loaded.foreseen) == ({"dev": 0, "test": 0}, {"dev": 20, "test": 5})
    assert "queue/dev: 20 of 20 rows are also in unlabelled, without labels" in caplog.text
    assert "queue/test: 5 of 10 rows are also in unlabelled" in caplog.text
    assert "also in train" not in caplog.text


def test_texts_are_left_alone_where_the_student_takes_none_of_them(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    values = {"tasks": {"queue": queue(tmp_path, unlabelled="nowhere.csv")}, "teachers": [{}]}
    loaded = load_tasks(make_recipe({**values, "student": {"unlabelled": 0}}), tmp_path / "cache")["queue"]
    assert (set(loaded.splits), loaded.foreseen) == ({"train", "dev"}, {})
    with pytest.raises(UserError, match=r"nowhere\.csv: no such file"):
        load_tasks(make_recipe({**values, "student": {"unlabelled": 0.1}}), tmp_path / "cache")


def test_bad_unlabelled_rows_stop_or_are_left_out(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    (tmp_path / "more.csv").write_bytes(b"message,queue\ngo\xc3\xb6d,login\n,login\nbr\xe4ken,\nx,y,z\n")
    more = str(tmp_path / "more.csv")
    with pytest.raises(DataError) as error:
        load_one(tmp_path, unlabelled=more)
    assert str(error.value).replace(f"{tmp_path}/", "").splitlines()[1:] == [
        '  more.csv:3: no text in column "message"',
        "  more.csv:4: the text is not valid UTF-8 → save the file as UTF-8",
        '  more.csv:5: 3 cells where the header has 2 → put quotes around texts that contain ","',
    ]
    data = load_one(tmp_path, "skip", unlabelled=more).splits["unlabelled"]
    assert (data.rows, data.rejected, texts(data)) == (1, 3, ["goöd"])


def test_files_of_unlabelled_texts_that_cannot_be_used_are_named_with_the_others(tmp_path: Path) -> None:
    tickets(tmp_path / "tickets.csv")
    write_csv(tmp_path / "odd.csv", ["massage"], [("hello",)])
    with pytest.raises(UserError, match=r'odd\.csv: there is no column "message"; the columns are: massage → did you'):
        load_one(tmp_path, unlabelled=str(tmp_path / "odd.csv"))
    with pytest.raises(DataError) as error:
        load_one(tmp_path, dev="no.csv", unlabelled="none*.csv")
    assert [problem.what for problem in error.value.problems] == ["no such file", "no file matches this pattern"]


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, None),
        ({"teachers": [{}]}, None),
        ({"teachers": [{}], "student": {"unlabelled": 0}}, None),
        ({"teachers": [{}], "student": {"unlabelled": 0.5}}, 200),
    ],
)
def test_the_demo_brings_unlabelled_texts_where_they_are_wanted(
    tmp_path: Path, changes: dict[str, Any], rows: int | None
) -> None:
    values = {"data": {"demo": 50}, "tasks": {"mood": {"rows": 20}, "similar": {}}}
    loaded = load_tasks(make_recipe({**values, **changes}), tmp_path)
    for task in loaded.values():
        data = task.splits.get("unlabelled")
        assert (None if data is None else data.rows) == rows
        if data is not None:
            assert set(data.table().column("label").to_pylist()) == {None}
            assert set(task.foreseen.values()) == {0}


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_demo_task_may_have_unlabelled_files_instead(tmp_path: Path, share: float | None) -> None:
    spec = {"unlabelled": unlabelled(tmp_path / "more.csv", ["calm"] * 5)}
    values = {"data": {"demo": 50}, "tasks": {"mood": spec, "queue": {}}, "teachers": [{}]}
    loaded = load_tasks(make_recipe({**values, "student": {"unlabelled": share}}), tmp_path / "cache")
    data = loaded["mood"].splits["unlabelled"]
    assert (data.rows, set(data.table().column("label").to_pylist())) == (5, {None})
    assert ("unlabelled" in loaded["queue"].splits) == (share is not None)
    assert {name: loaded["mood"].splits[name].rows for name in ("train", "dev")} == {"train": 50, "dev": 200}
