"""A run: every stage a recipe asks for, and the folder that says what came out."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.disk import write_json
from understill.events import Watch, silent
from understill.pipeline.labelling import ensemble_scores, faculties
from understill.pipeline.plan import Plan
from understill.pipeline.planning import make_plan
from understill.pipeline.scoring import majority_scores
from understill.pipeline.teaching import TrainedModel, teach
from understill.recipe import Recipe
from understill.tasks import Task
from understill.train.fit import Scores

log = logging.getLogger(__name__)

RECORD = "run.json"


@dataclass(frozen=True)
class Run:
    """What a run has come to."""

    folder: Path
    models: tuple[TrainedModel, ...]
    majority: Scores
    teachers: Scores  # of each task's teachers together; empty without teachers
    tasks: Mapping[str, Task]


def run(recipe: Recipe, watch: Watch = silent) -> Run:
    """Do everything a recipe asks for, reusing what is there already."""
    plan = make_plan(recipe, watch)
    folder = recipe.output.path / recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    # Written first: what a run that was killed has made so far is not to be cleaned away.
    record: dict[str, Any] = {"state": "running", "started": time.time(), "uses": _uses(plan)}
    write_json(folder / RECORD, record)
    trained = tuple(teach(plan, model, watch) for model in plan.models)
    done = Run(folder, trained, majority_scores(plan), _teachers(plan, watch), _tasks(plan))
    _point_at_models(folder, trained)
    models = {
        model.name: {
            "role": model.role,
            "folder": os.path.relpath(model.folder, folder),
            "scores": model.scores,
            "seconds": model.seconds,
        }
        for model in trained
    }
    record |= {"state": "done", "finished": time.time(), "majority": done.majority}
    write_json(folder / RECORD, {**record, "teachers": done.teachers, "models": models})
    return done


def _uses(plan: Plan) -> list[str]:
    """Name the artefacts that a plan's models and lessons are made of."""
    verdicts = [teacher.verdict for model in plan.models if model.lessons for teacher in model.lessons.teachers]
    folders = [*(model.folder for model in plan.models), *(targets.folder for targets in plan.targets), *verdicts]
    return sorted({folder.name for folder in folders})


def _tasks(plan: Plan) -> dict[str, Task]:
    return {name: loaded.task for name, loaded in plan.loaded.items()}


def _teachers(plan: Plan, watch: Watch) -> Scores:
    scores: Scores = {}
    for model in plan.models:
        if model.lessons:
            scores |= ensemble_scores(plan, model.lessons, faculties(plan, model.lessons, watch))
    return scores


def _point_at_models(folder: Path, trained: tuple[TrainedModel, ...]) -> None:
    """Let the run folder point at its models, and no longer at those of an earlier run under this name."""
    for link in (folder / "models").iterdir():
        if link.is_symlink() and link.name not in {model.name for model in trained}:
            link.unlink()
    for model in trained:
        _point(folder / "models" / model.name, Path(os.path.relpath(model.folder, folder / "models")))


def _point(link: Path, target: Path) -> None:
    """Let a run folder point at a model; where links are not allowed, run.json still says where it is."""
    try:
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(link)
    except OSError as error:
        log.info("no link %s: %s", link, error)
