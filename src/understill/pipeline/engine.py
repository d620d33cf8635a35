"""The local engine: a study is planned, and its stages are run one after the other, or several at once on one GPU."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from understill.events import Timed, Watch, silent
from understill.pipeline.graph import stages_of, trained_keys
from understill.pipeline.language_models import answer_rows
from understill.pipeline.locks import in_use
from understill.pipeline.model_training import TrainedModel, read_trained
from understill.pipeline.plan.parts import ModelPlan, Plan, Study
from understill.pipeline.plan.planner import make_study, pick_wanted
from understill.pipeline.record import Run
from understill.pipeline.run_folder import begin_record, finish_record
from understill.pipeline.stage import INTERMEDIATE, Stage, StageClock
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train.interleave import Job, interleave, slots_on


def run(recipe: Recipe, watch: Watch = silent) -> Run:
    """Do everything a recipe asks for, reusing what is there already, and return the run of the recipe as it is."""
    return run_study(recipe, watch)[0]


def run_study(recipe: Recipe, watch: Watch = silent) -> tuple[Run, ...]:
    """Do everything a recipe asks for, and return all runs that it stands for, that of the recipe as it is first."""
    clock = StageClock()
    recipe = answer_rows(recipe, watch, train_students)
    clock.lap("ask")
    study = make_study(recipe, watch)
    stages = study_stages(study)
    with in_use(recipe.output.path):
        record = begin_record(study)
        clock.lap("plan")
        run_stages(stages, wanted_keys(stages), recipe.machine, watch, clock)
        runs = finish_record(study, {**record, "seconds": clock.seconds})
    clock.lap("record")
    watch(Timed(clock.seconds))
    return runs


def train_some(study: Study, names: tuple[str, ...], watch: Watch = silent) -> list[TrainedModel]:
    """Train some models of a study with what they need, or all, as a run that is not finished."""
    wanted = pick_wanted(study, names)
    keys = [key for each in wanted for key in trained_keys(each.model)]
    with in_use(study.recipe.output.path):
        begin_record(study)
        run_stages(study_stages(study), keys, study.recipe.machine, watch)
    trained = [(read_trained(each.model), each.title) for each in wanted if not each.model.dropped]
    return [model if len(study.cells) == 1 else replace(model, name=title) for model, title in trained]


def train_students(recipe: Recipe, watch: Watch = silent) -> list[TrainedModel]:
    """Train the students of a recipe with what they need."""
    study = make_study(recipe.plain(recipe.seed), watch)
    return train_some(study, tuple(model.name for model in study.plan.models if model.role == "student"), watch)


def train_models(plan: Plan, models: Sequence[ModelPlan], watch: Watch = silent) -> list[TrainedModel]:
    """Train models of a plan after all that they need, or take them as they are when they are finished already."""
    stages = stages_of([plan], {model.folder: model.name for model in (*reversed(plan.all_models), *models)})
    run_stages(stages, [key for model in models for key in trained_keys(model)], plan.recipe.machine, watch)
    return [read_trained(model) for model in models if not model.dropped]


def wanted_keys(stages: Sequence[Stage]) -> list[str]:
    """Name what a run is made for; the rest is there for these."""
    return [stage.key for stage in stages if stage.action not in INTERMEDIATE]


def study_stages(study: Study) -> tuple[Stage, ...]:
    """Return the stages of all runs of a study."""
    return stages_of([plan for _, plan in study.cells], study.titles())


# The loop -------------------------------------------------------------------------------------------------------------


def run_stages(
    stages: Sequence[Stage],
    wanted: Collection[str],
    machine: Machine,
    watch: Watch = silent,
    clock: StageClock | None = None,
) -> None:
    """Run the wanted stages, each after what it needs, as it comes in the list; on a GPU several at once."""
    clock = clock or StageClock()
    waiting = required(stages, wanted)
    unmade = {stage.key for stage in waiting}
    places = slots_on(machine) if _may_share(waiting) else 1
    if places > 1:
        waiting = _long_ones_first(waiting)

    def begin() -> Job | None:
        for stage in waiting:
            if unmade.isdisjoint(stage.needs):
                waiting.remove(stage)
                return Job(_make(stage, unmade, watch, clock), max(1, stage.resources.places))
        return None

    interleave(begin, places)
    assert not waiting, f"stages that wait for each other: {', '.join(stage.key for stage in waiting)}"


def _make(stage: Stage, unmade: set[str], watch: Watch, clock: StageClock) -> Generator[None]:
    """Run a stage, unless a choice has left it out, while no other process makes the same."""
    if not stage.dropped():
        lock = (yield from stage.makes.acquire(stage.waiting, watch)) if stage.makes else None
        clock.lap("wait")
        try:
            with closing(stage.run(watch) or _no_steps()) as steps:
                for number, _ in enumerate(steps):
                    clock.lap(stage.action if number else f"{stage.action}, first step")  # compiled on a GPU
                    yield
                    clock.lap("wait")
        finally:
            clock.lap(stage.action)
            if lock:
                lock.release()
    unmade.remove(stage.key)


def _no_steps() -> Generator[None]:
    yield from ()


def required(stages: Sequence[Stage], wanted: Collection[str]) -> list[Stage]:
    """Return the wanted stages and all that they need; what a finished one needed is not needed any more."""
    known = {stage.key: stage for stage in stages}
    keep: set[str] = set()
    left = list(wanted)
    while left:
        key = left.pop()
        if key not in keep and not known[key].dropped():
            keep.add(key)
            left += () if known[key].done() else known[key].needs
    return [stage for stage in stages if stage.key in keep]


def _may_share(stages: Sequence[Stage]) -> bool:
    """Tell whether models can be trained at once: accelerate has one precision and most trackers one run at a time."""
    precisions = {stage.resources.precision for stage in stages if stage.resources.places}
    trackers = {tracker for stage in stages for tracker in stage.resources.trackers}
    return len(precisions) == 1 and "fp16" not in precisions and trackers <= {"tensorboard"}


def _long_ones_first(stages: Sequence[Stage]) -> list[Stage]:
    """Let those that others wait for, and long ones, come first, so that none is left to run alone at the end.

    What belongs to a model, from its tokens to its scores, stays together.
    """
    needed = {need for stage in stages if stage.action != "evaluate" for need in stage.needs}

    def rank(part: Sequence[Stage]) -> tuple[bool, float]:
        main = max(part, key=lambda stage: stage.resources.rows)
        return main.key not in needed, -main.resources.rows

    return [stage for part in sorted(_parts(stages), key=rank) for stage in part]


def _parts(stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    part: list[Stage] = []
    for stage in stages:
        part.append(stage)
        if stage.action in ("evaluate", "choose"):
            yield part
            part = []
    if part:
        yield part
