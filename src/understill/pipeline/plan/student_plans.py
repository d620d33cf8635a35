"""The students of a recipe: what they learn from teachers, their baselines, and each fine-tuned on every task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from understill.artifact import Artifact
from understill.errors import UserError
from understill.losses.mixing import columns_for, terms_of
from understill.pipeline.hyperparameters import changed, lacks_layers, rule_steps
from understill.pipeline.plan.model_plans import finetuned, plan_model, start_of
from understill.pipeline.plan.parts import Distillation, ModelPlan, Role, Start, TargetsPlan, epoch_of, parts_of
from understill.pipeline.plan.recipe_inputs import Inputs
from understill.pipeline.plan.teacher_plans import TeacherPlans
from understill.recipe.schema import Settings
from understill.recipe.section import Every
from understill.train.loop import total_steps

#: The share of unlabelled rows where a task names such files and the recipe names no share.
UNLABELLED = 0.5


def plan_students(inputs: Inputs, teachers: TeacherPlans) -> Iterator[ModelPlan]:
    """Yield the models that a recipe is made for, and those that they are compared with."""
    student, own = inputs.recipe.student, inputs.own
    for name in student.tasks:
        if name not in own:
            raise UserError(f"student.tasks: {name} is answered by another task's head; leave it out")
    wanted = [name for name in own if not student.tasks or name in student.tasks]
    read = [name for name in wanted if teachers.of[name] and "unlabelled" in inputs.loaded[name].splits]
    if student.unlabelled and not read:
        fix = "name files under tasks.NAME.unlabelled"
        raise UserError(f"student.unlabelled: no task with a teacher has unlabelled text → {fix}")
    groups = {"": wanted} if inputs.recipe.together else {f"-{name}": [name] for name in wanted}
    for suffix, keys in groups.items():
        yield from _student(inputs, teachers, suffix, keys)


def _student(inputs: Inputs, teachers: TeacherPlans, suffix: str, keys: Sequence[str]) -> Iterator[ModelPlan]:
    """Yield the baseline and the student, and each fine-tuned on every task."""
    recipe = inputs.recipe
    settings, seed = recipe.settings(recipe.student), recipe.seed
    start = start_of(inputs, settings, teachers.trained)
    augmented = tuple(key for key in keys if "augmented" in inputs.loaded[key].splits)
    distillation = _distillation(inputs, teachers, keys, augmented)
    tuned = recipe.finetuning(recipe.student) if recipe.student.finetune is not None else None
    alike = augmented if recipe.student.augment and recipe.student.augment.baseline else ()
    if (distillation or start.model or augmented != alike) and recipe.student.baseline:
        unlabelled = distillation.unlabelled if distillation else {}
        level = _as_many_steps(inputs, settings, start, keys, unlabelled, augmented, alike)
        # Layers cut out of a teacher have learnt from it: the baseline takes those the teacher itself began with.
        baseline = plan_model(inputs, f"baseline{suffix}", "baseline", keys, level, start.root, seed, augmented=alike)
        yield baseline
        if tuned:
            yield from (finetuned(inputs, baseline, key, tuned, "finetuned baseline") for key in keys)
    # Without teachers there is nothing to tell apart, and models are called after their tasks.
    role: Role = "student" if recipe.teachers else "model"
    name = f"student{suffix}" if recipe.teachers else suffix.removeprefix("-") or "multi"
    student = plan_model(
        inputs, name, role, keys, settings, start, seed, distillation=distillation, augmented=augmented
    )
    yield student
    if tuned:
        yield from (finetuned(inputs, student, key, tuned, "finetuned") for key in keys)


def _distillation(
    inputs: Inputs, teachers: TeacherPlans, keys: Sequence[str], augmented: Collection[str]
) -> Distillation | None:
    """Plan what a student of these tasks learns from teachers; None where no task has one."""
    if not any(teachers.of[key] for key in keys):
        return None
    recipe, wanted = inputs.recipe, inputs.recipe.student.unlabelled
    for key in keys:  # a loss that does not go with a task's kind is refused before anything is trained
        terms_of(inputs.loaded[key].task, recipe.student.distil)
    unlabelled = {}
    for key in keys:
        if "unlabelled" in inputs.loaded[key].splits and teachers.of[key] and wanted != 0:
            unlabelled[key] = UNLABELLED if wanted is None else wanted
    tables = [(key, "augmented" if key in augmented else "train") for key in keys if teachers.of[key]]
    tables += [(key, "unlabelled") for key in unlabelled]
    targets = tuple(_targets(inputs, teachers, key, split) for key, split in tables)
    rule = recipe.targets
    if teachers.choice:
        rule = rule.model_copy(update={"best": None})
    by = rule.best.by if rule.best else ()
    judged = tuple(teacher for key in by for teacher in teachers.of[key])
    return Distillation(recipe.student.distil, rule, targets, unlabelled, judged)


def _targets(inputs: Inputs, teachers: TeacherPlans, key: str, split: str) -> TargetsPlan:
    mine, task = tuple(teachers.of[key]), inputs.loaded[key].task.to_dict()
    columns = columns_for(inputs.loaded[key].task, inputs.recipe.student.distil)
    facts = {
        "stage": "label",
        "task": {part: task[part] for part in ("name", "kind", "labels", "range")},
        "split": split,
        "data": inputs.loaded[key].splits[split].fingerprint,
        "teachers": {teacher.name: teacher.digest for teacher in mine},
        "dtype": inputs.recipe.targets.dtype,
        **({"columns": columns} if len(columns) > 1 else {}),
        **({"choice": teachers.choice.artifact.fingerprint} if teachers.choice else {}),
    }
    return TargetsPlan(Artifact("targets", f"{key}-{split}", facts, inputs.artifacts), key, split, mine, columns)


def _as_many_steps(
    inputs: Inputs,
    settings: Settings,
    start: Start,
    keys: Sequence[str],
    unlabelled: Mapping[str, float],
    augmented: Collection[str],
    alike: Collection[str],
) -> Settings:
    """Give the baseline as many steps and looks at dev as the student, whose epochs may have more rows."""
    training, loaded = settings.training, inputs.loaded
    if not unlabelled and augmented == alike:
        return settings
    if training.lr == "auto":
        if training.steps or augmented == alike:
            return settings  # which are chosen by the labelled rows, and these are the same
        rows = sum(loaded[key].splits["augmented" if key in augmented else "train"].rows for key in keys)
        epoch = max(1, rows // training.batch)
        steps = rule_steps(training, rows, len(keys), epoch, lacks_layers(start, settings.encoder))
        evaluate = training.evaluate
        if evaluate.unit == "epochs":
            evaluate = Every(count=max(1, round(evaluate.count * epoch)), unit="steps")
        return changed(settings, steps=steps, evaluate=evaluate)
    tasks = tuple(loaded[key].task for key in keys)
    epoch = epoch_of(parts_of(tasks, loaded, settings, unlabelled, augmented), training)
    evaluate = training.evaluate
    if evaluate.unit in ("epochs", "auto"):
        evaluate = Every(count=max(1, round(evaluate.count * epoch)), unit="steps")
    return changed(settings, steps=total_steps(training, epoch), evaluate=evaluate)
