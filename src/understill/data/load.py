"""Load the tasks of a recipe: find out what each name means, and return its checked data."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.compute as pc

from understill.data import glue_files
from understill.data.check import BadRows, id_maker
from understill.data.doubts import HEADED, LOOKED_AT, header_doubt, label_doubts
from understill.data.files import BadFile, File, find_files, positions
from understill.data.groups import count_queries
from understill.data.ingest import FEW_ROWS, LARGER_SHARES, SMALLER_SHARES, EmptyDev, Progress, SourcedTask, ingest
from understill.data.overlap import overlap, shared_across
from understill.data.read import columns_of, read_rows
from understill.data.source import Source, from_demo, from_files, from_texts
from understill.data.taskdata import REJECTS, TaskData, id_keys
from understill.errors import Problem, UserError, counted, listed, nearest
from understill.recipe import Recipe
from understill.recipe.schema import TaskSpec
from understill.tasks import GLUE, KINDS, Kind, Task
from understill.tasks.metric import may_score, metric_names

log = logging.getLogger(__name__)

#: Below this many rows a standard error of an accuracy is ten points or more.
FEW_DEV_ROWS = 25
#: The share of train that is held out where the user gives no dev data.
HOLD_OUT = 0.1
#: The split that GLUE's own dev set is where rows of train take its place.
OFFICIAL = "dev_official"


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
        with _collecting(bad.files):
            _check_queries(splits)
    bad.raise_if_any()
    for plan in plans:
        if plan.hold_out and not plan.goldless:
            _check_labels(tasks[plan.task.name]["train"])
            _check_size(tasks[plan.task.name]["dev"])
        if plan.formats:
            _doubt(plan, tasks[plan.task.name]["train"])
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
            with _collecting(bad.files):
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


def _check_labels(train: TaskData) -> None:
    """Warn about labels of which holding out has left no row in train."""
    if train.task.kind.has_classes:
        there = set(pc.unique(train.table().column("label")).to_pylist())
        if missing := [label for label in train.task.labels if label not in there]:
            named = [*missing[:5], *([f"{len(missing) - 5} more"] if len(missing) > 5 else [])]
            what, fix = f"no row with label {listed(named)} is left", "hold out a smaller share, or give dev a file"
            log.warning("%s/train: %s → %s", train.task.name, what, fix)


def _check_size(dev: TaskData) -> None:
    """Warn about a held-out dev set whose scores say next to nothing."""
    if dev.rows < FEW_DEV_ROWS:
        count = counted(dev.rows, "row")
        log.warning("%s/dev: only %s held out, so its scores are mostly chance → give dev a file", dev.task.name, count)


def _doubt(plan: SourcedTask, train: TaskData) -> None:
    """Warn about labels of the user's own rows that contradict each other, and about a header that is a row."""
    task, place = train.task, f"{plan.task.name}/train"
    rows = train.table().slice(0, LOOKED_AT)
    if task.kind.has_classes and not task.kind.grouped and not plan.goldless:
        counts = {each["values"]: each["counts"] for each in pc.value_counts(train.table()["label"]).to_pylist()}
        keys, labels = id_keys(rows["id"]).tolist(), rows["label"].to_pylist()
        for doubt in label_doubts(keys, labels, counts, pair=task.pair, given=bool(plan.task.labels)):
            log.warning("%s: %s", place, doubt)
    if set(plan.formats) & set(HEADED):
        texts = {name: rows[f"text{number}"] for number, name in enumerate(task.text, 1)}
        known = {name for name, column in texts.items() if pc.any(pc.equal(column, name)).as_py()}
        label = task.label or ""
        if doubt := header_doubt([*texts, label], known | (set(task.labels) & {label})):
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


@contextmanager
def _collecting(problems: list[Problem]) -> Iterator[None]:
    """Add what is wrong with a file to the problems and go on."""
    try:
        yield
    except BadFile as error:
        problems.append(error.problem)


def decisive(recipe: Recipe) -> str:
    """Return all that decides what the data of a recipe is; recipes with the same have the same data."""
    unlabelled = recipe.student.unlabelled if recipe.teachers else 0
    return f"{recipe.model_dump_json(include={'data', 'tasks'})} {unlabelled} {recipe.roots()}"


def resolve(recipe: Recipe) -> list[SourcedTask]:
    """Find out what every task of the recipe is and where its rows are; all problems are raised together."""
    bad = BadRows()
    plans = []
    for name, spec in recipe.tasks.items():
        with _collecting(bad.files):
            plans.append(_own(name, spec, recipe, bad.files) if spec.own else _named(name, spec, recipe))
    bad.raise_if_any()
    return plans


# The user's own tasks -------------------------------------------------------------------------------------------------


def _own(name: str, spec: TaskSpec, recipe: Recipe, problems: list[Problem]) -> SourcedTask:
    """Plan a task of the user's own files or of a hub dataset."""
    task = Task(
        name=name,
        kind=spec.task_kind,
        text=spec.text,
        label=spec.label,
        labels=spec.labels,
        range=spec.range,
        metrics=spec.metrics,
        symmetric=bool(spec.symmetric),
        group=spec.group,
    )
    wanted = {"train": spec.train, "test": spec.test, "dev": spec.dev if isinstance(spec.dev, tuple) else ()}
    splits = {}
    for split, names in wanted.items():
        if names:
            with _collecting(problems):
                splits[split] = _source(names, task, spec, recipe, gold_optional=split == "test")
                if spec.cluster and split != "test" and not spec.hub:
                    for file in _files(names, spec, recipe.roots()):
                        positions(file, columns_of(file), [spec.cluster], ())
    if spec.goldless:
        with _collecting(problems):
            splits["train"] = from_texts(_files(spec.unlabelled, spec, recipe.roots()), task)
    elif names := _unlabelled(spec, recipe):
        with _collecting(problems):
            splits["unlabelled"] = from_texts(_files(names, spec, recipe.roots()), task)
    given = isinstance(spec.dev, float)
    share = None if wanted["dev"] else spec.dev if isinstance(spec.dev, float) else HOLD_OUT
    formats = () if spec.hub or "train" not in splits else _formats(spec, recipe)
    return SourcedTask(task, splits, share, given, spec.rows, goldless=spec.goldless, formats=formats)


def _formats(spec: TaskSpec, recipe: Recipe) -> tuple[str, ...]:
    """Return the formats of the files of train."""
    names = spec.unlabelled if spec.goldless else spec.train
    return tuple(sorted({file.format for file in _files(names, spec, recipe.roots())}))


def _unlabelled(spec: TaskSpec, recipe: Recipe) -> tuple[str, ...]:
    """Name the files of texts that only teachers label; none where the student takes no share of them."""
    return spec.unlabelled if recipe.teachers and recipe.student.unlabelled != 0 else ()


def _files(names: Sequence[str], spec: TaskSpec, roots: Sequence[Path]) -> list[File]:
    """Find files that are to be read as their task says."""
    return find_files(names, roots, spec.encoding, spec.separator)


def _source(names: tuple[str, ...], task: Task, spec: TaskSpec, recipe: Recipe, gold_optional: bool) -> Source:
    """Take the rows of files, or of splits of a hub dataset."""
    if spec.hub is None:
        return from_files(_files(names, spec, recipe.roots()), task, gold_optional, spec.decimal)
    from understill.data.hub import from_hub

    local = recipe.find(spec.hub.dataset)
    where = spec.hub.model_copy(update={"dataset": str(local)}) if local.is_dir() else spec.hub
    return from_hub(where, names, task, gold_optional)


def read_column(recipe: Recipe, data: TaskData, column: str) -> list[str | None] | None:
    """Return what a further column of the user's files says of each row of a split; None where there is none such.

    Rows are joined by their texts; of several with the same texts, the last counts.
    """
    spec, task = recipe.tasks[data.task.name], data.task
    given = getattr(spec, data.split, ())
    names = given if isinstance(given, tuple) and given else spec.train
    files = [] if spec.hub or not spec.own else _files(names, spec, recipe.roots())
    if not files or any(column not in columns_of(file) for file in files):
        return None
    name, cells = id_maker(task.name), {}
    for file in files:
        for row in read_rows(file, [*task.text, column]):
            *texts, value = row.values if not row.fault else (None, None)
            if all(isinstance(text, str) for text in texts):
                cell = None if value is None else str(value).strip() or None
                cells[name([text.encode("utf-8", "replace") for text in texts])] = cell
    return [cells.get(row) for row in data.table()["id"].to_pylist()]


# Named tasks: the demo's and GLUE's ----------------------------------------------------------------------------------


def _named(name: str, spec: TaskSpec, recipe: Recipe) -> SourcedTask:
    """Plan a task that is known by name."""
    from understill.data import demo

    demo_data = recipe.data.demo if name in demo.TASKS else None
    glue = recipe.data.glue if name in GLUE else None
    fixed = ["dev", "test", "text", "label", "group", "labels", "range", "decimal"]
    if not (glue is not None and spec.kind and any(KINDS[spec.kind].recast(entry.task) for entry in GLUE.values())):
        fixed.append("kind")
    given = [key for key in fixed if getattr(spec, key)]
    if given and (demo_data or glue is not None):
        fix = "leave it out, or give train too, to make this a task of your own"
        raise BadFile(f"tasks.{name}.{given[0]}", f"{name} is a known task, which has its own {given[0]}", fix)
    if given:
        raise BadFile(f"tasks.{name}", "a task of your own needs train, text and label", "name its training file")
    if demo_data:
        task = demo.TASKS[name]
        splits = {split: from_demo(task, split, demo_data.rows, demo_data.seed) for split in ("train", "dev", "test")}
        if names := _unlabelled(spec, recipe):
            splits["unlabelled"] = from_texts(_files(names, spec, recipe.roots()), task)
        elif recipe.teachers and recipe.student.unlabelled:
            splits["unlabelled"] = from_demo(task, "unlabelled", demo_data.rows, demo_data.seed)
        return SourcedTask(_changed(task, spec), splits, rows=spec.rows)
    if glue is not None:
        return _glue(name, spec, recipe, glue)
    raise _unknown(name, recipe, demo.TASKS)


def _glue(name: str, spec: TaskSpec, recipe: Recipe, place: str) -> SourcedTask:
    folder = recipe.find(place)
    if not folder.is_dir():
        raise BadFile("data.glue", f"there is no folder {place}", "name the folder that holds CoLA, SST-2 and so on")
    task = GLUE[name].task
    if task.head != name and task.head not in recipe.tasks:
        raise BadFile(f"tasks.{name}", f"{name} is answered by the head of {task.head}", f"add {task.head} to tasks")
    if task.head != name and spec.unlabelled:
        fix = f"give these texts to {task.head}"
        raise BadFile(f"tasks.{name}.unlabelled", f"{name} is only scored, never trained on", fix)
    task = _changed(_recast(task, KINDS[spec.kind]) if spec.kind else task, spec)
    splits = glue_files.find(folder, name)
    for split in GLUE[name].counts:
        if split in ("train", "dev") and split not in splits:
            wanted = f"{GLUE[name].folder}/{split}.parquet or .tsv"
            raise BadFile(f"tasks.{name}", f"{folder} has no {split} data of {name}", f"put {wanted} there")
    if names := _unlabelled(spec, recipe):
        splits["unlabelled"] = glue_files.from_texts(_files(names, spec, (*recipe.roots(), folder)), task)
    share = recipe.data.dev if "train" in splits else None
    if share:  # what is chosen is chosen on rows of train, and GLUE's own dev set only reports
        splits[OFFICIAL] = splits.pop("dev")
    return SourcedTask(task, splits, share, rows=spec.rows, empty_text=True)


def _recast(task: Task, kind: Kind) -> Task:
    """Return a task of GLUE as one of another kind."""
    task_so = kind.recast(task)
    if task_so is None:
        can = [name for name, entry in GLUE.items() if kind.recast(entry.task)]
        what = f"{task.name} cannot be made a {kind} task{kind.recast_needs}"
        raise BadFile(f"tasks.{task.name}.kind", what, f"leave it out; {listed(can, 'and')} can")
    return task_so


def _changed(task: Task, spec: TaskSpec) -> Task:
    """Return a known task with what the recipe changes about it."""
    for metric in spec.metrics:
        if not may_score(metric, task.kind):
            fix = nearest(metric, metric_names(task.kind))
            raise BadFile(f"tasks.{task.name}.metrics", f'"{metric}" is no metric for {task.kind}', fix)
    symmetric = task.symmetric if spec.symmetric is None else spec.symmetric
    if symmetric and (not task.pair or task.kind.grouped):
        what = f"a {task.kind} task cannot be symmetric" if task.pair else "only a task with two texts can be symmetric"
        raise BadFile(f"tasks.{task.name}.symmetric", what, "leave it out")
    if spec.candidates and not task.kind.grouped:
        raise BadFile(f"tasks.{task.name}.candidates", f"{task.name} is no ranking task", "leave it out")
    return replace(task, metrics=spec.metrics or task.metrics, symmetric=symmetric)


def _unknown(name: str, recipe: Recipe, demos: dict[str, Task]) -> UserError:
    """Say what a name that leads nowhere probably means."""
    if name in GLUE:
        return BadFile(f"tasks.{name}", f"{name} is a GLUE task", "set data.glue to the folder that holds it")
    if name in demos:
        return BadFile(f"tasks.{name}", f"{name} is a task of the demo data", "set data.demo: true")
    there = [*(demos if recipe.data.demo else ()), *(GLUE if recipe.data.glue else ())] or [*demos, *GLUE]
    fix = f"give train, text and label for a task of your own, or use one of: {', '.join(there)}"
    return BadFile(f"tasks.{name}", f'there is no task "{name}"', nearest(name, there, fix))
