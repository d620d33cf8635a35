"""Teacher selection: every teacher answers its task's dev sets before it may teach, and the best are chosen."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill import teachers
from understill.atomic import write_json
from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.taskdata import TaskData, source_rows
from understill.errors import UserError
from understill.evaluate.metrics import primary, score
from understill.evaluate.predict import kept_at, read_kept, save_predictions, settled
from understill.events import Chosen, Examined, Labelling, Scores, Watch, counting, silent
from understill.inference.predictor import Predictions
from understill.pipeline.plan.parts import ChoicePlan, Distillation, ModelPlan, Plan, TeacherPlan, dev_sets
from understill.recipe.schema import TargetsSpec
from understill.targets.ensemble import best, join, shares, weights_of
from understill.teachers import Opening, Teacher
from understill.teachers.verdict import Verdict, examine

log = logging.getLogger(__name__)


def open_teacher(plan: Plan, teacher: TeacherPlan) -> Teacher:
    """Make a teacher of a plan ready to answer."""
    models = tuple(model.folder for model in teacher.models)
    opening = Opening(teacher.name, teacher.digest, plan.recipe, plan.loaded[teacher.task], models)
    return teachers.open_teacher(teacher.spec, opening)


def progress_of(watch: Watch, teacher: TeacherPlan, data: TaskData, opened: Teacher) -> Callable[[int], None]:
    """Return what counts a teacher's answers for whoever watches."""
    detail: Callable[[], str] = getattr(opened, "spending", str)
    return counting(watch, lambda rows: Labelling(teacher.name, data.place, rows, data.rows, detail()))


def asked_by(teacher: Teacher) -> dict[str, Any]:
    """Return what a teacher's answers took, where each of them is a request."""
    asked = getattr(teacher, "asked", None)
    return {"asked": asked()} if asked else {}


def refuse_no_answers(plan: Plan) -> None:
    """Stop where no teacher of a task answers the rows that augmentation made, as files of answers do not."""
    for targets in plan.targets:
        sparse = all(teacher.spec.sparse for teacher in targets.teachers)
        if targets.split != "augmented" or not sparse or targets.done:
            continue
        data = plan.loaded[targets.task].splits[targets.split]
        made = source_rows(data) != np.arange(data.rows)
        logits = [open_teacher(plan, teacher).logits(data)[made, 0] for teacher in targets.teachers]
        if made.any() and np.isnan(logits).all():
            what = f"no teacher of {targets.task} answers any of the {made.sum():,} augmented rows"
            fix = f"leave it out, add a teacher that is a model, or add answers to the rows of {data.path}"
            raise UserError(f"student.augment: {what} → {fix}")


# On dev ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Examination:
    """How a teacher does on dev."""

    score: float | None  # the primary metric; None where none of its answers can be scored
    fault: str  # why it should not teach; empty where it may
    scores: Scores  # by dev set


def read_verdict(teacher: TeacherPlan) -> Examination:
    """Return how a teacher did when it was examined."""
    facts = teacher.verdict.read("verdict.json")
    if facts is None:
        raise UserError(f"{teacher.verdict.folder}: the verdict on {teacher.name} is gone or damaged → run again")
    return Examination(facts["score"], facts["fault"], facts["scores"])


def examine_teacher(plan: Plan, teacher: TeacherPlan, watch: Watch) -> None:
    """Let a teacher answer its task's dev sets, unless that was done before, and keep its answers and their score."""
    if teacher.verdict.sound():
        return
    opened, splits = open_teacher(plan, teacher), plan.loaded[teacher.task].splits
    train = all_gold(splits["train"])
    verdict, scores = Verdict(None, {}, None, ""), {}
    outside = not teacher.models  # it has learnt nothing here, so it must show beyond chance that it knows the task
    answers = []  # written at the end: asking may take hours, and a folder that nobody writes to is swept
    for data in dev_sets(plan.loaded, teacher.task):
        logits = opened.logits(data, progress_of(watch, teacher, data, opened))
        answers.append((data, Predictions(data.task, logits)))
        surely = outside and "dev" not in plan.recipe.tasks[teacher.task].silver
        here = examine(data.task, all_gold(data), logits, train, groups=grouping(data), surely=surely)
        if here.scores:
            scores[data.place] = here.scores
        if data is splits.get("dev"):
            verdict = here
    if verdict.score is None and teacher.spec.sparse:
        # A file often has answers for other rows than dev's. Those with gold show as well what it is worth.
        data = splits["train"]
        verdict = examine(data.task, train, opened.logits(data), train, "train", grouping(data), surely=outside)
    with teacher.verdict.build() as part:
        for data, predictions in answers:
            save_predictions(kept_at(part, data.place), data, predictions)
        facts = {"teacher": teacher.name, "task": teacher.task, "score": verdict.score, "guess": verdict.guess}
        write_json(part / "verdict.json", {**facts, "fault": verdict.fault, "scores": scores, **asked_by(opened)})
    watch(Examined(teacher.name, teacher.task, verdict.score, verdict.fault))


def refuse_weak(rule: TargetsSpec, teachers: Iterable[TeacherPlan], watch: Watch = silent) -> None:
    """Stop where a teacher should not teach and the recipe wants no weak ones; say which are left out."""
    faults = {teacher: read_verdict(teacher).fault for teacher in teachers}
    weak = {teacher: fault for teacher, fault in faults.items() if fault and rule.weak != "keep"}
    if weak and rule.weak == "stop":
        raise too_weak({(teacher.name, teacher.task): fault for teacher, fault in weak.items()}, len(faults))
    for teacher, fault in weak.items():
        log.warning("%s: teacher %s is left out: %s", teacher.task, teacher.name, fault)


def too_weak(faults: Mapping[tuple[str, str], str], count: int) -> UserError:
    """Say which of so many teachers, by name and task, should not teach."""
    lines = [f"  {name} of {task}: {fault}" for (name, task), fault in faults.items()]
    more = "targets.weak: leave_out goes on without them, keep goes on with them"
    return UserError("\n".join([f"{len(faults)} of {count} teachers should not teach; {more}", *lines]))


def accepted(rule: TargetsSpec, teachers: Sequence[TeacherPlan]) -> bool:
    """Tell whether teachers were examined before, and none of them would stop a run."""
    asked = [teacher for teacher in teachers if not teacher.dropped]
    known = all(teacher.verdict.sound() for teacher in asked)
    return known and not (rule.weak == "stop" and any(read_verdict(teacher).fault for teacher in asked))


# Choosing and weighing ------------------------------------------------------------------------------------------------


def choose_candidates(choice: ChoicePlan, watch: Watch) -> None:
    """Choose the candidates that are fine-tuned and teach by how they do on dev, and keep the choice."""
    if choice.chosen is None:
        figures = {name: _dev_figures(model) for name, model in choice.candidates.items()}
        with choice.artifact.build() as part:
            write_json(part / "choice.json", {"chosen": best(figures, choice.rule.count, choice.rule.by)})
        watch(Chosen(choice.chosen or (), len(choice.candidates)))


def _dev_figures(model: ModelPlan) -> dict[str, float]:
    """Return a finished model's primary metric on each dev set, higher is better; NaN where it has no score."""
    facts = model.artifact.read("scores.json")
    if facts is None:
        raise UserError(f"{model.folder}: the scores of {model.name} are gone or damaged → run again")
    scores = facts["scores"]
    places = {task: scores.get(f"{task.name}/dev") for task in model.tasks}
    return {task.name: primary(task, values) if values else math.nan for task, values in places.items()}


@dataclass(frozen=True)
class TeacherWeights:
    """The teachers of a task that take part, with their weights."""

    teachers: tuple[TeacherPlan, ...]
    weights: NDArray[np.float64]


def check_teachers(distillation: Distillation, watch: Watch = silent) -> None:
    """Make sure that there are teachers to learn from, and none that the recipe does not want."""
    refuse_weak(distillation.rule, distillation.teachers)
    if not select_teachers(distillation):
        raise UserError("no teacher is left to learn from; train them longer, or set targets.weak: keep")


def select_teachers(distillation: Distillation) -> dict[str, TeacherWeights]:
    """Choose the teachers of every task by how they do on dev, and weigh them; weak ones may be left out.

    Where the recipe names tasks that decide who is best, the choice is one for all tasks; else each has its own.
    """
    rule = distillation.rule
    verdicts = {teacher: read_verdict(teacher) for teacher in distillation.teachers}
    sound = [teacher for teacher, verdict in verdicts.items() if rule.weak == "keep" or not verdict.fault]
    everywhere = _best_everywhere(distillation)
    selected: dict[str, TeacherWeights] = {}
    for task in dict.fromkeys(teacher.task for teacher in distillation.teachers):
        mine = [teacher for teacher in sound if teacher.task == task]
        if everywhere is not None:
            mine = [teacher for teacher in mine if teacher.name in everywhere]
        elif rule.best and len(mine) > rule.best.count:
            here = {teacher.name: {task: value} for teacher in mine if (value := verdicts[teacher].score) is not None}
            kept = best(here, min(rule.best.count, len(here)), [task])
            mine = [teacher for teacher in mine if teacher.name in kept]
        if mine:
            dev = [verdicts[teacher].score for teacher in mine]
            names = {teacher.name: str(teacher.spec.name) for teacher in mine}
            selected[task] = TeacherWeights(tuple(mine), shares(list(names), weights_of(names, rule.weights), dev))
    return selected


def _best_everywhere(distillation: Distillation) -> tuple[str, ...] | None:
    """Name the best teachers by the tasks that the recipe names for it; None where it names none."""
    rule = distillation.rule.best
    if not (rule and rule.by):
        return None
    scores: dict[str, dict[str, float]] = {}
    for teacher in distillation.judged:
        value = read_verdict(teacher).score
        scores.setdefault(teacher.name, {}).update({} if value is None else {teacher.task: value})
    return best(scores, rule.count, rule.by)


def ensemble_scores(plan: Plan, distillation: Distillation, keep: Path) -> Scores:
    """Score each task's teachers together on dev, weighed as for the student, keeping each row's answer."""
    scores: Scores = {}
    for key, mine in select_teachers(distillation).items():
        for data in dev_sets(plan.loaded, key):
            files = [kept_at(teacher.verdict.folder, data.place) for teacher in mine.teachers]
            joined = join(
                np.stack([read_kept(file, data.task).predictions.logits for file in files]),
                scored=data.task.kind.scaled,
                combine=distillation.rule.combine,
                weights=mine.weights,
                form="log_probabilities",
                temperature=1.0,
                groups=grouping(data),
            )
            together = Predictions(data.task, joined)
            gold = settled(all_gold(data), joined)
            if measured := score(data.task, gold, together.values, grouping(data)):
                scores[data.place] = measured
                save_predictions(kept_at(keep, data.place), data, together)
    return scores


def member_scores(distillation: Distillation) -> dict[str, Scores]:
    """Return how each of several teachers of a task does on dev by itself, by teacher."""
    members: dict[str, Scores] = {}
    for mine in select_teachers(distillation).values():
        for teacher in mine.teachers if len(mine.teachers) > 1 else ():
            members.setdefault(teacher.name, {}).update(read_verdict(teacher).scores)
    return members
