"""The dependency graph of a run: every stage of one plan or several, in the order in which one at a time would run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from understill.atomic import fingerprint
from understill.pipeline.linear_probe import ProbesPlan, fit_probes, plan_probes
from understill.pipeline.model_training import evaluate_model, rows_of, scored, tokenise_rows, train_model
from understill.pipeline.plan.parts import (
    ChoicePlan,
    Distillation,
    ModelPlan,
    Plan,
    Study,
    TargetsPlan,
    TeacherPlan,
    Wanted,
    max_length,
)
from understill.pipeline.soft_targets import label, unused
from understill.pipeline.stage import INTERMEDIATE, Resources, Stage, never
from understill.pipeline.teacher_selection import (
    accepted,
    check_teachers,
    choose_candidates,
    examine_teacher,
    refuse_weak,
)
from understill.pipeline.vocabularies import make_words
from understill.recipe import Recipe
from understill.train.interleave import slots_of


def stages_of(plans: Sequence[Plan], titles: Mapping[Path, str]) -> tuple[Stage, ...]:
    """Return the stages of plans, each once: they share what has the same fingerprint."""
    stages: dict[str, Stage] = {}
    for stage in _stages(plans, titles):
        stages[stage.key] = _merged(stages[stage.key], stage) if stage.key in stages else stage
    return tuple(stages.values())


def _merged(one: Stage, two: Stage) -> Stage:
    """Return a stage that two ask for: it is left out only where both leave it out."""
    if one.action == "label" or one.dropped is never:  # a table knows all who ask for it
        return one
    if two.dropped is never:
        return two
    needs = tuple(dict.fromkeys((*one.needs, *two.needs)))
    return replace(one, needs=needs, dropped=lambda: one.dropped() and two.dropped())


def _stages(plans: Sequence[Plan], titles: Mapping[Path, str]) -> Iterator[Stage]:
    askers: dict[Path, list[Distillation]] = {}
    for each in (each for plan in plans for each in plan.distillations):
        for targets in each.targets:
            askers.setdefault(targets.folder, []).append(each)
    for plan in plans:
        yield from _external_teachers(plan)
    # Candidates of all runs come first, since so much depends on the choice.
    choices = [(plan, plan.choice) for plan in plans if plan.choice]
    for plan, choice in choices:
        for model in choice.candidates.values():
            yield from _model(Wanted(plan, model, titles[model.folder]), askers)
    yield from (_choice(choice) for _, choice in choices)
    for plan in plans:
        for model in plan.all_models:
            yield from _model(Wanted(plan, model, titles[model.folder]), askers)
    yield from (_probes(probes) for plan in plans if (probes := plan_probes(plan)))


def wanted_keys(stages: Sequence[Stage]) -> list[str]:
    """Name what a run is made for; the rest is there for these."""
    return [stage.key for stage in stages if stage.action not in INTERMEDIATE]


def study_stages(study: Study) -> tuple[Stage, ...]:
    """Return the stages of all runs of a study."""
    return stages_of([plan for _, plan in study.cells], study.titles())


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


def trained_keys(model: ModelPlan) -> tuple[str, str]:
    """Return the keys of a model's training and of its scores."""
    return model.folder.name, f"{model.folder.name}/scores"


def _model(wanted: Wanted, askers: Mapping[Path, Sequence[Distillation]]) -> Iterator[Stage]:
    """Yield all that makes a model, from its words and the teachers' answers to its scores."""
    plan, model, title = wanted
    key, scores = trained_keys(model)
    names, dropped = tuple(task.name for task in model.tasks), (lambda: model.dropped) if model.choice else never
    needs = [*trained_keys(model.start.model)] if model.start.model else []
    if model.choice:
        needs.append(model.choice.artifact.folder.name)
    if words := model.start.words:
        made, run = words.artifact, partial(make_words, plan, words)
        yield Stage("vocabulary", title, made.folder.name, (), run, done=made.sound, tasks=names)
        needs.append(made.folder.name)
    tokens = _tokens(plan, model)
    yield Stage("tokenise", title, tokens, tuple(needs), partial(tokenise_rows, wanted), dropped=dropped, tasks=names)
    needs.append(tokens)
    if model.distillation:
        yield from _distillation(plan, model.distillation, title, askers)
        needs += [_checked(model.distillation), *(each.folder.name for each in model.distillation.targets)]
    yield Stage(
        action="finetune" if model.start.heads else "distil" if model.distillation else "train",
        name=title,
        key=key,
        needs=tuple(needs),
        run=partial(train_model, wanted),
        done=model.artifact.sound,
        dropped=dropped,
        makes=model.artifact,
        resources=_resources(plan.recipe, model),
        begun=lambda: model.started,
        undecided=lambda: 0 < model.odds < 1,
        tasks=names,
    )
    yield Stage(
        action="evaluate",
        name=title,
        key=scores,
        needs=(key,),
        run=partial(evaluate_model, wanted),
        done=partial(scored, model),
        dropped=dropped,
        makes=model.artifact,
        tasks=names,
    )


def _tokens(plan: Plan, model: ModelPlan) -> str:
    """Return the key of the tokens that a model reads; others may read the same."""
    lengths = [max_length(plan.recipe, model.settings, task.name) for task in model.tasks]
    return f"tokens-{fingerprint([model.start.place, lengths, rows_of(model)])[:16]}"


def _resources(recipe: Recipe, model: ModelPlan) -> Resources:
    training = model.settings.training
    rows = training.steps * training.batch if training.steps else training.passes * sum(model.rows.values())
    return Resources(slots_of(training.batch), float(rows), training.precision, tuple(recipe.output.trackers))


def _distillation(
    plan: Plan, distillation: Distillation, title: str, askers: Mapping[Path, Sequence[Distillation]]
) -> Iterator[Stage]:
    """Yield the examination of teachers, the check of who takes part, and the tables of their answers."""
    teachers = (*distillation.candidates, *distillation.judged)
    yield from (_examination(plan, teacher) for teacher in teachers)
    yield Stage(
        action="choose",
        name=f"the teachers of {title}",
        key=_checked(distillation),
        needs=_verdicts(teachers),
        run=partial(check_teachers, distillation),
        done=partial(accepted, distillation.rule, teachers),
    )
    yield from (_label(plan, targets, askers[targets.folder]) for targets in distillation.targets)


def _verdicts(teachers: Iterable[TeacherPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(teacher.verdict.folder.name for teacher in teachers))


def _checked(distillation: Distillation) -> str:
    """Return the key of the check of who takes part in a distillation."""
    verdicts = _verdicts((*distillation.candidates, *distillation.judged))
    return f"teachers-{fingerprint([verdicts, distillation.rule.model_dump(mode='json')])[:16]}"


def _examination(plan: Plan, teacher: TeacherPlan, rows: float = 0.0) -> Stage:
    needs = [key for model in teacher.models for key in trained_keys(model)]
    if teacher.choice:
        needs.append(teacher.choice.artifact.folder.name)
    return Stage(
        action="examine",
        name=f"{teacher.name} of {teacher.task}",
        key=teacher.verdict.folder.name,
        needs=tuple(needs),
        run=partial(examine_teacher, plan, teacher),
        done=teacher.verdict.sound,
        dropped=(lambda: teacher.dropped) if teacher.choice else never,
        makes=teacher.verdict,
        resources=Resources(rows=rows),
        tasks=(teacher.task,),
    )


def _label(plan: Plan, targets: TargetsPlan, distillations: Sequence[Distillation]) -> Stage:
    models = [key for teacher in targets.candidates for model in teacher.models for key in trained_keys(model)]
    return Stage(
        action="label",
        name=f"{targets.task}/{targets.split} by {', '.join(teacher.name for teacher in targets.teachers)}",
        key=targets.folder.name,
        needs=(*dict.fromkeys(models), *_verdicts(targets.candidates), *map(_checked, distillations)),
        run=partial(label, plan, targets),
        done=targets.artifact.sound,
        dropped=partial(unused, targets, distillations),
        makes=targets.artifact,
        tasks=(targets.task,),
    )


def _external_teachers(plan: Plan) -> Iterator[Stage]:
    """Yield the examination of teachers that need no training, which comes before any training is done."""
    if not plan.external:
        return
    yield from (_examination(plan, teacher, math.inf) for teacher in plan.external)
    rule, verdicts = plan.recipe.targets, _verdicts(plan.external)
    yield Stage(
        action="choose",
        name="teachers that need no training",
        key=f"teachers-{fingerprint(['outside', verdicts, rule.model_dump(mode='json')])[:16]}",
        needs=verdicts,
        run=partial(refuse_weak, rule, plan.external),
        done=partial(accepted, rule, plan.external),
        resources=Resources(rows=math.inf),
    )


def _choice(choice: ChoicePlan) -> Stage:
    return Stage(
        action="choose",
        name=f"{choice.rule.count} of {', '.join(choice.candidates)}",
        key=choice.artifact.folder.name,
        needs=tuple(key for model in choice.candidates.values() for key in trained_keys(model)),
        run=partial(choose_candidates, choice),
        done=lambda: choice.chosen is not None,
        makes=choice.artifact,
    )


def _probes(probes: ProbesPlan) -> Stage:
    return Stage(
        action="probe",
        name=probes.start.name,
        key=f"probes-{fingerprint([probe.artifact.folder.name for probe in probes.probes])[:16]}",
        needs=(),
        run=partial(fit_probes, probes),
        done=probes.done,
        resources=Resources(rows=math.inf),  # what the CPU does of it is done while models are trained
        tasks=tuple(probe.train.task.name for probe in probes.probes),
    )
