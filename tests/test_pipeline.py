"""The pipeline trains, scores, reuses and resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from understill import pipeline
from understill.models.folder import load_model
from understill.recipe import Recipe


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_run_writes_exactly_these_files(make_tiny: Callable[..., Recipe]) -> None:
    run = pipeline.run(make_tiny())
    (model,) = run.models
    assert files(model.folder) == [
        "config.json",
        "model.safetensors",
        "recipe.yaml",
        "scores.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "understill.json",
    ]
    assert files(model.folder.parent)[:2] == ["done.json", "log.jsonl"]
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
    changed = {of(seed=1), of(training={"lr": 2e-3}), of(data={"demo": {"rows": 65}}), of(encoder={"pooling": "mean"})}
    assert len(changed | {same}) == 5


def test_scores_of_a_saved_model_are_those_of_the_run(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny()
    (model,) = pipeline.run(recipe).models
    scores, _ = pipeline.evaluate(model.folder, recipe)
    assert scores == model.scores
    assert json.loads((model.folder / "scores.json").read_text()) == model.scores
