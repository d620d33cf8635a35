"""Soft targets: every teacher's answer to every row, written once, and joined for a student when it is trained."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.atomic import write_json
from understill.data.groups import grouping
from understill.errors import UserError
from understill.events import Watch
from understill.losses.mixing import soft_term
from understill.pipeline.plan.parts import Distillation, Plan, TargetsPlan
from understill.pipeline.teacher_selection import asked_by, open_teacher, progress_of, read_verdict, select_teachers
from understill.targets.ensemble import join, join_column
from understill.targets.store import LOGITS, SoftTargets, TeacherFacts, read_targets, write_targets
from understill.teachers.llm.usage import merged
from understill.teachers.protocol import ask_column

log = logging.getLogger(__name__)

#: The file of what language models were asked for a table of soft targets.
ASKED = "asked.json"


def label(plan: Plan, targets: TargetsPlan, watch: Watch) -> None:
    """Write every teacher's answers to the rows of a split, unless that was done before."""
    if targets.artifact.sound():
        return
    data = plan.loaded[targets.task].splits[targets.split]
    answers: dict[str, list[NDArray[np.float32]]] = {name: [] for name in targets.columns}
    asked: dict[str, Any] = {}
    for teacher in targets.teachers:
        opened = open_teacher(plan, teacher)
        for name in targets.columns:
            answers[name].append(ask_column(opened, name, data, progress_of(watch, teacher, data, opened)))
        if paid := asked_by(opened):
            asked[teacher.name] = paid["asked"]
    facts = [TeacherFacts(teacher.name, teacher.digest, read_verdict(teacher).score) for teacher in targets.teachers]
    rule = plan.recipe.targets.model_dump(mode="json")
    with targets.artifact.build() as part:
        write_targets(part, data, facts, answers, dtype=plan.recipe.targets.dtype, rule=rule)
        if asked:
            write_json(part / ASKED, asked)


def asked_of(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return what language models were asked for a run, by teacher and task; nothing where there are none."""
    parts: dict[tuple[str, str], list[Any]] = {}
    for teacher in plan.external:
        if teacher.spec.asked and (verdict := teacher.verdict.read("verdict.json")):
            parts[teacher.name, teacher.task] = [verdict["asked"]]
    for targets in plan.targets:
        for name, facts in (targets.artifact.read(ASKED) or {}).items():
            parts.setdefault((name, targets.task), []).append(facts)  # its verdict may have been removed meanwhile
    result: dict[str, dict[str, Any]] = {}
    for (name, task), facts in parts.items():
        result.setdefault(name, {})[task] = merged(facts)
    return result


def unused(targets: TargetsPlan, distillations: Sequence[Distillation]) -> bool:
    """Tell whether every teacher of a task is known to be left out in all of these, so that no targets are needed."""
    if not all(teacher.verdict.sound() for each in distillations for teacher in (*each.teachers, *each.judged)):
        return False
    return not any(targets.task in select_teachers(distillation) for distillation in distillations)


def read_labels(plan: Plan, targets: TargetsPlan) -> SoftTargets:
    """Return every teacher's answers to the rows of a split."""
    digests = {teacher.name: teacher.digest for teacher in targets.teachers}
    return read_targets(targets.folder, plan.loaded[targets.task].splits[targets.split], digests)


def join_targets(plan: Plan, distillation: Distillation) -> dict[tuple[str, str], dict[str, NDArray[np.float32]]]:
    """Return the joint answers of each task's teachers to every row, column by column, as the losses want them."""
    selected = select_teachers(distillation)
    joined = {}
    for targets in distillation.targets:
        mine = selected.get(targets.task)
        if mine is None:
            continue  # all left out: the task is learnt from gold
        labels = read_labels(plan, targets)
        names = [facts.name for facts in labels.teachers]
        distil = distillation.distil.of(targets.task)
        data = plan.loaded[targets.task].splits[targets.split]
        groups = grouping(data)
        places = [names.index(teacher.name) for teacher in mine.teachers]
        answers = join(
            labels.logits[places],
            scored=labels.task.kind.scaled,
            combine=distillation.rule.combine,
            weights=mine.weights,
            form=soft_term(labels.task, distil.loss).needs.form,
            temperature=distil.temperature,
            groups=groups,
        )
        _check_coverage(data.place, answers, groups)
        others = {
            name: join_column(values[places], mine.weights) for name, values in labels.columns.items() if name != LOGITS
        }
        joined[targets.task, targets.split] = {LOGITS: answers, **others}
    return joined


def _check_coverage(place: str, answers: NDArray[np.float32], groups: NDArray[np.int64] | None) -> None:
    """Warn of rows, or queries, that no teacher answers; refuse a split in which that is all of them."""
    units = np.arange(len(answers)) if groups is None else groups
    total, unanswered = len(np.unique(units)), len(np.unique(units[np.isnan(answers[:, 0])]))
    what = "no teacher answers" if groups is None else "no teacher scores all candidates of"
    noun = "rows" if groups is None else "queries"
    if unanswered == total:
        raise UserError(f"{place}: {what} any of its {total:,} {noun} → give answers for them")
    if unanswered:
        rest = "they are not trained on" if place.endswith("/unlabelled") else "they train on gold labels alone"
        log.warning("%s: %s %s of %s %s; %s", place, what, f"{unanswered:,}", f"{total:,}", noun, rest)
