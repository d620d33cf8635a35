"""A run: every stage a recipe asks for, and the folder that says what came out."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.disk import write_json
from understill.events import Chosen, Watch, silent
from understill.pipeline.examining import ensemble_scores, examine_outsiders, member_scores
from understill.pipeline.locking import at_work
from understill.pipeline.plan import Plan
from understill.pipeline.planning import make_plan, pick_models
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
    members: Mapping[str, Scores]  # of each by itself, where a task has several
    tasks: Mapping[str, Task]
    aid: str = "teachers"  # what the baseline does without


def run(recipe: Recipe, watch: Watch = silent) -> Run:
    """Do everything a recipe asks for, reusing what is there already."""
    plan = make_plan(recipe, watch)
    with at_work(recipe.output.path):
        record = _begin(plan)
        examine_outsiders(plan, watch)
        if plan.candidates:
            plan = _settle(plan, watch)
            record = _begin(plan)
        trained = tuple(teach(plan, plan.models, watch))
        return _finish(plan, record, trained, watch)


def train_some(plan: Plan, names: tuple[str, ...], watch: Watch = silent) -> list[TrainedModel]:
    """Train some models of a plan with what they need, or all, as a run that is not finished."""
    models = pick_models(plan, names)
    with at_work(plan.recipe.output.path):
        if _recorded(plan.recipe.output.path / plan.recipe.name / RECORD) != _uses(plan):
            _begin(plan)
        if plan.candidates and any(model.awaits_choice for model in models):
            plan = _settle(plan, watch)
            models = pick_models(plan, names)
            _begin(plan)
        return teach(plan, models, watch)


def _settle(plan: Plan, watch: Watch) -> Plan:
    """Train the candidates, and return the plan with the best of them as teachers."""
    teach(plan, plan.candidates, watch)
    settled = plan.again()
    chosen = dict.fromkeys(teacher.name for lessons in settled.lessons for teacher in lessons.teachers)
    watch(Chosen(tuple(chosen), len(plan.candidates)))
    return settled


def _recorded(record: Path) -> Any:
    """Return the artefacts that a run's record names; None where there is no record that can be read."""
    try:
        return json.loads(record.read_text(encoding="utf-8"))["uses"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _begin(plan: Plan) -> dict[str, Any]:
    """Write the record of a run before anything is made: what a killed run has made is not to be cleaned away."""
    folder = plan.recipe.output.path / plan.recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(plan.recipe.to_yaml(), encoding="utf-8")
    record: dict[str, Any] = {"state": "running", "started": time.time(), "uses": _uses(plan)}
    write_json(folder / RECORD, record)
    return record


def _finish(plan: Plan, record: dict[str, Any], trained: tuple[TrainedModel, ...], watch: Watch) -> Run:
    """Write down what came out."""
    folder = plan.recipe.output.path / plan.recipe.name
    teachers: Scores = {}
    members: dict[str, Scores] = {}
    for lessons in plan.lessons:
        teachers |= ensemble_scores(plan, lessons, watch)
        for name, scores in member_scores(plan, lessons, watch).items():
            members.setdefault(name, {}).update(scores)
    tasks = {name: loaded.task for name, loaded in plan.loaded.items()}
    done = Run(folder, trained, majority_scores(plan), teachers, members, tasks, _aid(plan))
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
    write_json(folder / RECORD, {**record, "teachers": done.teachers, "members": members, "models": models})
    return done


def _aid(plan: Plan) -> str:
    """Say what students have and baselines have not."""
    more = plan.augmented and not any(model.augmented for model in plan.models if model.role == "baseline")
    before = any(model.start.model for model in plan.models if model.role == "student")
    had = ["teachers"] if plan.lessons else ["what came before"] if before else []
    return " and ".join([*had, *(["augmentation"] if more else [])])


def _uses(plan: Plan) -> list[str]:
    """Name the artefacts that a plan's models and lessons are made of."""
    verdicts = [teacher.verdict for each in plan.lessons for teacher in (*each.teachers, *each.judged)]
    made = [data.path.parent for data in plan.augmented]
    folders = [*(model.folder for model in plan.models), *(table.folder for table in plan.targets), *verdicts, *made]
    return sorted({folder.name for folder in folders})


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
