"""The estimate takes real steps, counts as the loop counts, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from understill import pipeline
from understill.estimate import estimate
from understill.models.encoder import load_tokenizer
from understill.recipe import Recipe
from understill.train.loop import total_steps


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "training",
    [
        {"steps": 6},
        {"steps": None, "epochs": 2},
        {"steps": None, "epochs": 0.3, "batch": 7},
        {"steps": None, "epochs": 1, "batches": "one_task", "batch": 100},
        {"steps": None, "epochs": 1, "batches": "one_task", "sampling": {"power": 0.5}},
        {"steps": None, "epochs": 3, "sampling": "uniform"},
        {"steps": None, "epochs": 1, "sampling": {"power": 0.5, "copies": True}},
        {"steps": None, "epochs": 1, "both_orders": True},
        {"steps": None, "epochs": 1, "batch": 2, "micro_batch": 1},
    ],
    ids=str,
)
def test_the_steps_are_those_the_loop_takes(
    make_tiny: Callable[..., Recipe], training: dict[str, Any], tmp_path: Path
) -> None:
    tasks = {"mood": {}, "follows": {"rows": 20}, "similar": {"rows": 50}}
    study = pipeline.make_study(make_tiny(tasks=tasks, training=training))
    plan = study.plan
    (model,) = plan.models
    found = estimate(study)["multi"]
    tokenizer = load_tokenizer(model.start.name, model.start.place)
    lengths = {task.name: pipeline.max_length(plan.recipe, model.settings, task.name) for task in model.tasks}
    tokens = pipeline.Tokeniser(tokenizer, lengths, tmp_path, lambda event: None)
    batches = pipeline.make_batches(plan, model, tokens, {})
    assert found.steps == total_steps(plan.recipe.training, batches.steps_per_epoch)
    assert 0 < found.seconds < 600
    assert 8 <= found.tokens <= 32


def test_each_model_has_its_own_estimate_and_a_finished_one_none(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(models="each", tasks=["mood", "similar"])
    study = pipeline.make_study(recipe)
    assert list(estimate(study)) == ["mood", "similar"]
    pipeline.teach(study.plan, study.plan.models[:1])
    assert list(estimate(pipeline.make_study(recipe))) == ["similar"]


def test_nothing_is_kept_of_an_estimate(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny()
    study = pipeline.make_study(recipe)
    before = files(recipe.output.path)
    estimate(study)
    assert files(recipe.output.path) == before
    assert not (recipe.output.path / "artifacts").exists()


def test_twice_the_steps_take_twice_as_long(make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understill.estimate._step_seconds", lambda *_: 0.25)
    short, long, pieces = (
        estimate(pipeline.make_study(make_tiny(training=training)))["multi"].seconds
        for training in ({"steps": 6}, {"steps": 12}, {"steps": 6, "micro_batch": 2})
    )
    assert (short, long) == (6 * 0.25, 12 * 0.25)
    assert pieces == 6 * 0.25 * 8 / 2  # four passes of two rows make a batch of eight
