"""The pipeline trains, scores, reuses and resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from understill import pipeline
from understill.events import TrainingState
from understill.models.folder import load_model
from understill.pipeline.model_training import SCORED
from understill.recipe import Recipe


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_run_writes_exactly_these_files(make_tiny: Callable[..., Recipe]) -> None:
    run = pipeline.run(make_tiny())
    (model,) = run.models
    assert files(model.folder) == [
        "checksums.json",
        "config.json",
        "model.safetensors",
        "recipe.yaml",
        "scores.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "understill.json",
    ]
    assert [name for name in files(model.folder.parent) if "/" not in name] == [
        "checksums.json",
        "done.json",
        "log.jsonl",
        "scores.json",
    ]
    assert sorted(path.name for path in (model.folder.parent / "predictions").iterdir()) == [
        "follows.dev.parquet",
        "mood.dev.parquet",
        "similar.dev.parquet",
    ]
    assert sorted(path.name for path in run.folder.iterdir()) == ["models", "recipe.yaml", "run.json"]
    assert load_model(run.folder / "models" / "multi").tasks[0].name == "mood"


def test_a_second_run_trains_nothing(make_tiny: Callable[..., Recipe]) -> None:
    first = pipeline.run(make_tiny())
    done = (first.models[0].folder.parent / "done.json").stat().st_mtime_ns
    events: list[object] = []
    second = pipeline.run(make_tiny(), events.append)
    assert second.models == first.models
    assert not any(type(event).__name__ == "Report" for event in events)
    assert (first.models[0].folder.parent / "done.json").stat().st_mtime_ns == done


def test_each_task_gets_its_own_model(make_tiny: Callable[..., Recipe]) -> None:
    run = pipeline.run(make_tiny(models="each"))
    assert [model.name for model in run.models] == ["mood", "follows", "similar"]
    for model in run.models:
        assert [task.name for task in load_model(model.folder).tasks] == [model.name]
        assert list(model.scores) == [f"{model.name}/dev"]


def test_only_what_changes_the_result_changes_the_fingerprint(make_tiny: Callable[..., Recipe]) -> None:
    def of(**changes: object) -> str:
        return pipeline.make_plan(make_tiny(**changes)).models[0].fingerprint

    same = of()
    assert of(training={"checkpoint": "2 steps"}) == same
    assert of(machine={"threads": 2}) == same
    assert of(evaluation={"batch": 3}) == same
    assert of(name="other") == same
    assert of(tasks={"mood": {"max_length": 32}, "follows": {}, "similar": {}}) == same  # as the encoder's
    assert of(heads={"tasks": {"mood": {"dropout": 0.1}}}) == same  # as all heads'
    assert of(heads={"tasks": {"mood": {"lr": 0.5}}}) != same
    changed = {of(seed=1), of(training={"lr": 2e-3}), of(data={"demo": {"rows": 65}}), of(encoder={"pooling": "mean"})}
    assert len(changed | {same}) == 5


def test_scores_of_a_saved_model_are_those_of_the_run(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny()
    (model,) = pipeline.run(recipe).models
    scores, _ = pipeline.evaluate(model.folder, recipe)
    assert scores == model.scores
    assert json.loads((model.folder / "scores.json").read_text()) == model.scores


def test_a_setting_of_one_head_leaves_the_models_of_other_tasks_alone(make_tiny: Callable[..., Recipe]) -> None:
    plain = pipeline.make_plan(make_tiny(models="each")).models
    other = pipeline.make_plan(make_tiny(models="each", heads={"tasks": {"similar": {"dropout": 0.3}}})).models
    assert [one.fingerprint == two.fingerprint for one, two in zip(plain, other, strict=True)] == [True, True, False]


def test_a_finished_model_is_scored_anew_when_a_dev_set_changes(make_tiny: Callable[..., Recipe]) -> None:
    (model,) = pipeline.run(make_tiny()).models
    scores = model.folder.parent / "scores.json"
    facts = json.loads(scores.read_text(encoding="utf-8"))
    # As if the model had been scored before `similar` had this dev set.
    del facts["scored_on"]["similar/dev"], facts["scores"]["similar/dev"]
    scores.write_text(json.dumps(facts), encoding="utf-8")
    pipeline.make_plan(make_tiny()).models[0].artifact.seal(SCORED)
    events: list[object] = []
    (again,) = pipeline.run(make_tiny(), events.append).models
    assert again == model
    assert not any(type(event).__name__ == "Report" for event in events)


def test_a_run_folder_holds_only_the_models_of_its_last_run(make_tiny: Callable[..., Recipe]) -> None:
    pipeline.run(make_tiny())
    pipeline.run(make_tiny(models="each"))
    run = pipeline.run(make_tiny())
    assert [path.name for path in (run.folder / "models").iterdir()] == ["multi"]
    assert pipeline.find_model(run.folder) == run.folder / "models" / "multi"


def test_a_failed_run_gives_its_lock_back(make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("understill.pipeline.model_training.make_batches", fail)
        with pytest.raises(RuntimeError) as kept:
            pipeline.run(make_tiny())
    events: list[object] = []
    pipeline.run(make_tiny(), events.append)
    assert kept.value and TrainingState("multi", "waiting") not in events


def test_a_saved_model_reads_as_many_tokens_as_it_was_trained_on(make_tiny: Callable[..., Recipe]) -> None:
    (model,) = pipeline.run(make_tiny(encoder={"max_length": 12})).models
    assert pipeline.evaluate(model.folder, make_tiny(encoder={"max_length": 100}))[0] == model.scores


def test_test_sets_are_scored_when_asked_for(make_tiny: Callable[..., Recipe]) -> None:
    (model,) = pipeline.run(make_tiny()).models
    scores, _ = pipeline.evaluate(model.folder, make_tiny(), kind="test")
    assert set(scores) == {"mood/test", "follows/test", "similar/test"}


def test_a_run_from_a_folder_that_is_not_installed_ends_like_any_other(
    monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Recipe]
) -> None:
    known = metadata.version

    def version(package: str) -> str:
        if package == "understill":
            raise metadata.PackageNotFoundError(package)
        return known(package)

    monkeypatch.setattr(metadata, "version", version)
    folder = pipeline.run(make_tiny()).folder
    assert json.loads((folder / "run.json").read_text())["made_with"]["understill"] == "not installed"
