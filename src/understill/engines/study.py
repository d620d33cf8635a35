"""A study is planned, its stages are run by an engine, and its results are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understill.engines.devices import run_locally
from understill.engines.engine import Engine
from understill.events import Timed, Watch, silent
from understill.pipeline.graph import stages_of, study_stages, trained_keys, wanted_keys
from understill.pipeline.language_models import answer_rows
from understill.pipeline.locks import in_use
from understill.pipeline.model_training import TrainedModel, read_trained
from understill.pipeline.plan.parts import ModelPlan, Plan, Study
from understill.pipeline.plan.planner import make_study, pick_wanted
from understill.pipeline.record import Run
from understill.pipeline.run_folder import begin_record, finish_record
from understill.pipeline.stage import StageClock
from understill.recipe import Recipe


def run(recipe: Recipe, watch: Watch = silent, engine: Engine = run_locally) -> Run:
    """Do everything a recipe asks for, reusing what is there already, and return the run of the recipe as it is."""
    return run_study(recipe, watch, engine)[0]


def run_study(recipe: Recipe, watch: Watch = silent, engine: Engine = run_locally) -> tuple[Run, ...]:
    """Do everything a recipe asks for, and return all runs that it stands for, that of the recipe as it is first."""
    clock = StageClock()
    if any(teacher.asked for teacher in recipe.teachers):
        recipe = answer_rows(recipe, watch, train_students)
        clock.lap("ask")
    study = make_study(recipe, watch)
    stages = study_stages(study)
    with in_use(recipe.output.path):
        record = begin_record(study)
        clock.lap("plan")
        engine(recipe, stages, wanted_keys(stages), watch, clock)
        runs = finish_record(study, {**record, "seconds": clock.seconds})
    clock.lap("record")
    watch(Timed(clock.seconds))
    return runs


def train_some(
    study: Study, names: tuple[str, ...], watch: Watch = silent, engine: Engine = run_locally
) -> list[TrainedModel]:
    """Train some models of a study with what they need, or all, as a run that is not finished."""
    wanted = pick_wanted(study, names)
    keys = [key for each in wanted for key in trained_keys(each.model)]
    with in_use(study.recipe.output.path):
        begin_record(study)
        engine(study.recipe, study_stages(study), keys, watch, StageClock())
    trained = [(read_trained(each.model), each.title) for each in wanted if not each.model.dropped]
    return [model if len(study.cells) == 1 else replace(model, name=title) for model, title in trained]


def train_students(recipe: Recipe, watch: Watch = silent) -> list[TrainedModel]:
    """Train the students of a recipe, with its first seed, and what they need."""
    study = make_study(recipe.plain(recipe.seed), watch)
    return train_some(study, tuple(model.name for model in study.plan.models if model.role == "student"), watch)


def train_models(
    plan: Plan, models: Sequence[ModelPlan], watch: Watch = silent, engine: Engine = run_locally
) -> list[TrainedModel]:
    """Train models of a plan after all that they need, or take them as they are when they are finished already."""
    stages = stages_of([plan], {model.folder: model.name for model in (*reversed(plan.all_models), *models)})
    keys = [key for model in models for key in trained_keys(model)]
    engine(plan.recipe, stages, keys, watch, StageClock())
    return [read_trained(model) for model in models if not model.dropped]
