"""The label stage: teachers are put to the test on dev, their answers written once, and joined for a student."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from understill.data.encode import gold_of
from understill.data.load import LoadedTask
from understill.data.read import find_files
from understill.data.taskdata import TaskData
from understill.disk import write_json
from understill.errors import UserError
from understill.evaluate.metrics import score
from understill.evaluate.predict import Predictions, save_predictions
from understill.events import Examined, Labelling, Waiting, Watch, silent
from understill.models.folder import load_model
from understill.pipeline.plan import Lessons, Plan, TargetsPlan, TeacherPlan, cache_folder
from understill.targets.checkpoint import open_checkpoint
from understill.targets.ensemble import best, join, shares
from understill.targets.predictions import read_predictions
from understill.targets.store import TeacherFacts, read_targets, write_targets
from understill.targets.teachers import FoldedTeacher, ModelTeacher, Teacher, examine
from understill.train.device import pick_device
from understill.train.fit import Scores

log = logging.getLogger(__name__)


@contextmanager
def alone(folder: Path, what: str, watch: Watch) -> Iterator[None]:
    """Let one process at a time make an artefact; the others wait and then find it made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(folder) + ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        watch(Waiting(what))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def gold(data: TaskData) -> NDArray[np.float64]:
    """Return the gold of every row of a split, as class numbers or scores; NaN where there is none."""
    batches = [gold_of(batch, data.task) for batch in data.batches()]
    return np.concatenate(batches).astype(np.float64)


def open_teacher(plan: Plan, teacher: TeacherPlan) -> Teacher:
    """Make a teacher ready to answer."""
    recipe, spec = plan.recipe, teacher.spec
    cache, batch, device = cache_folder(recipe), recipe.evaluation.batch, pick_device(recipe.machine)
    task = plan.loaded[teacher.task].task
    if spec.checkpoint is not None:
        return open_checkpoint(
            teacher.name, teacher.place, task, spec.labels, spec.max_length, cache=cache, batch=batch, device=device
        )
    if spec.predictions:
        files = find_files(spec.predictions, recipe.roots())
        said = read_predictions(teacher.name, files, task, spec.labels, spec.values)
        said.must_match(plan.loaded[teacher.task].splits.values())
        return said

    def trained(folder: Path) -> ModelTeacher:
        return ModelTeacher(teacher.name, teacher.digest, load_model(folder / "model"), cache, batch, device)

    if spec.folds is None:
        return trained(teacher.models[0].folder)
    # Opened one by one: folds need not be in memory together.
    return FoldedTeacher(teacher.name, teacher.digest, [partial(trained, model.folder) for model in teacher.models])


# On dev ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Examination:
    """How a teacher does on dev."""

    score: float | None  # the primary metric; None where none of its answers can be scored
    fault: str  # why it should not teach; empty where it may
    scores: Scores  # by dev set


def examination(plan: Plan, teacher: TeacherPlan, watch: Watch = silent) -> Examination:
    """Let a teacher answer its task's dev sets, or read how it did when it was last asked."""
    with alone(teacher.verdict, f"teacher {teacher.name} of {teacher.task}", watch):
        if not (teacher.verdict / "verdict.json").exists():
            _examine(plan, teacher, watch)
        facts = json.loads((teacher.verdict / "verdict.json").read_text(encoding="utf-8"))
    return Examination(facts["score"], facts["fault"], facts["scores"])


def _examine(plan: Plan, teacher: TeacherPlan, watch: Watch) -> None:
    opened, loaded = open_teacher(plan, teacher), plan.loaded[teacher.task]
    teacher.verdict.mkdir(parents=True, exist_ok=True)
    train = gold(loaded.splits["train"])
    facts: dict[str, Any] = {"teacher": teacher.name, "task": teacher.task, "score": None, "fault": "", "scores": {}}
    for task, split in _dev_sets(plan, teacher.task):
        data = task.splits[split]
        logits = opened.logits(data, _progress(watch, teacher, f"{task.task.name}/{split}", data.rows))
        save_predictions(_answers(teacher, task, split), data, Predictions(task.task, logits))
        verdict = examine(task.task, gold(data), logits, train)
        if verdict.scores:
            facts["scores"][f"{task.task.name}/{split}"] = verdict.scores
        if task is loaded and split == "dev":
            facts |= {"score": verdict.score, "majority": verdict.majority, "fault": verdict.fault}
    write_json(teacher.verdict / "verdict.json", facts)
    watch(Examined(teacher.name, teacher.task, facts["score"], facts["fault"]))


def _dev_sets(plan: Plan, key: str) -> list[tuple[LoadedTask, str]]:
    tasks = [task for task in plan.loaded.values() if task.task.head == key]
    return [(task, split) for task in tasks for split in task.splits if split.startswith("dev")]


def _answers(teacher: TeacherPlan, task: LoadedTask, split: str) -> Path:
    return teacher.verdict / f"{task.task.name}.{split}.parquet"


def _progress(watch: Watch, teacher: TeacherPlan, what: str, total: int) -> Any:
    done = 0

    def progress(rows: int) -> None:
        nonlocal done
        done += rows
        watch(Labelling(teacher.name, what, done, total))

    return progress


# Choosing and weighing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Faculty:
    """The teachers that take part in a task's lessons, with their weights."""

    teachers: tuple[TeacherPlan, ...]
    weights: NDArray[np.float64]


def faculties(plan: Plan, lessons: Lessons, watch: Watch = silent) -> dict[str, Faculty]:
    """Choose the teachers of every task by how they do on dev; weak ones stop the run, unless the recipe says so."""
    rule, looked = lessons.rule, {}
    for teacher in lessons.teachers:
        looked[teacher.name, teacher.task] = examination(plan, teacher, watch)
    weak = {key: found.fault for key, found in looked.items() if found.fault and rule.weak != "keep"}
    if weak and rule.weak == "stop":
        lines = [f"  {name} of {task}: {fault}" for (name, task), fault in weak.items()]
        more = "targets.weak: leave_out goes on without them, keep goes on with them"
        raise UserError("\n".join([f"{len(weak)} of {len(looked)} teachers should not teach; {more}", *lines]))
    for (name, task), fault in weak.items():
        log.warning("teacher %s of %s is left out: %s", name, task, fault)
    teachers = [teacher for teacher in lessons.teachers if (teacher.name, teacher.task) not in weak]
    if rule.best:
        scores: dict[str, dict[str, float]] = {}
        for teacher in teachers:
            value = looked[teacher.name, teacher.task].score
            scores.setdefault(teacher.name, {}).update({} if value is None else {teacher.task: value})
        by = rule.best.by or tuple(dict.fromkeys(teacher.task for teacher in teachers))
        kept = best(scores, rule.best.count, by)
        teachers = [teacher for teacher in teachers if teacher.name in kept]
    chosen: dict[str, Faculty] = {}
    for task in dict.fromkeys(teacher.task for teacher in teachers):
        mine = tuple(teacher for teacher in teachers if teacher.task == task)
        dev = [looked[teacher.name, task].score for teacher in mine]
        names = [teacher.name for teacher in mine]
        chosen[task] = Faculty(mine, shares(names, _weights(mine, rule.weights), dev))
    return chosen


def _weights(teachers: tuple[TeacherPlan, ...], given: Any) -> Any:
    """Return the recipe's weights of these teachers; one weight may stand for all seeds of a teacher."""
    if not isinstance(given, dict):
        return given
    weights = {teacher.name: given.get(teacher.name, given.get(str(teacher.spec.name))) for teacher in teachers}
    for name, weight in weights.items():
        if weight is None:
            raise UserError(f"targets.weights: teacher {name} has no weight → give every teacher one")
    return weights


def ensemble_scores(plan: Plan, lessons: Lessons, chosen: Mapping[str, Faculty]) -> Scores:
    """Score each task's teachers together on dev, as the student hears them."""
    scores: Scores = {}
    for key, faculty in chosen.items():
        for task, split in _dev_sets(plan, key):
            answers = np.stack([_read(_answers(teacher, task, split)) for teacher in faculty.teachers])
            scored = task.task.kind == "regression"
            joined = join(
                answers, scored=scored, combine=lessons.rule.combine, weights=faculty.weights,
                loss="cross_entropy", temperature=1.0,
            )  # fmt: skip
            told = gold(task.splits[split])
            told[np.isnan(joined[:, 0])] = np.nan
            found = score(task.task, told, Predictions(task.task, joined).values)
            if found:
                scores[f"{task.task.name}/{split}"] = found
    return scores


def _read(path: Path) -> NDArray[np.float32]:
    column = pq.read_table(path, columns=["logits"]).column("logits").combine_chunks()
    values: NDArray[np.float32] = column.values.to_numpy(zero_copy_only=False).astype(np.float32)
    return values.reshape(len(column), -1)


# Tables ---------------------------------------------------------------------------------------------------------------


def label(plan: Plan, targets: TargetsPlan, watch: Watch = silent) -> None:
    """Write what every teacher says of every row of a split, unless that was done before."""
    with alone(targets.folder, f"the soft targets of {targets.task}/{targets.split}", watch):
        if targets.done:
            return
        data = plan.loaded[targets.task].splits[targets.split]
        facts, logits = [], []
        for teacher in targets.teachers:
            opened = open_teacher(plan, teacher)
            progress = _progress(watch, teacher, f"{targets.task}/{targets.split}", data.rows)
            logits.append(opened.logits(data, progress))
            facts.append(TeacherFacts(teacher.name, teacher.digest, examination(plan, teacher, watch).score))
        rule = plan.recipe.targets.model_dump(mode="json")
        write_targets(targets.folder, data, facts, logits, dtype=plan.recipe.targets.dtype, rule=rule)


def join_targets(plan: Plan, lessons: Lessons, watch: Watch = silent) -> dict[tuple[str, str], NDArray[np.float32]]:
    """Return what the teachers of each task say together of every row, as the student's loss wants it."""
    chosen = faculties(plan, lessons, watch)
    joined = {}
    for targets in lessons.targets:
        label(plan, targets, watch)
        data = plan.loaded[targets.task].splits[targets.split]
        found = read_targets(targets.folder, data, {teacher.name: teacher.digest for teacher in targets.teachers})
        faculty = chosen.get(targets.task)
        if faculty is None:
            continue  # all left out: the task is learnt from gold
        names = [facts.name for facts in found.teachers]
        distil = lessons.distil.of(targets.task)
        joined[targets.task, targets.split] = join(
            found.logits[[names.index(teacher.name) for teacher in faculty.teachers]],
            scored=data.task.kind == "regression",
            combine=lessons.rule.combine,
            weights=faculty.weights,
            loss=distil.loss,
            temperature=distil.temperature,
        )
    return joined
