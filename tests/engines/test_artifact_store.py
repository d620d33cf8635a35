"""Artefacts go through a store whole or not at all, and what was damaged there is not taken."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from understill.artifact import Artifact
from understill.engines.artifact_store import Store, finished, scratch
from understill.errors import UserError


@pytest.fixture
def store() -> Store:
    """An empty store in memory."""
    return Store(f"memory://{uuid.uuid4().hex}/runs")


def make(folder: Path, **files: str) -> Artifact:
    """A finished artefact with these files."""
    artifact = Artifact("model", "student", {"seed": 1}, folder)
    with artifact.build() as part:
        (part / "model").mkdir()
        for name, text in files.items():
            (part / "model" / f"{name}.txt").write_text(text)
    return artifact


def test_what_one_machine_makes_another_has_whole(store: Store, tmp_path: Path) -> None:
    made = make(tmp_path / "one", weights="1 2 3", labels="yes no")
    store.push(made.folder)
    there = Artifact("model", "student", {"seed": 1}, tmp_path / "two")
    assert store.pull(there.folder)
    assert there.sound()
    assert (there.folder / "model" / "weights.txt").read_text() == "1 2 3"


def test_what_is_not_finished_is_not_there(store: Store, tmp_path: Path) -> None:
    (tmp_path / "one" / "model-student-1" / "work").mkdir(parents=True)
    assert finished(tmp_path / "one") == {}
    assert not store.pull(tmp_path / "two" / "model-student-1")
    assert not (tmp_path / "two").exists()


def test_an_artefact_that_has_changed_takes_the_place_of_the_old_one(store: Store, tmp_path: Path) -> None:
    made = make(tmp_path / "one", weights="1 2 3")
    there = Artifact("model", "student", {"seed": 1}, tmp_path / "two")
    store.push(made.folder)
    store.pull(there.folder)
    old = finished(made.root)
    (made.folder / "scores.json").write_text("{}")
    made.seal(("model", "scores.json"))
    assert finished(made.root) != old
    store.push(made.folder)
    assert store.pull(there.folder)
    assert there.sound() and (there.folder / "scores.json").exists()


def test_a_file_that_was_half_written_is_written_again(store: Store, tmp_path: Path) -> None:
    made = make(tmp_path / "one", weights="1 2 3")
    store.push(made.folder)
    (place,) = store.files.ls(f"{store.root}/files", detail=False)
    store.files.pipe_file(place, b"1")
    Store(store.url).push(made.folder)
    assert Store(store.url).pull(tmp_path / "two" / made.folder.name)


def test_a_damaged_file_is_refused_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    made = make(tmp_path / "one", weights="1 2 3")
    store.push(made.folder)
    (place,) = store.files.ls(f"{store.root}/files", detail=False)
    store.files.pipe_file(place, b"1 2 4")
    with pytest.raises(UserError, match="was damaged"):
        store.pull(tmp_path / "two" / made.folder.name)
    assert not list((tmp_path / "two").glob("model-*/"))


def test_urls_that_no_store_has_are_refused() -> None:
    with pytest.raises(UserError, match="Protocol not known"):
        Store("nowhere://bucket/runs")
    with pytest.raises(UserError, match="nothing can be written there"):
        Store("local:///proc/nowhere").check()


def test_each_node_has_a_folder_of_its_own() -> None:
    assert scratch("s3://a", "node1") != scratch("s3://a", "node2") != scratch("s3://b", "node2")
