"""The label stage: what every teacher says of every row is written once, and joined for a student."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from understill.data.groups import grouping
from understill.errors import UserError
from understill.events import Watch, silent
from understill.losses.mixing import soft_term
from understill.pipeline.examining import examination, faculties, open_teacher, progress_of
from understill.pipeline.locking import alone
from understill.pipeline.plan import Distillation, Plan, TargetsPlan
from understill.targets.columns import LOGITS, ask
from understill.targets.ensemble import join, join_column
from understill.targets.store import BadTargets, SoftTargets, TeacherFacts, read_targets, write_targets

log = logging.getLogger(__name__)


def label(plan: Plan, targets: TargetsPlan, watch: Watch = silent) -> SoftTargets:
    """Return what every teacher says of every row of a split, written down unless that was done before."""
    data = plan.loaded[targets.task].splits[targets.split]
    digests = {teacher.name: teacher.digest for teacher in targets.teachers}
    # Asked for first: a verdict has a lock of its own, and no two locks are to be held at once.
    scores = [examination(plan, teacher, watch).score for teacher in targets.teachers]
    with alone(targets.folder, f"the soft targets of {targets.task}/{targets.split}", watch):
        if targets.done:
            try:
                return read_targets(targets.folder, data, digests)
            except BadTargets as error:
                log.warning("%s; they are made again", error)
        answers: dict[str, list[NDArray[np.float32]]] = {name: [] for name in targets.columns}
        for teacher in targets.teachers:
            opened = open_teacher(plan, teacher)
            for name in targets.columns:
                progress = progress_of(watch, teacher, f"{targets.task}/{targets.split}", data.rows)
                answers[name].append(ask(opened, name, data, progress))
        facts = [
            TeacherFacts(teacher.name, teacher.digest, score)
            for teacher, score in zip(targets.teachers, scores, strict=True)
        ]
        rule = plan.recipe.targets.model_dump(mode="json")
        write_targets(targets.folder, data, facts, answers, dtype=plan.recipe.targets.dtype, rule=rule)
        return read_targets(targets.folder, data, digests)


def join_targets(
    plan: Plan, distillation: Distillation, watch: Watch = silent
) -> dict[tuple[str, str], dict[str, NDArray[np.float32]]]:
    """Return what the teachers of each task say together of every row, column by column, as the losses want it."""
    chosen = faculties(plan, distillation, watch)
    joined = {}
    for targets in distillation.targets:
        faculty = chosen.get(targets.task)
        if faculty is None:
            continue  # all left out: the task is learnt from gold
        found = label(plan, targets, watch)
        names = [facts.name for facts in found.teachers]
        distil = distillation.distil.of(targets.task)
        groups = grouping(plan.loaded[targets.task].splits[targets.split])
        places = [names.index(teacher.name) for teacher in faculty.teachers]
        answers = join(
            found.logits[places],
            scored=found.task.kind.scaled,
            combine=distillation.rule.combine,
            weights=faculty.weights,
            form=soft_term(found.task, distil.loss).needs.form,
            temperature=distil.temperature,
            groups=groups,
        )
        _look_at_coverage(f"{targets.task}/{targets.split}", answers, groups)
        others = {
            name: join_column(values[places], faculty.weights)
            for name, values in found.columns.items()
            if name != LOGITS
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
