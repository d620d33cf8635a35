"""Soft targets come back as they went in, row by row, and never when anything about them is not right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from understill.artifact import Artifact
from understill.atomic import replacing, seal
from understill.data.check import row_id
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.targets import store as module
from understill.targets.store import MANIFEST, TABLE, BadTargets, SoftTargets, TeacherFacts, read_targets, write_targets
from understill.tasks import Task

TOPIC = Task("topic", "classification", ("text",), "label", ("delivery", "money", "access"))
STARS = Task("stars", "regression", ("text",), "label", range=(1.0, 5.0))
ONE = TeacherFacts("one", "d1", 0.75)
TWO = TeacherFacts("two", "d2", None)
BOTH = {"one": "d1", "two": "d2"}
Floats = NDArray[np.float32]


def stand(folder: Path, texts: Sequence[str], task: Task = TOPIC) -> TaskData:
    """Write a task's rows to an Arrow file, as the reader leaves them."""
    label = pa.float64() if task.kind.name == "regression" else pa.string()
    ids = pa.array([row_id(task.name, [text]) for text in texts], pa.string())
    table = pa.table({"id": ids, "text1": pa.array(texts, pa.string()), "label": pa.nulls(len(texts), label)})
    path = folder / f"{len(list(folder.iterdir()))}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return TaskData(task, "train", path, "f" * 32, len(texts))


def some_logits(data: TaskData, seed: int = 0) -> Floats:
    """Return made-up logits that float16 holds exactly."""
    random = np.random.default_rng(seed)
    return random.normal(0, 3, (data.rows, data.task.outputs)).astype(np.float16).astype(np.float32)


def put(
    folder: Path,
    data: TaskData,
    logits: Sequence[Floats],
    teachers: Sequence[TeacherFacts] = (ONE, TWO),
    dtype: Literal["float16", "float32"] = "float32",
) -> None:
    with replacing(folder) as part:
        write_targets(part, data, teachers, {"logits": logits}, dtype=dtype, rule={"combine": "mean_probabilities"})


@pytest.fixture
def data(tmp_path: Path) -> TaskData:
    return stand(tmp_path, [f"text {number}" for number in range(11)])


@pytest.fixture
def stored(tmp_path: Path, data: TaskData) -> Path:
    """A sound folder in which teacher two says nothing about the fourth row."""
    two = some_logits(data, 2)
    two[3] = np.nan
    put(tmp_path / "targets", data, [some_logits(data, 1), two])
    return tmp_path / "targets"


# What goes in comes out.


@settings(max_examples=60)
@given(st.data())
def test_what_is_written_is_read(draw: st.DataObject) -> None:
    outputs = draw.draw(st.integers(1, 5))
    kinds: dict[str, Any] = {"kind": "classification", "labels": tuple("abcde"[:outputs])}
    task = replace(TOPIC, **kinds) if outputs > 1 else STARS
    texts = draw.draw(st.lists(st.text("xyz", max_size=4), max_size=12))
    dtype = draw.draw(st.sampled_from(("float16", "float32")))
    largest = float(np.finfo(dtype).max)
    values = arrays(np.float32, (len(texts), outputs), elements=st.floats(-largest, largest, width=32))
    logits = []
    for _ in range(draw.draw(st.integers(1, 3))):
        of = draw.draw(values)
        of[draw.draw(arrays(np.bool_, len(texts)))] = np.nan
        logits.append(of[[texts.index(text) for text in texts]])  # the same text, the same logits
    teachers = [TeacherFacts(f"t{index}", f"d{index}", None) for index in range(len(logits))]
    with tempfile.TemporaryDirectory() as folder:
        data = stand(Path(folder), texts, task)
        put(Path(folder) / "targets", data, logits, teachers, dtype)
        targets = read_targets(Path(folder) / "targets", data, {each.name: each.digest for each in teachers})
    assert targets.logits.shape == (len(teachers), len(texts), outputs)
    assert targets.logits.dtype == np.float32
    for got, expected in zip(targets.logits, logits, strict=True):
        if dtype == "float32":
            assert np.array_equal(got, expected, equal_nan=True)
        else:
            assert np.allclose(got, expected, rtol=2.0**-11, atol=2.0**-25, equal_nan=True)


def test_the_folder_holds_a_sorted_table_and_what_it_is(stored: Path, data: TaskData) -> None:
    assert sorted(path.name for path in stored.iterdir()) == ["checksums.json", MANIFEST, TABLE]
    assert [path.name for path in stored.parent.iterdir() if path.name.endswith(".part")] == []
    table = pq.read_table(stored / TABLE)
    assert table.column_names == ["id", "logits_0", "logits_1"]
    ids = table.column("id").to_pylist()
    assert ids == sorted(set(data.table().column("id").to_pylist()))
    assert table.column("logits_0").type.list_size == 3
    assert table.column("logits_1").null_count == 1
    assert pq.ParquetFile(stored / TABLE).metadata.row_group(0).column(0).compression == "ZSTD"
    manifest = json.loads((stored / MANIFEST).read_text())
    assert manifest == {
        "format": 3,
        "task": TOPIC.to_dict(),
        "split": "train",
        "data": data.fingerprint,
        "rows": 11,
        "columns": [{"name": "logits", "shape": [3]}],
        "teachers": [
            {"name": "one", "digest": "d1", "score": 0.75},
            {"name": "two", "digest": "d2", "score": None},
        ],
        "dtype": "float32",
        "rule": {"combine": "mean_probabilities"},
    }


def test_further_columns_are_kept_beside_the_logits_in_their_shapes(tmp_path: Path, data: TaskData) -> None:
    margins, relations = np.linspace(-1, 1, 11, dtype=np.float32), np.arange(66, dtype=np.float32).reshape(11, 2, 3)
    silent = margins.copy()
    silent[3] = np.nan
    answers = {
        "logits": [some_logits(data), some_logits(data, 8)],
        "margin": [margins, silent],
        "relations": [relations, -relations],
    }
    with replacing(tmp_path / "targets") as part:
        write_targets(part, data, (ONE, TWO), answers, dtype="float32", rule={})
    assert pq.read_schema(tmp_path / "targets" / TABLE).names == [
        "id",
        *(f"{name}_{at}" for name in answers for at in (0, 1)),
    ]
    targets = read_targets(tmp_path / "targets", data, BOTH)
    for name, (one, two) in answers.items():
        assert np.array_equal(targets.columns[name][0], one) and np.array_equal(
            targets.columns[name][1], two, equal_nan=True
        )


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ([np.zeros(11), np.zeros((11, 2))], r"give the column margin in different shapes, \[\(\), \(2,\)\]"),
        (
            [np.zeros(10), np.zeros(10)],
            r"teacher one, task topic: margin of shape \[10\], but rows × margin are \[11\]",
        ),
        (
            [np.zeros(11), np.full(11, np.inf)],
            "teacher two, task topic: 11 of 11 rows have margin that are not all finite",
        ),
    ],
)
def test_a_column_that_cannot_be_right_is_refused(
    tmp_path: Path, data: TaskData, margins: list[Floats], words: str
) -> None:
    answers = {"logits": [some_logits(data)] * 2, "margin": margins}
    with pytest.raises(UserError, match=words):
        write_targets(tmp_path, data, (ONE, TWO), answers, dtype="float32", rule={})


def test_float16_takes_half_the_room(tmp_path: Path) -> None:
    data = stand(tmp_path, [f"text {number}" for number in range(3000)])
    logits = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)
    sizes = {}
    for dtype in ("float16", "float32"):
        put(tmp_path / dtype, data, [logits], [ONE], dtype)  # type: ignore[arg-type]
        sizes[dtype] = (tmp_path / dtype / TABLE).stat().st_size
        assert (
            pq.read_schema(tmp_path / dtype / TABLE).field("logits_0").type.value_type
            == {"float16": pa.float16(), "float32": pa.float32()}[dtype]
        )
    assert sizes["float32"] - sizes["float16"] > 0.7 * 3000 * 3 * 2


def test_teachers_come_back_in_the_order_asked_for(stored: Path, data: TaskData) -> None:
    targets = read_targets(stored, data, {"two": "d2", "one": "d1"})
    assert (targets.task, targets.split, targets.teachers) == (TOPIC, "train", (TWO, ONE))
    straight = read_targets(stored, data, BOTH)
    assert np.array_equal(targets.logits, straight.logits[::-1], equal_nan=True)
    assert np.isnan(straight.logits[1, 3]).all()
    assert np.isfinite(np.delete(straight.logits[1], 3, axis=0)).all()


def test_shuffling_the_rows_leaves_each_row_its_targets(tmp_path: Path) -> None:
    texts = [f"text {number % 40}" for number in range(50)]  # some twice
    data = stand(tmp_path, texts)
    logits = some_logits(data)[[texts.index(text) for text in texts]]
    put(tmp_path / "targets", data, [logits], [ONE])
    order = np.random.default_rng(1).permutation(50)
    shuffled = stand(tmp_path, [texts[row] for row in order])
    targets = read_targets(tmp_path / "targets", shuffled, {"one": "d1"})
    assert np.array_equal(targets.logits[0], logits[order])
    put(tmp_path / "again", shuffled, [logits[order]], [ONE])
    assert (tmp_path / "again" / TABLE).read_bytes() == (tmp_path / "targets" / TABLE).read_bytes()


def test_labels_in_another_order_are_joined_by_name(stored: Path, data: TaskData) -> None:
    other = replace(data, task=replace(TOPIC, labels=("access", "delivery", "money")))
    before, after = read_targets(stored, data, BOTH), read_targets(stored, other, BOTH)
    assert np.array_equal(after.logits, before.logits[:, :, [2, 0, 1]], equal_nan=True)
    assert after.task.labels == ("access", "delivery", "money")


def test_rows_with_the_same_texts_are_kept_once(tmp_path: Path) -> None:
    data = stand(tmp_path, ["a", "b", "a", "c", "a"])
    logits = some_logits(data)
    logits[[2, 4]] = logits[0] * (1 + 1e-3)  # as the same text in another batch
    put(tmp_path / "targets", data, [logits], [ONE])
    assert pq.read_metadata(tmp_path / "targets" / TABLE).num_rows == 3
    targets = read_targets(tmp_path / "targets", data, {"one": "d1"})
    assert np.array_equal(targets.logits[0], logits[[0, 1, 0, 3, 0]])


def test_a_quarter_of_a_million_rows_take_seconds(tmp_path: Path) -> None:
    rows = 250_000
    random = np.random.default_rng(0)
    ids = random.bytes(12 * rows).hex()
    table = pa.table({"id": [ids[at : at + 24] for at in range(0, 24 * rows, 24)]})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=8192)
    data = TaskData(TOPIC, "train", tmp_path / "rows.arrow", "f", rows)
    logits = random.normal(size=(rows, 3)).astype(np.float32)
    started = time.process_time()
    put(tmp_path / "targets", data, [logits, logits[::-1]])
    targets = read_targets(tmp_path / "targets", data, BOTH)
    assert time.process_time() - started < 10, "of CPU time, which other processes do not lengthen"
    assert np.array_equal(targets.logits, [logits, logits[::-1]])


# What is not written.


def nan_in_a_row(logits: Floats) -> Floats:
    logits[4, 1] = np.nan
    return logits


def infinity(logits: Floats) -> Floats:
    logits[4, 1] = -np.inf
    return logits


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nan_in_a_row, "1 of 11 rows have logits that are not all finite numbers"),
        (infinity, "1 of 11 rows have logits that are not all finite numbers"),
        (lambda logits: logits[:-1], r"shape \[10, 3\], but rows × outputs are \[11, 3\]"),
        (lambda logits: logits[:, :2], r"shape \[11, 2\]"),
        (lambda logits: logits[:, 0], r"shape \[11\]"),
    ],
)
def test_logits_that_cannot_be_right_are_refused(
    tmp_path: Path, data: TaskData, change: Callable[[Floats], Floats], words: str
) -> None:
    with pytest.raises(UserError, match=f"teacher two, task topic: .*{words}"):
        put(tmp_path / "targets", data, [some_logits(data), change(some_logits(data))])
    assert not (tmp_path / "targets").exists()


def test_the_row_with_a_bad_logit_is_named(tmp_path: Path, data: TaskData) -> None:
    with pytest.raises(UserError, match=row_id("topic", ["text 4"])):
        put(tmp_path / "targets", data, [nan_in_a_row(some_logits(data))], [ONE])


@pytest.mark.parametrize("second", [[0.0, 1.0, 2.1], [np.nan] * 3])
def test_rows_with_the_same_texts_and_different_logits_are_refused(tmp_path: Path, second: list[float]) -> None:
    data = stand(tmp_path, ["a", "b", "a"])
    logits = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], second], np.float32)
    with pytest.raises(UserError, match=f"1 rows have logits that differ .* id {row_id('topic', ['a'])}"):
        put(tmp_path / "targets", data, [logits], [ONE])


@pytest.mark.parametrize("value", [65510.0, -1e6])
def test_logits_too_large_for_float16_are_not_cut_off(tmp_path: Path, data: TaskData, value: float) -> None:
    logits = some_logits(data)
    logits[0, 0] = value
    with pytest.raises(UserError, match=r"float16 ends at 65504; write targets\.dtype: float32"):
        put(tmp_path / "targets", data, [logits], [ONE], "float16")
    put(tmp_path / "targets", data, [logits], [ONE], "float32")
    assert read_targets(tmp_path / "targets", data, {"one": "d1"}).logits[0, 0, 0] == value


@pytest.mark.parametrize("teachers", [[], [ONE, replace(ONE, digest="d3")]])
def test_teachers_must_have_names_of_their_own(tmp_path: Path, data: TaskData, teachers: list[TeacherFacts]) -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        put(tmp_path / "targets", data, [some_logits(data)] * len(teachers), teachers)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, data: TaskData, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(tmp_path.iterdir())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_json", full)
    with pytest.raises(OSError, match="No space left on device"):
        put(tmp_path / "targets", data, [some_logits(data)], [ONE])
    assert sorted(tmp_path.iterdir()) == before


# What is not read. Each damage is done to a folder that is sound in all else.


def edit(folder: Path, **changes: Any) -> None:
    """Change what the manifest says."""
    values = json.loads((folder / MANIFEST).read_text())
    overwrite(folder, json.dumps({**values, **changes}).encode())


def overwrite(folder: Path, content: bytes) -> None:
    """Change the manifest, as if it had been written so."""
    (folder / MANIFEST).write_bytes(content)
    seal(folder)


def flip(folder: Path) -> None:
    content = bytearray((folder / TABLE).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / TABLE).write_bytes(content)


def tell_other_teachers(folder: Path, *teachers: tuple[str, str]) -> None:
    edit(folder, teachers=[{"name": name, "digest": digest, "score": 0.5} for name, digest in teachers])


def task_with(**changes: Any) -> dict[str, Any]:
    return replace(TOPIC, **changes).to_dict()


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no-manifest": (lambda folder: (folder / MANIFEST).unlink(), "manifest.json is missing"),
    "manifest-changed": (
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes().replace(b"0.75", b"0.95")),
        "manifest.json was changed or damaged",
    ),
    "format": (lambda folder: edit(folder, format=99), "has format 99, and this understill reads format 3"),
    "no-table": (lambda folder: (folder / TABLE).unlink(), "targets.parquet is missing"),
    "table-bit": (flip, "targets.parquet was changed or damaged"),
    "table-cut": (lambda folder: os.truncate(folder / TABLE, 300), "targets.parquet was changed or damaged"),
    "task-name": (lambda folder: edit(folder, task=task_with(name="mood")), "of the classification task mood, not"),
    "task-kind": (lambda folder: edit(folder, task=task_with(kind="regression")), "of the regression task topic, not"),
    "split": (lambda folder: edit(folder, split="dev"), "of the split dev, not of train"),
    "stale-data": (lambda folder: edit(folder, data="0" * 32), "the train data of task topic has changed"),
    "teacher-changed": (
        lambda folder: tell_other_teachers(folder, ("one", "d1"), ("two", "old")),
        "teacher two has changed since it answered",
    ),
    "teacher-missing": (lambda folder: tell_other_teachers(folder, ("one", "d1")), "it is of one, not of one and two"),
    "teacher-extra": (
        lambda folder: tell_other_teachers(folder, ("one", "d1"), ("two", "d2"), ("three", "d3")),
        "it is of one, two and three, not of one and two",
    ),
    "label-names": (
        lambda folder: edit(folder, task=task_with(labels=("delivery", "money", "other"))),
        "its labels are delivery, money and other, and those of task topic are delivery, money and access",
    ),
    "label-twice": (
        lambda folder: edit(folder, task=task_with(labels=("delivery", "money", "money"))),
        "has no task that can be read .topic has not one or two texts, or a label twice",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_named_with_the_damage_and_the_remedy(stored: Path, data: TaskData, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(stored)
    with pytest.raises(BadTargets, match=words) as caught:
        read_targets(stored, data, BOTH)
    assert str(caught.value).startswith(f"the soft targets in {stored} cannot be used: ")
    assert str(caught.value).endswith("; delete the folder, and they are made again")


def test_the_ways_to_do_damage_do_none_by_themselves(stored: Path, data: TaskData) -> None:
    before = read_targets(stored, data, BOTH)
    edit(stored)
    assert np.array_equal(before.logits, read_targets(stored, data, BOTH).logits, equal_nan=True)


def test_whatever_lies_under_a_null_is_not_a_logit() -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 7.0, 7.0]), 2, mask=pa.array([False, True]))
    assert np.array_equal(module._values(lists), [[1.0, 2.0], [np.nan, np.nan]], equal_nan=True)


def test_a_folder_that_is_not_there_is_bad_too(tmp_path: Path, data: TaskData) -> None:
    with pytest.raises(BadTargets, match=r"checksums\.json is missing"):
        read_targets(tmp_path / "nowhere", data, BOTH)


def test_equals_signs_in_the_path_add_no_columns(tmp_path: Path, data: TaskData) -> None:
    put(tmp_path / "run=1" / "targets", data, [some_logits(data)], [ONE])
    assert np.array_equal(
        read_targets(tmp_path / "run=1" / "targets", data, {"one": "d1"}).logits[0], some_logits(data)
    )


# Several that write the same.


def test_threads_that_write_the_same_folder_leave_one_and_readers_see_it_whole(tmp_path: Path, data: TaskData) -> None:
    logits = [some_logits(data, 1), some_logits(data, 2)]
    faults: list[BaseException] = []
    seen: list[SoftTargets] = []
    for turn in range(10):
        artifact = Artifact("targets", "", {"turn": turn}, tmp_path)
        folder, start = artifact.folder, threading.Barrier(5)

        def write(artifact: Artifact = artifact, start: threading.Barrier = start) -> None:
            try:
                start.wait()
                with artifact.build() as part:
                    write_targets(part, data, [ONE, TWO], {"logits": logits}, dtype="float32", rule={})
            except BaseException as fault:
                faults.append(fault)

        def read(folder: Path = folder, start: threading.Barrier = start) -> None:
            try:
                start.wait()
                while not folder.exists():
                    time.sleep(0.0001)
                seen.append(read_targets(folder, data, BOTH))
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=write) for _ in range(4)] + [threading.Thread(target=read, daemon=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert faults == []
    assert len(seen) == 10
    assert all(np.array_equal(targets.logits, logits) for targets in seen)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 10


WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from understill.data.check import row_id
from understill.data.taskdata import TaskData
from understill.artifact import Artifact
from understill.targets.store import TeacherFacts, write_targets
from understill.tasks import Task
root, path = Path(sys.argv[1]), Path(sys.argv[2])
task = Task("topic", "classification", ("text",), "label", ("delivery", "money", "access"))
data = TaskData(task, "train", path, "f" * 32, 11)
logits = np.arange(33, dtype=np.float32).reshape(11, 3)
(root / f"ready-{sys.argv[3]}").touch()
while not (root / "go").exists():
    time.sleep(0.001)
with Artifact("targets", "", {}, root).build() as part:
    write_targets(part, data, [TeacherFacts("one", "d1", None)], {"logits": [logits]}, dtype="float16", rule={})
"""


def test_processes_that_write_the_same_folder_leave_one(tmp_path: Path, data: TaskData) -> None:
    root = tmp_path / "out"
    root.mkdir()
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(data.path), str(number)]) for number in range(3)
    ]
    deadline = time.monotonic() + 120
    while len(list(root.glob("ready-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    (root / "go").touch()
    assert [process.wait(60) for process in started] == [0, 0, 0]
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    targets = read_targets(folder, data, {"one": "d1"})
    assert np.array_equal(targets.logits[0], np.arange(33, dtype=np.float32).reshape(11, 3))
