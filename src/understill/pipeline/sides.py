"""Sides of a comparison: which models a name means, and what was kept of their answers to each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understill.atomic import refuse_damaged_file
from understill.errors import UserError, nearest
from understill.evaluate.metrics import Ints
from understill.evaluate.predict import KeptRows, kept_at, kept_task, read_kept
from understill.models.manifest import find_model
from understill.models.roles import RECORD
from understill.pipeline.record import own_cells, read_record
from understill.tasks import Task

#: The folder of a run folder that says which rows of a dev set are drawn together.
CLUSTERS = "clusters"
#: Where the predictions of one model are kept, and its scores by dev set.
Answers = tuple[Path, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its models, one for each seed, and the files of their predictions."""

    name: str
    places: Mapping[str, tuple[Path, ...]]  # by dev set, each file once
    metrics: Mapping[str, tuple[str, ...]]  # by dev set, as it was scored
    seeds: tuple[Mapping[str, Path], ...]  # by dev set, the file of each seed; seeds may share one
    mixed: bool = False  # whether some of these are different models with one role, and not seeds of one model
    taught_alike: bool = False  # whether all its seeds learnt from one set of teachers
    clusters: Path | None = None  # the folder that says which rows are drawn together

    def places_of(self, places: Sequence[str]) -> list[list[int]]:
        """Return, for each seed that differs from the others, the place of its file among those of each dev set."""
        rows = dict.fromkeys(tuple(seed[place] for place in places) for seed in self.seeds)
        return [[self.places[place].index(file) for place, file in zip(places, row, strict=True)] for row in rows]


# Names ----------------------------------------------------------------------------------------------------------------


def find_side(name: str) -> Side:
    """Return the models meant by a name: a run folder, a part or a variant of it, or a model folder."""
    path, part = Path(name), ""
    if not path.exists() and ":" in name:
        before, part = name.rsplit(":", 1)
        path = Path(before)
    if (path / RECORD).is_file():
        return _of_run(name, path, part)
    if part:
        raise UserError(f"{path}: no {RECORD} here, so it has no {part} → name a run folder before the colon")
    return make_side(name, [[_facts_of(find_model(path))]])


def _of_run(name: str, path: Path, part: str) -> Side:
    """Find the models of a role in a run, in all seeds of the recipe or of a variant; teachers are an ensemble."""
    record = read_record(path)
    cells, variants = own_cells(record), {cell["variant"] for cell in record["cells"]}
    variant, _, own_part = part.partition("/")
    if len(variants) > 1 and variant in variants:
        cells, part = [cell for cell in record["cells"] if cell["variant"] == variant], own_part
    models = cells[0]["models"]
    roles = list(dict.fromkeys(model["role"] for model in models.values()))
    wanted = part or ("student" if "student" in roles else "model")
    answers = [path / cell["answers"] if cell.get("answers") else None for cell in cells]
    if wanted == "teachers":
        seeds = [[(kept, cell["teachers"])] for kept, cell in zip(answers, cells, strict=True) if kept]
    else:
        parts = [
            [model for title, model in cell["models"].items() if wanted in (model["role"], title)] for cell in cells
        ]
        seeds = [[(kept_by(path / model["folder"]), model["scores"]) for model in mine] for mine in parts]
    if not any(seeds):
        known = {*roles, *models, *(variants if len(variants) > 1 else ())}
        known |= {"teachers"} if answers[0] else set()
        raise UserError(f'{path} has no "{wanted}"; {nearest(wanted, known)}')
    return make_side(name, seeds, [] if wanted in ("teachers", "baseline") else answers, path / CLUSTERS)


def kept_by(folder: Path) -> Path:
    """Return where the predictions of a model folder are kept."""
    return folder.resolve().parent / "predictions"


def _facts_of(folder: Path) -> Answers:
    """Return where the predictions of a model that is named by its folder are kept, and its scores."""
    try:
        refuse_damaged_file(folder / "scores.json", "run the recipe again")
        scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{folder}: no scores.json here that can be read → name the run that made the model") from None
    return kept_by(folder), scores


def make_side(
    name: str,
    seeds: Sequence[Sequence[Answers]],
    teachers: Iterable[Path | None] = (),
    clusters: Path | None = None,
) -> Side:
    """Gather the predictions of each seed's models; a model that seeds share counts once.

    `teachers` names what each seed learnt from, so that seeds with the same teachers are known.
    """
    places: dict[str, dict[Path, None]] = {}
    metrics: dict[str, tuple[str, ...]] = {}
    mixed, by_seed = False, []
    for models in seeds:
        here: dict[str, Path] = {}
        for kept, scored in models:
            for place, scores in scored.items():
                file = kept_at(kept, place)
                if not file.is_file():
                    what = f"{file}: the predictions of {name} were not kept"
                    raise UserError(f"{what} → name the run that made the model")
                places.setdefault(place, {})[file] = None
                metrics[place] = tuple(scores)
                mixed |= here.setdefault(place, file) != file
        by_seed.append(here)
    taught = [each for each in teachers if each is not None]
    return Side(
        name,
        {place: tuple(files) for place, files in places.items()},
        metrics,
        tuple(by_seed),
        mixed,
        taught_alike=len(by_seed) > 1 and len(set(taught)) == 1,
        clusters=clusters if clusters and clusters.is_dir() else None,
    )


# Rows -----------------------------------------------------------------------------------------------------------------


class JoinedRows(NamedTuple):
    """The answers of several sides to the rows of one dev set, in one order."""

    task: Task
    rows: tuple[tuple[KeptRows, ...], ...]  # by side, each file once
    clusters: Ints | None


def read_sides(place: str, sides: Sequence[Side]) -> JoinedRows:
    """Read the answers of sides to a dev set; rows that some side does not answer have no gold, and do not count."""
    first = sides[0]
    task = kept_task(first.places[place][0], first.metrics[place])
    for side in sides:
        if strange := {kept_task(file, task.metrics).kind for file in side.places[place]} - {task.kind}:
            raise UserError(f"{place}: a {task.kind} task for {first.name}, a {strange.pop()} task for {side.name}")
    files = [(side.name, file) for side in sides for file in side.places[place]]
    aligned = _answered(_aligned(place, [name for name, _ in files], [read_kept(file, task) for _, file in files]))
    rows = iter(aligned)
    by_side = tuple(tuple(next(rows) for _ in side.places[place]) for side in sides)
    folder = next((side.clusters for side in sides if side.clusters), None)
    return JoinedRows(task, by_side, _clusters(folder, place, aligned[0]) if folder else None)


def _answered(rows: Sequence[KeptRows]) -> list[KeptRows]:
    """Drop the gold of rows that some side has no prediction for, as teachers may, so that they do not count."""
    gold = np.sum([each.settled for each in rows], axis=0)  # NaN where any of them is NaN
    return [replace(each, gold=np.where(np.isnan(gold), np.nan, each.gold)) for each in rows]


def _aligned(place: str, names: Sequence[str], rows: Sequence[KeptRows]) -> list[KeptRows]:
    """Put the rows of all models into one order, by id and gold, since equal texts have equal ids."""
    ordered = [each.take(np.lexsort((*each.gold.reshape(len(each.ids), -1).T, each.ids))) for each in rows]
    one, first, fix = names[0], ordered[0], "evaluate both on the same data"
    for other, second in zip(names[1:], ordered[1:], strict=True):
        if not np.array_equal(first.ids, second.ids):
            apart = len(set(first.ids.tolist()) ^ set(second.ids.tolist()))
            what = f"{apart:,} rows are in one only" if apart else "some rows are there more often in one"
            raise UserError(f"{place}: the dev sets of {one} and {other} differ: {what} → {fix}")
        if not np.array_equal(first.gold, second.gold, equal_nan=True):
            raise UserError(f"{place}: {one} and {other} have different labels for the same rows → {fix}")
    return ordered


# Clusters -------------------------------------------------------------------------------------------------------------


def save_clusters(folder: Path, place: str, ids: Any, names: Sequence[str | None]) -> None:
    """Keep which rows of a dev set are drawn together; a row without a name is drawn by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "cluster": pa.array(names, pa.string())}), kept_at(folder, place))


def _clusters(folder: Path, place: str, rows: KeptRows) -> Ints | None:
    """Number the clusters of rows; None where the dev set has none."""
    file = kept_at(folder, place)
    if not file.is_file():
        return None
    refuse_damaged_file(file, "run the recipe again")
    table = pq.read_table(file)
    names = dict(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True))
    own = [names.get(each) for each in rows.ids.tolist()]
    number = {name: place for place, name in enumerate(dict.fromkeys(own))}
    return np.asarray(
        [len(own) + row if name is None else number[name] for row, name in enumerate(own)], dtype=np.int64
    )
