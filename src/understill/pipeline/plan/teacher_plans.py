"""The teachers of a recipe: the models that they are, the choice among them, and what each teaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from understill.artifact import Artifact
from understill.atomic import fingerprint
from understill.errors import UserError
from understill.pipeline.plan.model_plans import finetuned, plan_model, start_of
from understill.pipeline.plan.parts import ChoicePlan, Fold, ModelPlan, Start, TeacherPlan, dev_sets
from understill.pipeline.plan.recipe_inputs import Inputs
from understill.recipe import Recipe
from understill.recipe.schema import Best, Settings, TeacherSpec, TrainedSpec
from understill.targets.ensemble import shares, weights_of


class UntunedTeacher(NamedTuple):
    """A teacher before its fine-tuning."""

    name: str
    spec: TeacherSpec
    models: Mapping[tuple[str, ...], tuple[ModelPlan, ...]]  # by tasks; one model, one for each fold, or none to train


@dataclass(frozen=True)
class TeacherPlans:
    """Of each task those that may teach it, and the models that they are."""

    of: Mapping[str, Sequence[TeacherPlan]]
    trained: Mapping[str, Sequence[ModelPlan]]  # by teacher, before any fine-tuning
    models: tuple[ModelPlan, ...]  # in the order of training
    choice: ChoicePlan | None


def plan_teachers(inputs: Inputs) -> TeacherPlans:
    """Plan the teachers of a recipe."""
    recipe, trained = inputs.recipe, dict[str, list[ModelPlan]]()
    learnt = [each for spec in recipe.teachers for each in _before_finetuning(inputs, spec, trained)]
    candidates = [each for each in learnt if any(each.spec.teaches_task(name) for name in inputs.own)]
    choice = _plan_choice(inputs, candidates) if chosen_early(recipe) else None
    of: dict[str, list[TeacherPlan]] = {name: [] for name in inputs.own}
    models = [model for mine in trained.values() for model in mine]
    for candidate in candidates:
        for teacher in _task_teachers(inputs, candidate, choice):
            of[teacher.task].append(teacher)
            models += teacher.models if candidate.spec.finetuned else ()
    _check_rule(recipe, of)
    return TeacherPlans(of, trained, tuple(models), choice)


def chosen_early(recipe: Recipe) -> bool:
    """Tell whether teachers are chosen before they are fine-tuned."""
    rule = recipe.targets.best
    return bool(rule and rule.by and any(spec.finetuned for spec in recipe.teachers))


def _before_finetuning(
    inputs: Inputs, spec: TeacherSpec, trained: dict[str, list[ModelPlan]]
) -> Iterator[UntunedTeacher]:
    """Yield a teacher, once for each of its seeds, and put its models among those that are trained."""
    recipe, own = inputs.recipe, inputs.own
    for _, name in spec.named_tasks():
        if name not in own:
            raise UserError(f"teacher {spec.name}: {name} is answered by another task's head; leave it out")
    keys = [name for name in own if not spec.tasks or name in spec.tasks]
    if not isinstance(spec, TrainedSpec):
        yield UntunedTeacher(str(spec.name), spec, {(key,): () for key in keys})
        return
    settings = recipe.settings(spec)
    groups = {"": keys} if spec.models == "together" else {f"-{key}": [key] for key in keys}
    mine = trained[str(spec.name)] = []
    seeds = spec.seeds_for(recipe.seed)
    for seed in seeds:
        name = f"{spec.name}-seed{seed}" if len(seeds) > 1 else str(spec.name)
        start = start_of(inputs, settings, trained)
        taught = [key for key in keys if spec.teaches_task(key)]
        if spec.folds and (seen := [key for key in taught if key in _trained_on(start)]):
            what = (
                f"its folds answer rows that they have not seen, and {settings.encoder.name} has seen all of {seen[0]}"
            )
            fix = "leave folds out, or begin with a pretrained encoder"
            raise UserError(f"teacher {spec.name}: {what} → {fix}")
        models = {
            tuple(group): tuple(_folds(inputs, f"{name}{suffix}", group, settings, start, seed, spec.folds))
            for suffix, group in groups.items()
        }
        mine += [model for group in models.values() for model in group]
        yield UntunedTeacher(name, spec, models)


def _trained_on(start: Start) -> set[str]:
    """Return the tasks on which a model was trained that another begins as, and those before it."""
    model = start.model
    return {task.name for task in model.tasks} | _trained_on(model.start) if model else set()


def _folds(
    inputs: Inputs, name: str, keys: Sequence[str], settings: Settings, start: Start, seed: int, folds: int | None
) -> Iterator[ModelPlan]:
    """Yield the model of a teacher, or one for each fold."""
    if folds is None:
        yield plan_model(inputs, name, "teacher", keys, settings, start, seed)
        return
    for number in range(folds):
        fold = Fold(number, folds)
        yield plan_model(inputs, f"{name}-fold{number + 1}", "teacher", keys, settings, start, seed, fold=fold)


def _task_teachers(inputs: Inputs, candidate: UntunedTeacher, choice: ChoicePlan | None) -> Iterator[TeacherPlan]:
    """Yield a teacher for each task that it teaches, fine-tuned on it where its recipe says so."""
    spec = candidate.spec
    for group, models in candidate.models.items():
        for key in group:
            if not spec.teaches_task(key):
                continue
            mine = models
            if isinstance(spec, TrainedSpec) and spec.finetuned:
                settings = inputs.recipe.finetuning(spec)
                mine = tuple(finetuned(inputs, model, key, settings, "teacher", choice) for model in models)
            prints = [each.fingerprint for each in mine]
            trained = prints[0] if len(mine) == 1 else fingerprint(prints)
            train = inputs.loaded[key].splits["train"].fingerprint
            digest = trained if mine else spec.digest_with(inputs.external[str(spec.name)], train)
            yield TeacherPlan(candidate.name, key, spec, digest, mine, _verdict(inputs, key, digest), choice)


def _verdict(inputs: Inputs, key: str, digest: str) -> Artifact:
    """Return the artifact of a teacher's dev scores, by all that decides them."""
    loaded = inputs.loaded
    facts = {
        "stage": "examine",
        "teacher": digest,
        "task": loaded[key].task.to_dict(),
        "dev": {data.place: data.fingerprint for data in dev_sets(loaded, key)},
        "train": loaded[key].splits["train"].fingerprint,
    }
    return Artifact("verdict", key, facts, inputs.artifacts)


# The choice -----------------------------------------------------------------------------------------------------------


def _plan_choice(inputs: Inputs, candidates: Sequence[UntunedTeacher]) -> ChoicePlan:
    """Plan which candidates go on to be fine-tuned; refused where their dev scores could not decide it."""
    recipe = inputs.recipe
    rule = recipe.targets.best
    assert rule
    for candidate in candidates:
        if candidate.spec.folded:
            what = f"teacher {candidate.name} is several models, one for each fold, of which none can be judged alone"
            raise UserError(f"targets.best.by: {what} → leave folds out, or best")
        if not candidate.spec.finetuned:
            what = f"teacher {candidate.name} is not fine-tuned as the others are"
            raise UserError(f"targets.best.by: {what} → give all teachers finetune, or leave best.by out")
    models = {each.name: next(iter(each.models.values()))[0] for each in candidates}
    _check_best(rule, {name: [task.name for task in model.tasks] for name, model in models.items()}, "learn")
    if isinstance(recipe.targets.weights, dict):
        weights_of({each.name: str(each.spec.name) for each in candidates}, recipe.targets.weights)
    for name, model in models.items():
        twin = next(other for other in models if models[other].folder == model.folder)
        if twin != name:
            what = f"teachers {twin} and {name} differ only in their fine-tuning, which comes after the choice"
            raise UserError(f"targets.best.by: {what} → leave best.by out, or let them differ before")
    # Of the candidates and the rule, which decide it, so that all that follows has its name before the choice is made.
    facts = {
        "stage": "choose",
        "candidates": {name: model.fingerprint for name, model in models.items()},
        "rule": rule.model_dump(mode="json"),
    }
    return ChoicePlan(rule, models, Artifact("choice", "", facts, inputs.artifacts))


def _check_rule(recipe: Recipe, of: Mapping[str, Sequence[TeacherPlan]]) -> None:
    """Refuse weights and choices that cannot be carried out, before anything is trained for them."""
    rule = recipe.targets
    for teachers in of.values():
        if teachers and rule.weights != "dev":
            names = {each.name: str(each.spec.name) for each in teachers}
            shares(list(names), weights_of(names, rule.weights), [None] * len(names))
    if rule.best and not chosen_early(recipe):
        teaches: dict[str, list[str]] = {}
        for teacher in sorted((each for teachers in of.values() for each in teachers), key=lambda each: each.name):
            teaches.setdefault(teacher.name, []).append(teacher.task)
        _check_best(rule.best, teaches, "teach")


def _check_best(rule: Best, tasks: Mapping[str, Collection[str]], verb: str) -> None:
    """Refuse a choice of more teachers than there are, or by tasks that a teacher has no score on."""
    if rule.count > len(tasks):
        raise UserError(f"targets.best.count: {rule.count} is more than there are teachers → at most {len(tasks)}")
    for name, own in tasks.items():
        for task in (task for task in rule.by if task not in own):
            fix = f"name tasks that all teachers {verb}"
            raise UserError(f"targets.best.by: teacher {name} does not {verb} {task} → {fix}")
