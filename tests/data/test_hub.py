"""Datasets in the hub's layout, from a local folder and without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from understill.data.load import LoadedTask, load_tasks
from understill.errors import UserError
from understill.recipe import make_recipe

datasets = pytest.importorskip("datasets", reason="the extra hub is not installed")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub-cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset as the hub keeps it: Parquet files whose schema knows the label names."""
    features = datasets.Features(
        {"say": datasets.Value("string"), "mood": datasets.ClassLabel(names=["calm", "upset"])}
    )
    there = tmp_path / "inbox"
    there.mkdir()
    for split, labels in {"train": [0, 1, 1, 0], "validation": [1, 0], "test": [-1]}.items():
        rows = {"say": [f"{split} text {index}" for index in range(len(labels))], "mood": labels}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(there / f"{split}.parquet")
    return there


def load(dataset: str, cache: Path, **changes: Any) -> LoadedTask:
    spec = {"hub": dataset, "train": "train", "dev": "validation", "test": "test", "text": "say", "label": "mood"}
    values = {"tasks": {"mood": {**spec, **changes}}, "teachers": [{}] if "unlabelled" in changes else []}
    return load_tasks(make_recipe(values), cache)["mood"]


def test_label_ids_become_names_and_minus_one_is_no_label(folder: Path, tmp_path: Path) -> None:
    task = load(str(folder), tmp_path / "cache")
    assert task.task.labels == ("calm", "upset")
    labels = {split: data.table().column("label").to_pylist() for split, data in task.splits.items()}
    assert labels == {"train": ["calm", "upset", "upset", "calm"], "dev": ["upset", "calm"], "test": [None]}


def test_candidates_are_grouped_by_a_column(tmp_path: Path) -> None:
    there = tmp_path / "asked"
    there.mkdir()
    rows = {"who": ["a", "a", "b", "b"], "ask": ["x", "x", "x", "x"], "say": ["1", "2", "3", "4"], "good": [0, 1, 1, 0]}
    features = {name: datasets.Value("string") for name in ("who", "ask", "say")}
    features["good"] = datasets.ClassLabel(names=["no", "yes"])
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).to_parquet(there / "train.parquet")
    spec = {"dev": "train", "test": [], "text": ["ask", "say"], "label": "good", "kind": "ranking"}
    task = load(str(there), tmp_path / "cache", **spec, group="who")
    assert task.task.labels == ("no", "yes")
    assert task.splits["train"].table().column("group").to_pylist() == ["a", "a", "b", "b"]
    assert task.splits["train"].fingerprint != load(str(there), tmp_path / "cache", **spec).splits["train"].fingerprint
    with pytest.raises(UserError, match=r'there is no column "whom" in train'):
        load(str(there), tmp_path / "cache", **spec, group="whom")


def test_unlabelled_texts_come_from_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("mood,say\ncalm,nobody knows\n,test text 0\n", encoding="utf-8")
    task = load(str(folder), tmp_path / "cache", unlabelled=str(tmp_path / "more.csv"))
    rows = task.splits["unlabelled"].table().to_pylist()
    assert [(row["text1"], row["label"]) for row in rows] == [("nobody knows", None), ("test text 0", None)]
    assert task.foreseen == {"dev": 0, "test": 1}


def test_the_same_rows_have_the_same_fingerprint(folder: Path, tmp_path: Path) -> None:
    first, second = (load(str(folder), tmp_path / f"cache{index}") for index in range(2))
    assert first.splits["train"].fingerprint == second.splits["train"].fingerprint


def test_a_missing_column_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'there is no column "says" in train; the columns are: say, mood'):
        load(str(folder), tmp_path / "cache", text="says", dev=0.5, test=[])


def test_an_unknown_split_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'there is no split "dev"') as error:
        load(str(folder), tmp_path / "cache", dev="dev")
    assert "\n" not in str(error.value)


def test_a_name_that_cannot_be_reached_gives_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"hub dataset nobody/nothing-of-this-name: ") as error:
        load("nobody/nothing-of-this-name", tmp_path / "cache", dev=0.5, test=[])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_without_the_extra_the_pip_line_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r'pip install "understill\[hub\]"'):
        load("any/name", tmp_path / "cache")
