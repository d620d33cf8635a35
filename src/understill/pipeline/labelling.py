"""The label stage: what every teacher says of every row is written once; joined for a student when it is trained."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understill.data.groups import grouping
from understill.errors import UserError
from understill.events import Watch
from understill.losses.mixing import soft_term
from understill.pipeline.plan import Distillation, Plan, TargetsPlan
from understill.pipeline.verdicts import open_teacher, progress_of, read_verdict, select_teachers
from understill.targets.columns import LOGITS, ask
from understill.targets.ensemble import join, join_column
from understill.targets.store import SoftTargets, TeacherFacts, read_targets, write_targets

log = logging.getLogger(__name__)


def label(plan: Plan, targets: TargetsPlan, watch: Watch) -> None:
    """Write down what every teacher says of every row of a split, unless that was done before."""
    if targets.artifact.sound():
        return
    data, place = plan.loaded[targets.task].splits[targets.split], f"{targets.task}/{targets.split}"
    answers: dict[str, list[NDArray[np.float32]]] = {name: [] for name in targets.columns}
    for teacher in targets.teachers:
        opened = open_teacher(plan, teacher)
        for name in targets.columns:
            answers[name].append(ask(opened, name, data, progress_of(watch, teacher, place, data.rows)))
    facts = [TeacherFacts(teacher.name, teacher.digest, read_verdict(teacher).score) for teacher in targets.teachers]
    rule = plan.recipe.targets.model_dump(mode="json")
    with targets.artifact.build() as part:
        write_targets(part, data, facts, answers, dtype=plan.recipe.targets.dtype, rule=rule)


def unheard(targets: TargetsPlan, distillations: Sequence[Distillation]) -> bool:
    """Tell whether every teacher of a task is known to be left out in all of these, so that nobody is to be asked."""
    if not all(teacher.verdict.sound() for each in distillations for teacher in (*each.teachers, *each.judged)):
        return False
    return not any(targets.task in select_teachers(distillation) for distillation in distillations)


def read_labels(plan: Plan, targets: TargetsPlan) -> SoftTargets:
    """Return what every teacher says of every row of a split."""
    digests = {teacher.name: teacher.digest for teacher in targets.teachers}
    return read_targets(targets.folder, plan.loaded[targets.task].splits[targets.split], digests)


def join_targets(plan: Plan, distillation: Distillation) -> dict[tuple[str, str], dict[str, NDArray[np.float32]]]:
    """Return what the teachers of each task say together of every row, column by column, as the losses want it."""
    selected = select_teachers(distillation)
    joined = {}
    for targets in distillation.targets:
        mine = selected.get(targets.task)
        if mine is None:
            continue  # all left out: the task is learnt from gold
        labels = read_labels(plan, targets)
        names = [facts.name for facts in labels.teachers]
        distil = distillation.distil.of(targets.task)
        groups = grouping(plan.loaded[targets.task].splits[targets.split])
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
        _look_at_coverage(f"{targets.task}/{targets.split}", answers, groups)
        others = {
            name: join_column(values[places], mine.weights) for name, values in labels.columns.items() if name != LOGITS
        }
        joined[targets.task, targets.split] = {LOGITS: answers, **others}
    return joined


def _look_at_coverage(what: str, answers: NDArray[np.float32], groups: NDArray[np.int64] | None) -> None:
    """Say how many rows, or queries, no teacher answers; if it is all of them, there would be nothing to learn."""
    units = np.arange(len(answers)) if groups is None else groups
    total, unanswered = len(np.unique(units)), len(np.unique(units[np.isnan(answers[:, 0])]))
    nothing = "say nothing about" if groups is None else "do not score all candidates of"
    noun = "rows" if groups is None else "queries"
    if unanswered == total:
        raise UserError(f"{what}: the teachers {nothing} any of its {total:,} {noun} → give answers for it")
    if unanswered:
        log.warning("%s: teachers %s %s of %s %s", what, nothing, f"{unanswered:,}", f"{total:,}", noun)
