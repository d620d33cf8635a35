"""The examine stage: every teacher answers its task's dev sets before it may teach, and the best are chosen."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from understill import teachers
from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.data.taskdata import source_rows
from understill.disk import write_json
from understill.errors import UserError
from understill.evaluate.metrics import score
from understill.evaluate.predict import kept_at, read_kept, save_predictions, settled
from understill.events import Examined, Labelling, Scores, Watch, silent
from understill.pipeline.locking import alone
from understill.pipeline.plan import Distillation, Plan, TeacherPlan, dev_sets
from understill.recipe.schema import TargetsSpec
from understill.runtime.answers import Predictions
from understill.targets.ensemble import best, join, shares, weights_of
from understill.teachers import Opening, Teacher
from understill.teachers.verdict import Verdict, examine

log = logging.getLogger(__name__)


def open_teacher(plan: Plan, teacher: TeacherPlan) -> Teacher:
    """Make a teacher of a plan ready to answer."""
    models = tuple(model.folder for model in teacher.models)
    opening = Opening(teacher.name, teacher.digest, plan.recipe, plan.loaded[teacher.task], models)
    return teachers.open_teacher(teacher.spec, opening)


def progress_of(watch: Watch, teacher: TeacherPlan, what: str, total: int) -> Callable[[int], None]:
    """Return what counts a teacher's answers for whoever watches."""
    done = 0

    def progress(rows: int) -> None:
        nonlocal done
        done += rows
        watch(Labelling(teacher.name, what, done, total))

    return progress


def refuse_silence(plan: Plan) -> None:
    """Stop where no teacher of a task has a word on the rows that augmentation made, as files of answers have none."""
    for targets in plan.targets:
        sparse = all(teacher.spec.sparse for teacher in targets.teachers)
        if targets.split != "augmented" or not sparse or targets.done:
            continue
        data = plan.loaded[targets.task].splits[targets.split]
        made = source_rows(data) != np.arange(data.rows)
        said = [open_teacher(plan, teacher).logits(data)[made, 0] for teacher in targets.teachers]
        if made.any() and np.isnan(said).all():
            what = f"the teachers of {targets.task} say nothing of the {made.sum():,} rows made of it"
            fix = f"leave it out, add a teacher that is a model, or add answers to the rows of {data.path}"
            raise UserError(f"student.augment: {what} → {fix}")


# On dev ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Examination:
    """How a teacher does on dev."""

    score: float | None  # the primary metric; None where none of its answers can be scored
    fault: str  # why it should not teach; empty where it may
    scores: Scores  # by dev set


def examination(plan: Plan, teacher: TeacherPlan, watch: Watch = silent) -> Examination:
    """Let a teacher answer its task's dev sets, or read how it did when it was last asked."""
    with alone(teacher.verdict, f"the verdict on {teacher.name} of {teacher.task}", watch):
        found = _read_verdict(plan, teacher)
        if found is None:
            _examine(plan, teacher, watch)
            found = _read_verdict(plan, teacher)
    assert found is not None
    return found


def _read_verdict(plan: Plan, teacher: TeacherPlan) -> Examination | None:
    """Return what is known of a teacher; None where it is not there, or not whole."""
    try:
        facts = json.loads((teacher.verdict / "verdict.json").read_text(encoding="utf-8"))
        for task, split in dev_sets(plan.loaded, teacher.task):
            pq.read_schema(_answers(teacher, task, split))
        return Examination(facts["score"], facts["fault"], facts["scores"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _examine(plan: Plan, teacher: TeacherPlan, watch: Watch) -> None:
    opened, loaded = open_teacher(plan, teacher), plan.loaded[teacher.task]
    teacher.verdict.mkdir(parents=True, exist_ok=True)
    train = all_gold(loaded.splits["train"])
    found, scores = Verdict(None, {}, None, ""), {}
    for task, split in dev_sets(plan.loaded, teacher.task):
        data = task.splits[split]
        logits = opened.logits(data, progress_of(watch, teacher, f"{task.task.name}/{split}", data.rows))
        save_predictions(_answers(teacher, task, split), data, Predictions(task.task, logits))
        verdict = examine(task.task, all_gold(data), logits, train, groups=grouping(data))
        if verdict.scores:
            scores[f"{task.task.name}/{split}"] = verdict.scores
        if task is loaded and split == "dev":
            found = verdict
    if found.score is None and teacher.spec.sparse:
        # A file often has answers for other rows than dev's. Those with gold show as well what it is worth.
        data = loaded.splits["train"]
        found = examine(loaded.task, train, opened.logits(data), train, "train", grouping(data))
    facts = {"teacher": teacher.name, "task": teacher.task, "score": found.score, "majority": found.majority}
    write_json(teacher.verdict / "verdict.json", {**facts, "fault": found.fault, "scores": scores})
    watch(Examined(teacher.name, teacher.task, found.score, found.fault))


def _answers(teacher: TeacherPlan, task: LoadedTask, split: str) -> Path:
    return teacher.verdict / f"{task.task.name}.{split}.parquet"


def examine_outsiders(plan: Plan, watch: Watch = silent) -> None:
    """Put teachers that need no training to the test before any training is done."""
    _refuse_weak(plan.recipe.targets, {teacher: examination(plan, teacher, watch) for teacher in plan.outsiders})


def _refuse_weak(rule: TargetsSpec, looked: Mapping[TeacherPlan, Examination]) -> set[TeacherPlan]:
    """Return the teachers that are to be left out, or stop where the recipe wants no weak ones."""
    if rule.weak == "keep":
        return set()
    weak = {teacher: found.fault for teacher, found in looked.items() if found.fault}
    if weak and rule.weak == "stop":
        lines = [f"  {teacher.name} of {teacher.task}: {fault}" for teacher, fault in weak.items()]
        more = "targets.weak: leave_out goes on without them, keep goes on with them"
        raise UserError("\n".join([f"{len(weak)} of {len(looked)} teachers should not teach; {more}", *lines]))
    for teacher, fault in weak.items():
        log.warning("teacher %s of %s is left out: %s", teacher.name, teacher.task, fault)
    return set(weak)


# Choosing and weighing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Faculty:
    """The teachers that take part in a task's lessons, with their weights."""

    teachers: tuple[TeacherPlan, ...]
    weights: NDArray[np.float64]


def faculties(plan: Plan, distillation: Distillation, watch: Watch = silent) -> dict[str, Faculty]:
    """Choose the teachers of every task by how they do on dev, and weigh them; weak ones stop the run, or are left out.

    Where the recipe names tasks that decide who is best, the choice is one for all tasks; else each has its own.
    """
    rule = distillation.rule
    looked = {teacher: examination(plan, teacher, watch) for teacher in distillation.teachers}
    weak = _refuse_weak(rule, looked)
    everywhere = None
    if rule.best and rule.best.by:
        scores: dict[str, dict[str, float]] = {}
        for teacher in distillation.judged:
            value = examination(plan, teacher, watch).score
            scores.setdefault(teacher.name, {}).update({} if value is None else {teacher.task: value})
        everywhere = best(scores, rule.best.count, rule.best.by)
    chosen: dict[str, Faculty] = {}
    for task in dict.fromkeys(teacher.task for teacher in distillation.teachers):
        mine = [teacher for teacher in looked if teacher.task == task and teacher not in weak]
        if everywhere is not None:
            mine = [teacher for teacher in mine if teacher.name in everywhere]
        elif rule.best and len(mine) > rule.best.count:
            here = {teacher.name: {task: value} for teacher in mine if (value := looked[teacher].score) is not None}
            kept = best(here, min(rule.best.count, len(here)), [task])
            mine = [teacher for teacher in mine if teacher.name in kept]
        if mine:
            dev = [looked[teacher].score for teacher in mine]
            names = {teacher.name: str(teacher.spec.name) for teacher in mine}
            chosen[task] = Faculty(tuple(mine), shares(list(names), weights_of(names, rule.weights), dev))
    if not chosen:
        raise UserError("no teacher is left to learn from; train them longer, or set targets.weak: keep")
    return chosen


def ensemble_scores(plan: Plan, distillation: Distillation, watch: Watch = silent, keep: Path | None = None) -> Scores:
    """Score each task's teachers together on dev, as the student hears them, keeping each row's answer under `keep`."""
    scores: Scores = {}
    for key, faculty in faculties(plan, distillation, watch).items():
        for task, split in dev_sets(plan.loaded, key):
            joined = join(
                np.stack([_read_answers(teacher, task, split) for teacher in faculty.teachers]),
                scored=task.task.kind.scaled,
                combine=distillation.rule.combine,
                weights=faculty.weights,
                form="log_probabilities",
                temperature=1.0,
                groups=grouping(task.splits[split]),
            )
            gold = settled(all_gold(task.splits[split]), joined)
            together = Predictions(task.task, joined)
            found = score(task.task, gold, together.values, grouping(task.splits[split]))
            if found:
                scores[f"{task.task.name}/{split}"] = found
                if keep:
                    save_predictions(kept_at(keep, f"{task.task.name}/{split}"), task.splits[split], together)
    return scores


def member_scores(plan: Plan, distillation: Distillation, watch: Watch = silent) -> dict[str, Scores]:
    """Return how each of several teachers of a task does on dev by itself, by teacher."""
    members: dict[str, Scores] = {}
    for faculty in faculties(plan, distillation, watch).values():
        if len(faculty.teachers) > 1:
            for teacher in faculty.teachers:
                members.setdefault(teacher.name, {}).update(examination(plan, teacher, watch).scores)
    return members


def _read_answers(teacher: TeacherPlan, task: LoadedTask, split: str) -> NDArray[np.float32]:
    return read_kept(_answers(teacher, task, split), task.task).predictions.logits
