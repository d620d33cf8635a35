"""Load the tasks of a recipe: read and check their rows, and warn of what is doubtful about them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.compute as pc

from understill.data.check import BadRows
from understill.data.doubts import HEADED, LOOKED_AT, contradictions, header_doubt, several_labels, singles, spellings
from understill.data.files import BadFile
from understill.data.groups import count_queries
from understill.data.ingest import FEW_ROWS, LARGER_SHARES, SMALLER_SHARES, EmptyDev, Progress, SourcedTask, ingest
from understill.data.overlap import overlap, shared_across
from understill.data.resolve import resolve
from understill.data.taskdata import REJECTS, TaskData, id_keys
from understill.errors import counted, listed
from understill.recipe import Recipe
from understill.tasks import Task

log = logging.getLogger(__name__)

#: Below this many rows a standard error of an accuracy is ten points or more.
FEW_DEV_ROWS = 25


@dataclass(frozen=True)
class LoadedTask:
    """A task with its labels known, its splits, and how many rows of them are also elsewhere."""

    task: Task
    splits: dict[str, TaskData]
    overlap: dict[str, int]  # rows of each dev and test split that are also in train
    foreseen: dict[str, int] = field(default_factory=dict)  # rows of dev and test that are also in unlabelled
    across: dict[tuple[str, str], int] = field(default_factory=dict)  # by split and other task: rows in its train


def load_tasks(recipe: Recipe, cache: Path, progress: Progress | None = None) -> dict[str, LoadedTask]:
    """Read and check all data of a recipe; everything that is wrong with it is raised together."""
    return read_tasks(resolve(recipe), recipe.data.on_bad_row == "skip", cache, progress)


def read_tasks(
    plans: Sequence[SourcedTask], skip: bool, cache: Path, progress: Progress | None = None
) -> dict[str, LoadedTask]:
    """Read and check the rows of tasks that are resolved; `skip` leaves bad ones out."""
    bad = BadRows()
    tasks = _ingested(plans, skip, cache, bad, progress)
    bad.raise_if_any()
    for splits in tasks.values():
        for data in splits.values():
            if data.rejected:
                _tell_left_out(data)
        with bad.collecting():
            _check_queries(splits)
    bad.raise_if_any()
    for plan in plans:
        if plan.hold_out and not plan.goldless:
            _check_labels(tasks[plan.task.name]["train"], tasks[plan.task.name]["dev"])
            _check_size(tasks[plan.task.name]["dev"])
        if plan.formats:
            _doubt(plan, tasks[plan.task.name])
    across = _across(tasks)
    return {name: _loaded(splits, across[name]) for name, splits in tasks.items()}


def _ingested(
    plans: Sequence[SourcedTask], skip: bool, cache: Path, bad: BadRows, progress: Progress | None
) -> dict[str, dict[str, TaskData]]:
    """Return the splits of every task; where the usual share holds no row out, a larger one is held out of all.

    All tasks share it, so that a text falls on the same side in each of them. Of so few rows that a dev set could tell
    nothing, as few as possible are held out: each is worth more in train.
    """

    def read(share: float | None) -> dict[str, dict[str, TaskData]]:
        splits = {}
        for plan in plans:
            plan = replace(plan, hold_out=share) if share and _usual(plan) else plan
            with bad.collecting():
                splits[plan.task.name] = ingest(plan, cache, skip, bad, progress)
        return splits

    splits: dict[str, dict[str, TaskData]] = {}
    for share in (None, *LARGER_SHARES):
        try:
            splits = read(share)
            break
        except EmptyDev as error:
            log.warning("%s; holding out a larger share of every task instead", error)
    held_out = [splits.get(plan.task.name, {}) for plan in plans if _usual(plan)]
    few = all(task and task["train"].rows + task["dev"].rows < FEW_ROWS for task in held_out)
    for share in SMALLER_SHARES if held_out and few and not bad.total else ():
        with suppress(EmptyDev):
            return read(share)
    return splits


def _tell_left_out(data: TaskData) -> None:
    """Say how many rows are left out of a split, and the commonest reasons."""
    rejects = data.path.with_name(REJECTS)
    with rejects.open(encoding="utf-8") as lines:
        reasons = Counter(str(json.loads(line)["reason"]) for line in lines).most_common(3)
    why = ", ".join(f"{count:,} × {reason}" for reason, count in reasons)
    log.warning("%s: %s bad rows left out, listed in %s: %s", data.place, f"{data.rejected:,}", rejects, why)


def _usual(plan: SourcedTask) -> bool:
    """Tell whether rows are held out of a task, and the user has not said how many."""
    return bool(plan.hold_out) and not plan.share_given


def _check_labels(train: TaskData, dev: TaskData) -> None:
    """Warn about labels of which holding out has left no row in train."""
    if train.task.kind.has_classes:
        there = set(pc.unique(train.table().column("label")).to_pylist())
        if missing := [label for label in train.task.labels if label not in there]:
            named = [*missing[:5], *([f"{len(missing) - 5} more"] if len(missing) > 5 else [])]
            few = train.rows + dev.rows < FEW_ROWS  # of so few, as few as possible are held out already
            fix = "give dev a file" if few else "hold out a smaller share, or give dev a file"
            what = f"no row with label {listed(named)} is left"
            log.warning("%s/train: %s → %s", train.task.name, what, fix)


def _check_size(dev: TaskData) -> None:
    """Warn about a held-out dev set whose scores say next to nothing."""
    if dev.rows < FEW_DEV_ROWS:
        count = counted(dev.rows, "row")
        log.warning("%s/dev: only %s held out, so its scores are mostly chance → give dev a file", dev.task.name, count)


def _doubt(plan: SourcedTask, splits: dict[str, TaskData]) -> None:
    """Warn about labels of the user's own rows that contradict each other, and about a header that is a row."""
    train = splits["train"]
    task, place = train.task, f"{plan.task.name}/train"
    rows = train.table().slice(0, LOOKED_AT)
    if task.kind.has_classes and not task.kind.grouped and not plan.goldless:
        counts: Counter[str] = Counter()
        for data in (train, splits["dev"]) if plan.hold_out else (train,):  # all rows that the user gave for train
            each_label = pc.value_counts(data.table()["label"]).to_pylist()
            counts.update({each["values"]: each["counts"] for each in each_label})
        doubts = [contradictions(id_keys(rows["id"]).tolist(), rows["label"].to_pylist(), task.pair)]
        doubts += [] if plan.task.labels else [spellings(counts)]  # labels that were given may be spelt alike
        several = "" if plan.task.labels else several_labels(counts)
        doubts += [several or ("" if plan.rows else singles(counts))]  # other rows of theirs may be there
        for doubt in filter(None, doubts):
            log.warning("%s: %s", place, doubt)
    if set(plan.formats) & set(HEADED):
        texts = {name: rows[f"text{number}"] for number, name in enumerate(task.text, 1)}
        known = {name for name, column in texts.items() if pc.any(pc.equal(column, name)).as_py()}
        label = task.label or ""
        if doubt := header_doubt(texts, label, known | (set(task.labels) & {label})):
            log.warning("%s: %s", place, doubt)


def _across(tasks: dict[str, dict[str, TaskData]]) -> dict[str, dict[tuple[str, str], int]]:
    """Count the rows of dev and test that other tasks have in train, by task, split and other task, and warn."""
    counts: dict[str, dict[tuple[str, str], int]] = {name: {} for name in tasks}
    for scored, train, rows in shared_across(tasks):
        name, split, other = scored.task.name, scored.split, train.task.name
        counts[name][split, other] = rows
        of = f"{rows:,} of {scored.rows:,}"
        log.warning("%s/%s: %s rows are also in train of %s, which may inflate its scores", name, split, of, other)
    return counts


def _check_queries(splits: dict[str, TaskData]) -> None:
    """Say how many queries of a ranking task teach something or can be scored; there must be some."""
    for name, data in splits.items():
        if not data.task.kind.grouped or not name.startswith(("train", "dev", "unlabelled")):
            continue
        need = "two candidates or more" if name == "unlabelled" else "both a right and a wrong candidate"
        use, remark = ("score", "are not scored") if name.startswith("dev") else ("learn", "teach nothing")
        useful, total = count_queries(data)
        if not useful:
            what = f"none of the {total:,} queries of {name} has {need}; nothing to {use}"
            fix = f'rows that agree in column "{data.task.group or data.task.text[0]}" are one query; check that column'
            other = "name other files" if name == "unlabelled" else "choose another kind"
            raise BadFile(f"tasks.{data.task.name}", what, f"{fix}, or {other}")
        if useful < total:
            counts = f"{useful:,} of {total:,}"
            log.warning("%s/%s: %s queries have %s; the others %s", data.task.name, name, counts, need, remark)


def _loaded(splits: dict[str, TaskData], across: dict[tuple[str, str], int]) -> LoadedTask:
    task = next(iter(splits.values())).task
    shared = _shared(splits, "train", ("dev", "test"), "which inflates its scores")
    foreseen = _shared(splits, "unlabelled", ("dev", "test"), "without labels, which may still inflate its scores")
    return LoadedTask(task, splits, shared, foreseen, across)


def _shared(splits: dict[str, TaskData], where: str, kinds: tuple[str, ...], remark: str) -> dict[str, int]:
    """Count the rows of splits of some kinds that another split has too, and warn about them."""
    if where not in splits:
        return {}
    shared = {name: overlap(splits[where], data) for name, data in splits.items() if name.startswith(kinds)}
    for name, count in shared.items():
        if count:
            counts = f"{count:,} of {splits[name].rows:,}"
            log.warning("%s/%s: %s rows are also in %s, %s", splits[name].task.name, name, counts, where, remark)
    return shared
