"""The planner: from a recipe to a plan for each of its runs, checked before any training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from understill.errors import Collector, UserError, nearest
from understill.events import Watch, silent
from understill.pipeline.plan.parts import ModelPlan, Plan, Study, Wanted, once_each
from understill.pipeline.plan.recipe_inputs import Inputs, Memo, locate_all, read_inputs, warn_of_rates
from understill.pipeline.plan.student_plans import plan_students
from understill.pipeline.plan.teacher_plans import plan_teachers
from understill.pipeline.recipe_data import writable
from understill.pipeline.teacher_selection import refuse_no_answers
from understill.recipe import Recipe
from understill.train.device import check_trackers


def make_plan(recipe: Recipe, watch: Watch = silent) -> Plan:
    """Return the plan of a recipe as it is."""
    return make_study(recipe, watch).plan


def make_study(recipe: Recipe, watch: Watch = silent) -> Study:
    """Check what is quickly checked, in all runs and at once, then read all data and plan every run."""
    problems, memo, cells = Collector(), Memo(), recipe.cells
    with problems:
        writable(recipe.output.path)
    with problems:
        check_trackers(recipe.output.trackers)
    located = [locate_all(cell.recipe, memo, problems) for cell in cells]
    problems.raise_if_any()
    warn_of_rates([cell.recipe for cell in cells])
    inputs = [read_inputs(each, memo, watch) for each in located]
    plans: list[Plan] = []
    for cell, each in zip(cells, inputs, strict=True):
        with problems, _naming(cell.variant if plans else ""):
            plan = plan_run(each)
            refuse_no_answers(plan)
            plans.append(plan)
        if not plans:
            break  # what is wrong with the recipe as it is would be found in every other run
    problems.raise_if_any()
    return Study(recipe, tuple(zip(cells, plans, strict=True)))


def plan_run(inputs: Inputs) -> Plan:
    """Plan every model of a recipe: its teachers, then its students."""
    teachers = plan_teachers(inputs)
    models = (*teachers.models, *plan_students(inputs, teachers))
    _refuse_twins(f"model {model.name}" for model in models)
    _refuse_twins(f"teacher {each.name} of {task}" for task, mine in teachers.of.items() for each in mine)
    return Plan(inputs.recipe, inputs.loaded, models, teachers.choice)


@contextmanager
def _naming(variant: str) -> Iterator[None]:
    """Name the variant in errors about it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"with {variant}: {error}") if variant else error from None


def _refuse_twins(names: Iterable[str]) -> None:
    """Refuse a name that two would share."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"there would be {count} of {name}; give teachers other names, or other seeds")


# Some of the models ---------------------------------------------------------------------------------------------------


def pick_models(plan: Plan, names: tuple[str, ...]) -> tuple[ModelPlan, ...]:
    """Return the models of a plan with these names, or all."""
    known = {model.name: model for model in plan.models}
    for name in names:
        model = known.get(name)
        if model is None:
            raise UserError(f'this recipe trains no model "{name}"; {nearest(name, known)}')
        if plan.candidates and model.choice:
            what = "which candidates are fine-tuned is known when they are trained"
            raise UserError(f'"{name}": {what} → train them first: {", ".join(each.name for each in plan.candidates)}')
    return tuple(known[name] for name in names) if names else plan.models


def pick_wanted(study: Study, names: tuple[str, ...]) -> tuple[Wanted, ...]:
    """Return the models of a study with these names, in all its runs or, as in `seed1/student`, in one; or all."""
    runs = {cell.name: plan for cell, plan in study.cells}
    chosen = []
    for name in names:
        run, slash, model = name.rpartition("/")
        if slash and run not in runs:
            raise UserError(f'this recipe has no run "{run}"; {nearest(run, runs)}')
        for plan in [runs[run]] if slash else runs.values():
            (picked,) = pick_models(plan, (model,))
            chosen.append(next(each for each in study.wanted if each.model is picked))
    wanted = tuple(chosen) if names else study.wanted
    return wanted if len(runs) == 1 else once_each(wanted)
