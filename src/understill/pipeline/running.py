"""A run: every stage a recipe asks for, and the folder that says what came out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.disk import write_json
from understill.events import Watch, silent
from understill.pipeline.planning import Plan, make_plan
from understill.pipeline.scoring import majority_scores
from understill.pipeline.teaching import TrainedModel, teach
from understill.recipe import Recipe
from understill.tasks import Task
from understill.train.fit import Scores

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """What a run has come to."""

    folder: Path
    models: tuple[TrainedModel, ...]
    majority: Scores
    tasks: Mapping[str, Task]


def run(recipe: Recipe, watch: Watch = silent) -> Run:
    """Do everything a recipe asks for, reusing what is there already."""
    plan = make_plan(recipe, watch)
    trained = tuple(teach(plan, model, watch) for model in plan.models)
    return _write_run(plan, trained)


def _write_run(plan: Plan, trained: tuple[TrainedModel, ...]) -> Run:
    """Write the run folder: the recipe, the scores, and the way to each model."""
    folder = plan.recipe.output.path / plan.recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(plan.recipe.to_yaml(), encoding="utf-8")
    guesses = majority_scores(plan)
    facts: dict[str, Any] = {"majority": guesses, "models": {}}
    for link in (folder / "models").iterdir():
        if link.is_symlink() and link.name not in {model.name for model in trained}:
            link.unlink()  # of an earlier run under this name, with other models
    for model in trained:
        way = os.path.relpath(model.folder, folder)
        facts["models"][model.name] = {"folder": way, "scores": model.scores, "seconds": model.seconds}
        _point(folder / "models" / model.name, Path(os.path.relpath(model.folder, folder / "models")))
    write_json(folder / "run.json", facts)
    tasks = {name: loaded.task for name, loaded in plan.loaded.items()}
    return Run(folder, trained, guesses, tasks)


def _point(link: Path, target: Path) -> None:
    """Let a run folder point at a model; where links are not allowed, run.json still says where it is."""
    try:
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(link)
    except OSError as error:
        log.info("no link %s: %s", link, error)
