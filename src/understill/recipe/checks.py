"""Checks of a whole recipe: what its sections, each valid by itself, get wrong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from understill.errors import nearest
from understill.recipe.schema import Distil, Partial, TargetsSpec, TrainedSpec, Training
from understill.recipe.section import Fault
from understill.recipe.sweep import study_faults

if TYPE_CHECKING:
    from understill.recipe.experiment import Recipe


def recipe_faults(recipe: Recipe) -> Iterator[Fault]:
    """Yield all that is wrong with a recipe whose sections are sound."""
    yield from _unknown_tasks(recipe)
    yield from _idle(recipe)
    yield from _contradictions(recipe)
    yield from study_faults(recipe.ablations, recipe.factors)
    names = [str(teacher.name) for teacher in recipe.teachers]
    weights = recipe.targets.weights if isinstance(recipe.targets.weights, dict) else {}
    for name in weights:
        if not any(re.fullmatch(rf"{re.escape(known)}(-seed\d+)?", name) for known in names):
            yield f"targets.weights.{name}", f"there is no such teacher → {nearest(name, names)}"


def _trained_parts(recipe: Recipe) -> Iterator[tuple[str, Partial]]:
    """Yield all that is trained, with its place."""
    for number, teacher in enumerate(recipe.teachers):
        if isinstance(teacher, TrainedSpec):
            yield f"teachers.{number}", teacher
    yield "student", recipe.student


def _unknown_tasks(recipe: Recipe) -> Iterator[Fault]:
    """Yield where a task is named that the recipe does not have."""
    student, best = recipe.student, recipe.targets.best
    named = [(f"heads.tasks.{name}", name) for name in recipe.heads.tasks]
    named += [(f"student.distil.tasks.{name}", name) for name in student.distil.tasks]
    named += [(f"targets.best.by.{at}", name) for at, name in enumerate(best.by if best else ())]
    named += [(f"student.tasks.{at}", name) for at, name in enumerate(student.tasks)]
    named += [(f"student.augment.tasks.{name}", name) for name in (student.augment.tasks if student.augment else ())]
    for number, teacher in enumerate(recipe.teachers):
        named += [(f"teachers.{number}.{key}", name) for key, name in teacher.named_tasks()]
    for place, part in _trained_parts(recipe):
        named += [(f"{place}.heads.tasks.{name}", name) for name in (part.heads.tasks if part.heads else ())]
    for place, name in named:
        if name not in recipe.tasks:
            yield place, f'there is no task "{name}" → {nearest(name, recipe.tasks)}'


def _idle(recipe: Recipe) -> Iterator[Fault]:
    """Yield what would have no effect: texts that nobody labels, teachers of nothing, settings without teachers."""
    fix = "name teachers, or leave it out"
    learnt = recipe.student.tasks or tuple(recipe.tasks)
    taught = [name for name in learnt if any(teacher.teaches_task(name) for teacher in recipe.teachers)]
    for name, spec in recipe.tasks.items():
        if spec.unlabelled and name not in taught:
            yield f"tasks.{name}.unlabelled", f"there is no teacher to label these texts → {fix}"
        elif spec.goldless and not any(each.asked and each.teaches_task(name) for each in recipe.teachers):
            fixes = "add a teacher {llm: {endpoint: …, model: …}}, or name train"
            yield f"tasks.{name}", f"no row has a label, and no language model gives any → {fixes}"
    yield from _idle_encoders(recipe)
    encoders = {recipe.settings(part).encoder.name for part in (*recipe.trained, recipe.student)}
    for number, teacher in enumerate(recipe.teachers):
        strange = {*(name for _, name in teacher.named_tasks()), *recipe.student.tasks} - set(recipe.tasks)
        if strange or any(teacher.teaches_task(name) for name in learnt):
            continue
        if teacher.name not in encoders:
            what = "it teaches none of the student's tasks, and no model starts from its encoder"
            yield f"teachers.{number}", f"{what} → leave it out, or name tasks under teaches"
        if teacher.finetuned:
            yield f"teachers.{number}.finetune", "it teaches nothing, so nothing is fine-tuned → leave it out"
    if not taught:
        if recipe.student.unlabelled:
            yield "student.unlabelled", f"there is no teacher to label texts → {fix}"
        if recipe.student.distil != Distil():
            yield "student.distil", f"there is no teacher to learn from → {fix}"
        if recipe.targets != TargetsSpec():
            yield "targets", f"there is no teacher to take them from → {fix}"


def _idle_encoders(recipe: Recipe) -> Iterator[Fault]:
    """Yield settings that the named encoder does not have."""
    names = set()
    for place, part in _trained_parts(recipe):
        names.add(name := recipe.settings(part).encoder.name)
        for key, words in part.encoder.idle(name) if part.encoder else ():
            yield f"{place}.encoder.{key}", words
    # A setting at the top is for all models that have it.
    idle = [dict(recipe.encoder.idle(name)) for name in names]
    for key, words in idle[0].items():
        if all(key in each for each in idle):
            yield f"encoder.{key}", words


def _contradictions(recipe: Recipe) -> Iterator[Fault]:
    """Yield settings of training that exclude each other once a part's own override those at the top."""
    # Each with the sections that override the top, the last one first.
    parts: list[tuple[Training, dict[str, Training | None]]] = []
    for place, part in _trained_parts(recipe):
        mine = {f"{place}.training": part.training}
        parts.append((recipe.settings(part).training, mine))
        if part.finetune:
            parts.append((recipe.finetuning(part).training, {f"{place}.finetune": part.finetune, **mine}))
    faults: dict[Fault, None] = {}  # several parts may have the same
    for whole, layers in parts:
        for key, words in whole.contradictions():
            homes = (place for place, given in layers.items() if given and key in given.model_fields_set)
            faults[f"{next(homes, 'training')}.{key}", words] = None
    yield from faults
