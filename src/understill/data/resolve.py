"""Find out what each task of a recipe is, and where its rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from understill.data import glue_files
from understill.data.check import BadRows, id_maker
from understill.data.files import BadFile, File, find_files, positions
from understill.data.ingest import SourcedTask
from understill.data.read import columns_of, read_rows
from understill.data.source import Source, from_demo, from_files, from_texts
from understill.data.taskdata import TaskData
from understill.errors import UserError, listed, nearest
from understill.recipe import Recipe
from understill.recipe.schema import TaskSpec
from understill.tasks import GLUE, KINDS, Kind, Task
from understill.tasks.metric import may_score, metric_names

#: The share of train that is held out where the user gives no dev data.
HOLD_OUT = 0.1
#: The split that GLUE's own dev set is where rows of train take its place.
OFFICIAL = "dev_official"


def decisive(recipe: Recipe) -> str:
    """Return all that decides what the data of a recipe is; recipes with the same have the same data."""
    unlabelled = recipe.student.unlabelled if recipe.teachers else 0
    return f"{recipe.model_dump_json(include={'data', 'tasks'})} {unlabelled} {recipe.roots()}"


def resolve(recipe: Recipe) -> list[SourcedTask]:
    """Find out what every task of the recipe is and where its rows are; all problems are raised together."""
    bad = BadRows()
    plans = []
    for name, spec in recipe.tasks.items():
        with bad.collecting():
            plans.append(_own(name, spec, recipe, bad) if spec.own else _named(name, spec, recipe))
    bad.raise_if_any()
    return plans


# The user's own tasks -------------------------------------------------------------------------------------------------


def _own(name: str, spec: TaskSpec, recipe: Recipe, bad: BadRows) -> SourcedTask:
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
            with bad.collecting():
                splits[split] = _source(names, task, spec, recipe, gold_optional=split == "test")
                if spec.cluster and split != "test" and not spec.hub:
                    for file in _files(names, spec, recipe.roots()):
                        positions(file, columns_of(file), [spec.cluster], ())
    if spec.goldless:
        with bad.collecting():
            splits["train"] = from_texts(_files(spec.unlabelled, spec, recipe.roots()), task)
    elif names := _unlabelled(spec, recipe):
        with bad.collecting():
            splits["unlabelled"] = from_texts(_files(names, spec, recipe.roots()), task)
    given = isinstance(spec.dev, float)
    share = None if wanted["dev"] else spec.dev if isinstance(spec.dev, float) else HOLD_OUT
    formats = _formats(spec, recipe) if "train" in splits else ()
    return SourcedTask(task, splits, share, given, spec.rows, goldless=spec.goldless, formats=formats)


def _formats(spec: TaskSpec, recipe: Recipe) -> tuple[str, ...]:
    """Return the formats of train: of its files, or hub."""
    if spec.hub:
        return ("hub",)
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
