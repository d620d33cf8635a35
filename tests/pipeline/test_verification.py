"""Verify names every damaged file of a run, a model or an export with what mends it, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from understill import cli, pipeline
from understill.atomic import CHECKSUMS, file_digest, seal
from understill.errors import UserError
from understill.events import Evaluated
from understill.pipeline.verification import Verified, verify
from understill.recipe import Recipe, make_recipe
from understill.teachers.llm.cache import AnswerCache, LlmReply


def interrupted(recipe: Recipe) -> None:
    """Run a recipe until the second look at its dev sets, when there is a checkpoint."""
    looks = []

    def watch(event: object) -> None:
        looks.extend([event] if isinstance(event, Evaluated) else [])
        if len(looks) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.run(recipe, watch)


@pytest.fixture(scope="module")
def made(tiny_values: Callable[[Path], dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder: a finished run with teachers' answers and an export, and one that was interrupted."""
    runs = tmp_path_factory.mktemp("made") / "runs"
    values = tiny_values(runs) | {"tasks": ["mood"], "targets": {"weak": "keep"}, "teachers": [{"name": "large"}]}
    values |= {"student": {"encoder": {"layers": 1}, "baseline": False}, "name": "whole"}
    pipeline.run(make_recipe(values))
    training = {**values["training"], "lr": "auto", "evaluate": "2 steps", "checkpoint": "2 steps"}
    started = {key: value for key, value in values.items() if key not in ("targets", "teachers", "student")}
    interrupted(make_recipe(started | {"name": "begun", "training": training}))
    model = runs / "whole" / "models" / "student"
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(model), "--to", "onnx", "--out", str(runs / "whole" / "export" / "onnx")])
    assert not stop.value.code
    return runs


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "runs", symlinks=True))


def damaged(path: Path) -> dict[str, Verified]:
    return {f"{each.path.name}: {fault}": each for each in verify(path) for fault in each.faults}


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_whole_is_whole(runs: Path) -> None:
    whole = verify(runs)
    assert not any(each.faults for each in whole)
    kinds = {each.path.name.split("-")[0] for each in whole}
    assert kinds >= {
        "run.json",
        "model",
        "targets",
        "verdict",
        "data",
        "tokens",
        "checkpoint",
        "tuned.json",
        "onnx",
        "0",
    }
    assert len({each.path for each in whole}) == len(whole), "what runs share is checked once"
    assert not damaged(runs / "whole") and not damaged(runs / "begun")
    assert not damaged(runs / "whole" / "models" / "student") and not damaged(runs / "whole" / "export" / "onnx")


RUN = "understill run {runs}/whole/recipe.yaml"


@pytest.mark.parametrize(
    ("pattern", "where", "fault", "remedy"),
    [
        ("artifacts/model-*/model/model.safetensors", "whole", "model/model.safetensors was changed or damaged", RUN),
        ("artifacts/model-*/done.json", "whole", "done.json was changed or damaged", RUN),
        ("artifacts/targets-*/targets.parquet", "whole", "targets.parquet was changed or damaged", RUN),
        ("artifacts/verdict-*/checksums.json", "whole", "checksums.json was changed or damaged", RUN),
        ("whole/teachers/0/*.parquet", "whole", "parquet was changed or damaged", RUN),
        ("whole/run.json", "whole", "run.json was changed or damaged", "your own recipe file"),
        ("whole/recipe.yaml", "whole", "recipe.yaml was changed or damaged", "your own recipe file"),
        ("whole/export/onnx/*.onnx", "whole", "model.onnx was changed or damaged", "export it again"),
        ("whole/export/onnx/*.onnx", "whole/export/onnx", "model.onnx was changed or damaged", "copy the whole folder"),
        ("cache/tokens-*/ids.bin", "whole", "ids.bin was changed or damaged", "made again by the next run"),
        ("cache/data-*/data.arrow", ".", "data.arrow was changed or damaged", "made again by the next run"),
        ("artifacts/model-*/work/checkpoint-*/state.safetensors", "begun", "state.safetensors was", "an older one or"),
        ("artifacts/model-*/work/tuned.json", "begun", "it was changed or damaged", "begun/recipe.yaml"),
    ],
)
def test_a_damaged_file_is_named_with_what_mends_it(
    runs: Path, pattern: str, where: str, fault: str, remedy: str
) -> None:
    path = sorted(runs.glob(pattern))[0]
    spoil(path)
    spoilt = path.read_bytes()
    ((message, result),) = damaged(runs / where).items()
    assert message.endswith(fault) or fault in message
    assert remedy.format(runs=runs) in result.remedy
    assert path.read_bytes() == spoilt, "nothing is changed"


def test_a_run_may_be_named_from_within(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "whole" / "export")
    assert {each.path for each in verify(Path(".."))} == {each.path for each in verify(runs / "whole")}


def test_every_damaged_file_of_a_folder_is_named(runs: Path) -> None:
    folder = next(runs.glob("cache/tokens-*"))
    spoil(folder / "ids.bin")
    (folder / "gold.bin").unlink()
    assert set(damaged(runs)) == {
        f"{folder.name}: ids.bin was changed or damaged",
        f"{folder.name}: gold.bin is missing",
    }


def test_what_is_gone_or_in_anothers_place_is_noticed(runs: Path) -> None:
    targets, (one, other, *_) = next(runs.glob("artifacts/targets-*[!k]")), sorted(runs.glob("cache/data-*"))
    shutil.rmtree(targets)
    shutil.rmtree(one)
    shutil.copytree(other, one)
    result = damaged(runs / "whole")
    assert set(result) == {f"{targets.name}: it is missing", f"{one.name}: checksums.json is of something else"}


def test_a_model_folder_without_checksums_is_refused(runs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs / "whole" / "models" / "student", tmp_path / "model"))
    (copy / "checksums.json").unlink()
    (result,) = damaged(copy).values()
    assert result.faults == ("checksums.json is missing",) and "copy the whole folder again" in result.remedy


@pytest.mark.parametrize(("folder", "message"), [("none", "no such folder"), ("empty", "nothing here has checksums")])
def test_a_folder_with_nothing_to_verify_is_the_users_mistake(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message):
        verify(tmp_path / folder)


def test_the_verb_exits_with_1_where_something_is_damaged(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in (0, 1):
        with pytest.raises(SystemExit) as stop:
            cli.main(["verify", str(runs / "whole")])
        assert stop.value.code == code
        out = capsys.readouterr().out
        assert ("all match their checksums" in out) == (code == 0)
        spoil(next(runs.glob("artifacts/model-*/scores.json")))
    assert "scores.json was changed or damaged" in out and "1 damaged" in out and RUN.format(runs=runs) in out


def test_what_verify_says_is_what_the_next_run_does(runs: Path) -> None:
    recipe = yaml.safe_load((runs / "whole" / "recipe.yaml").read_text(encoding="utf-8"))
    recipe["output"]["folder"] = os.fspath(runs)
    for pattern in ("artifacts/targets-*/targets.parquet", "cache/tokens-*/ids.bin", "whole/run.json"):
        for path in sorted(runs.glob(pattern)):
            spoil(path)
    assert len(damaged(runs / "whole")) > 3
    pipeline.run(make_recipe(recipe))
    left = {name for name in damaged(runs / "whole") if not name.startswith("t")}
    assert not left, "tables of soft targets and tokens are made again when a model is trained; the rest at once"


def test_of_a_model_one_line_stands_for_all_its_files(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def reported() -> str:
        with pytest.raises(SystemExit) as stop:
            cli.main(["verify", str(model)])
        assert not stop.value.code
        return capsys.readouterr().out.splitlines()[-1]

    model = runs / "whole" / "models" / "student"
    before = reported()
    assert before == f"sha256 of checksums.json: {file_digest(model / CHECKSUMS)}" and reported() == before
    manifest = model / "understill.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"calm"', '"upset "'), encoding="utf-8")
    seal(model)
    assert reported() != before, "who makes checksums anew has made another model, and the line says so"


def test_answers_of_a_language_model_that_were_damaged_are_named(runs: Path) -> None:
    cache = AnswerCache(runs / "cache")
    cache.put("key", "m", LlmReply("calm"), "whole/llm")
    assert not damaged(runs)
    cache._db.execute("UPDATE replies SET text = 'upset'")
    cache.close()
    assert list(damaged(runs / "whole")) == ["answers.sqlite: 1 answer changed or damaged"]
    (runs / "cache" / "answers.sqlite").write_bytes(b"no database" * 100)
    assert any("cannot be read" in name for name in damaged(runs))
