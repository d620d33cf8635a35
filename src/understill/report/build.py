"""Build: the facts of a report, from the record of a run and the answers that were kept of every row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understill.atomic import refuse_damage
from understill.data.load import LoadedTask
from understill.data.resolve import read_column
from understill.errors import UserError
from understill.evaluate.agreement import interval_of
from understill.evaluate.metrics import score
from understill.evaluate.predict import KeptRows, read_kept
from understill.evaluate.significance import Summary, summarise
from understill.events import Watch, silent
from understill.models.roles import RECORD
from understill.pipeline.aggregate import pairs_of
from understill.pipeline.comparison import MEAN, Retention, compare_sides, retention, score_side
from understill.pipeline.recipe_data import read_labelled
from understill.pipeline.record import PROBE, ROLES, own_cells, read_record
from understill.pipeline.sides import Side, find_side, read_sides
from understill.recipe import Recipe
from understill.report.dev_sets import DevAnswers, place_facts
from understill.report.facts import Curve, Facts, Place, ScoreRow
from understill.report.timing import measure_models
from understill.tasks import Task
from understill.tasks.metric import is_error

#: Models whose training is drawn, one colour each; λ has the last one.
CURVES = 5


def build(folder: Path, recipe: Recipe, *, by: str | None = None, timing: bool = True, watch: Watch = silent) -> Facts:
    """Gather the facts of a finished run; `by` slices rows by a column of the user's files too."""
    record = read_record(folder)
    if "made_with" not in record:
        raise UserError(f"{folder}: an earlier version made this run → run its recipe again; what is trained is kept")
    cells = own_cells(record)
    loaded = read_labelled(recipe, watch)
    sides = _sides(folder, cells[0])
    main = _main(sides)
    places = [place for place in sides[main].places if place.split("/")[0] in loaded]
    kept = {place: _kept(place, sides, loaded) for place in places}
    tasks = {place: loaded[place.split("/")[0]].task for place in places}
    pairs = [(sides[other], sides[one]) for one, other in pairs_of(list(sides))]
    models, floors = _models(folder, cells[0]), _floors(cells[0])
    return Facts(
        name=folder.resolve().name,
        folder=str(folder),
        recipe=recipe,
        started=record["started"],
        finished=record["finished"],
        made_with=record["made_with"],
        training_seconds=_training_seconds(record),
        tasks={name: each.task for name, each in loaded.items()},
        train_rows={name: each.splits["train"].rows for name, each in loaded.items() if "train" in each.splits},
        seeds=len(cells),
        runs=len(record["cells"]),
        main=main,
        columns=(*floors, *sides),
        aid=cells[0]["aid"],
        scores=tuple(_scores(places, tasks, sides, floors)),
        means=_means(sides),
        versus=tuple(compare_sides([pair for pair in pairs if set(pair[0].places) & set(pair[1].places)])),
        retention=_retention(sides, main, cells[0]["majority"]),
        tried=_tried(folder, record),
        timing=measure_models(models, loaded, recipe) if timing else None,
        curves=tuple(_curve(name, model, tasks) for name, model in _drawn(models).items()),
        findings=record.get("findings", {}),
        places=tuple(_places(places, loaded, kept, main, recipe, by)),
        asked=record.get("asked", {}),
    )


# Columns --------------------------------------------------------------------------------------------------------------


def _sides(folder: Path, cell: Mapping[str, Any]) -> dict[str, Side]:
    """Return who was scored, by column, in the order of tables."""
    roles = {model["role"] for model in cell["models"].values()}
    parts = [*(["teachers"] if cell["answers"] else []), *(role for role in ROLES if role in roles)]
    single = [name for name, model in cell["models"].items() if model["role"] == "model"]
    names = {"model": single[0] if len(single) == 1 else "single-task"}
    return {names.get(part, part): replace(find_side(f"{folder}:{part}"), name=names.get(part, part)) for part in parts}


def _floors(cell: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the scores of majority guess and linear probe, by column; earlier versions kept the first alone."""
    probe = cell.get("probe")
    return {"majority": cell["majority"], **({PROBE: probe} if probe else {})}


def _main(sides: Mapping[str, Side]) -> str:
    """Name the column of the student or, without teachers, of the main model."""
    return "student" if "student" in sides else next(name for name in sides if name not in ("teachers", "baseline"))


def _kept(place: str, sides: Mapping[str, Side], loaded: Mapping[str, LoadedTask]) -> dict[str, list[KeptRows]]:
    """Read the predictions for a dev set, by column, each seed's rows in the order of the data."""
    name, split = place.split("/")
    task, data = loaded[name].task, loaded[name].splits.get(split)
    ids = np.asarray([] if data is None else data.table()["id"].to_pylist(), dtype=np.str_)
    kept = {}
    for column, side in sides.items():
        if place in side.places:
            kept[column] = [read_kept(file, task) for file in side.places[place]]
            if not all(np.array_equal(each.ids, ids) for each in kept[column]):
                raise UserError(f"{place}: the data has changed since the run → run the recipe again")
    return kept


# Scores ---------------------------------------------------------------------------------------------------------------


def _scores(
    places: Sequence[str],
    tasks: Mapping[str, Task],
    sides: Mapping[str, Side],
    floors: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> Iterable[ScoreRow]:
    for place in places:
        task = tasks[place]
        measured = {column: _column_scores(place, side) for column, side in sides.items() if place in side.places}
        for metric in task.metrics:
            scores = {column: own[metric] for column, own in measured.items() if metric in own}
            below = {
                name: summarise([own[place][metric]]) for name, own in floors.items() if metric in own.get(place, {})
            }
            yield ScoreRow(place, metric, {**below, **scores})


def _column_scores(place: str, side: Side) -> dict[str, Summary]:
    """Score the seeds of a column by all metrics, with intervals over rows and seeds."""
    task, (rows,), clusters = read_sides(place, [side])
    by_seed = [score(task, each.gold, each.predictions.values, each.groups) for each in rows]
    if not by_seed[0]:
        return {}
    values, (first, *_) = np.stack([each.predictions.values for each in rows]), rows
    scores = {}
    for metric in task.metrics:
        interval = interval_of(replace(task, metrics=(metric,)), first.gold, values, first.groups, clusters)
        scores[metric] = summarise([each[metric] for each in by_seed])._replace(interval=interval)
    return scores


def _means(sides: Mapping[str, Side]) -> dict[str, Summary]:
    """Return the mean over tasks of each column that has several, with its interval."""
    scored = {column: score_side(side) for column, side in sides.items()}
    return {column: scores[MEAN] for column, scores in scored.items() if MEAN in scores}


def _retention(sides: Mapping[str, Side], main: str, majority: Mapping[str, Any]) -> Retention | None:
    teachers = sides.get("teachers")
    if not teachers or not set(teachers.places) & set(sides[main].places):
        return None
    return retention(sides[main], teachers, sides.get("baseline"), majority)


def _tried(folder: Path, record: Mapping[str, Any]) -> int:
    """Count the other models beside this run that were scored on its dev sets: so many settings were tried."""
    own = set(record["uses"])
    places = {place for model in record["models"].values() for place in model["scores"]}
    tried = set()
    for other in folder.resolve().parent.glob(f"*/{RECORD}"):
        try:
            cells = read_record(other.parent)["cells"]
        except UserError:
            continue  # one that is not finished
        for model in (model for cell in cells for model in cell["models"].values()):
            name = Path(model["folder"]).parent.name
            if model["role"] != "teacher" and name not in own and places & set(model["scores"]):
                tried.add(name)
    return len(tried)


# Training -------------------------------------------------------------------------------------------------------------


def _models(folder: Path, cell: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the models of a run with their folders, the student or main model first and teachers last."""
    order = ("student", "model", "finetuned", "baseline", "finetuned baseline", "teacher")
    models = sorted(cell["models"].items(), key=lambda item: order.index(item[1]["role"]))
    return {name: {**model, "folder": (folder / model["folder"]).resolve()} for name, model in models}


def _training_seconds(record: Mapping[str, Any]) -> float:
    """Return the seconds that all models of a study took, each counted once."""
    times = {model["folder"]: model["seconds"] for cell in record["cells"] for model in cell["models"].values()}
    return float(sum(times.values()))


def _drawn(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Choose the models whose training is drawn: one of each role first, as far as there are colours."""
    seen: dict[str, int] = {}
    turn = {}
    for name, model in models.items():
        turn[name] = seen[model["role"]] = seen.get(model["role"], -1) + 1
    chosen = sorted(models, key=lambda name: turn[name])[:CURVES]
    return {name: models[name] for name in models if name in chosen}


def _curve(name: str, model: Mapping[str, Any], tasks: Mapping[str, Task]) -> Curve:
    """Read the training curve of a model; errors take no part in its scores, as in every mean. Tasks are by place."""
    home = model["folder"].parent
    refuse_damage(home, ("done.json", "log.jsonl"), "run the recipe again")
    try:
        facts = json.loads((home / "done.json").read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (home / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        raise UserError(f"{home}: done.json or log.jsonl is gone or broken → copy the whole folder again") from None
    metrics = {place: task.metrics[0] for place, task in tasks.items() if not is_error(task.metrics[0])}
    shown = [
        (look, [each[metrics[place]] for place, each in look["scores"].items() if place in metrics])
        for look in facts["history"]
    ]
    return Curve(
        name=name,
        total=max((each["step"] for each in (*facts["history"], *lines)), default=0),
        losses=tuple((line["step"], line["loss"]) for line in lines),
        mixes=tuple((line["step"], line["lambda"]) for line in lines if "lambda" in line),
        looks=tuple((look["step"], float(np.mean(scores))) for look, scores in shown if scores),
    )


# Rows ---------------------------------------------------------------------------------------------------------------


def _places(
    places: Sequence[str],
    loaded: Mapping[str, LoadedTask],
    kept: Mapping[str, Mapping[str, Sequence[KeptRows]]],
    main: str,
    recipe: Recipe,
    by: str | None,
) -> Iterable[Place]:
    data = {place: loaded[name].splits[split] for place in places for name, split in [place.split("/")]}
    columns = {place: read_column(recipe, split, by) for place, split in data.items()} if by else {}
    if by and not any(column is not None for column in columns.values()):
        raise UserError(f"--by {by}: no dev set comes from files of yours with such a column → check its name")
    for place, split in data.items():
        firsts = {column: seeds[0] for column, seeds in kept[place].items()}
        yield place_facts(DevAnswers(place, split, firsts, main), by, columns.get(place))
