"""Pooling: what an encoder's own files say of it is read without weights, and what says nothing is the default."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import TASKS, some_model
from understill.models.encoder import load_tokenizer, resolve
from understill.models.folder import save_model
from understill.models.pooling import own_pooling

PLACE = "sentence_transformers.models"
OLD = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_max_tokens": False}


def sentence_encoder(folder: Path, pooling: Any, *modules: str, place: str = PLACE) -> str:
    """Write down the modules of a sentence encoder, with this config of its pooling."""
    names = ["Transformer", "Pooling", *modules]
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(names[1:], 1))]
    listed = [{"path": path, "type": f"{place}.{name}"} for path, name in zip(paths, names, strict=True)]
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(folder)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({**OLD, "pooling_mode_mean_tokens": True}, "mean"),
        ({**OLD, "pooling_mode_cls_token": True}, "default"),
        ({**OLD, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "default"),
        ({**OLD, "pooling_mode_mean_sqrt_len_tokens": True}, "default"),
        ({"embedding_dimension": 32, "pooling_mode": "mean"}, "mean"),
        ({"embedding_dimension": 32, "pooling_mode": ["mean"]}, "mean"),
        ({"embedding_dimension": 32, "pooling_mode": "cls"}, "default"),
        ({"embedding_dimension": 32, "pooling_mode": ["mean", "max"]}, "default"),
        ([], "default"),
    ],
)
def test_a_sentence_encoder_says_how_it_pools(pooling: Any, expected: str, tmp_path: Path) -> None:
    assert own_pooling(sentence_encoder(tmp_path, pooling)) == expected


def test_a_sentence_encoder_says_whether_its_vectors_have_the_length_1(tmp_path: Path) -> None:
    newer = "sentence_transformers.base.modules.normalize"
    mean = {"pooling_mode": "mean"}
    assert own_pooling(sentence_encoder(tmp_path / "plain", mean)) == "mean"
    assert own_pooling(sentence_encoder(tmp_path / "old", mean, "Normalize")) == "normalised"
    assert own_pooling(sentence_encoder(tmp_path / "new", mean, "Normalize", place=newer)) == "normalised"


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
def test_a_model_trained_here_says_it_in_its_manifest(pooling: str, tiny: Path, tmp_path: Path) -> None:
    model = some_model(tiny, pooling=pooling)
    save_model(tmp_path / "model", model, load_tokenizer(str(tiny)), {task.name: 32 for task in TASKS}, "{}", {})
    assert own_pooling(str(tmp_path / "model")) == pooling


def test_what_says_nothing_is_read_as_its_architecture_reads_it(tiny: Path, tmp_path: Path) -> None:
    assert own_pooling(str(tiny)) == "default"
    assert own_pooling(str(tmp_path / "nowhere")) == "default"
    (tmp_path / "modules.json").write_text("{")
    assert own_pooling(str(tmp_path)) == "default"


def test_a_hub_models_pooling_is_fetched_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def fetch(name: str, **settings: Any) -> str:
        asked.append(settings)
        return str(tmp_path / ("a" * 40))

    monkeypatch.setattr("understill.models.encoder.snapshot_download", fetch)
    assert resolve("someone/sentences") == str(tmp_path / ("a" * 40))
    assert asked[1] == {"revision": "a" * 40, "allow_patterns": ["*_Pooling/config.json"]}


def test_it_is_told_without_torch() -> None:
    code = "import sys, understill.models.pooling; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
