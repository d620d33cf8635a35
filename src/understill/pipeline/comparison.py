"""Comparison: significance tests of two finished runs or models, from the predictions kept of each row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from understill.atomic import refuse_damaged_file
from understill.errors import UserError, nearest
from understill.evaluate.agreement import counts_hits
from understill.evaluate.bootstrap import nested_bootstrap, paired_bootstrap
from understill.evaluate.metrics import score
from understill.evaluate.predict import KeptRows, kept_at, kept_task, read_kept
from understill.evaluate.significance import Difference, Summary, compare_seeds, holm, mcnemar, summarise
from understill.models.manifest import find_model
from understill.models.roles import RECORD
from understill.pipeline.record import own_cells, read_record
from understill.tasks import Task
from understill.tasks.metric import is_error

#: The corrected p-value below which a difference is claimed.
CLAIMED = 0.05

#: The sentence for the dev sets with each verdict, and for those without any difference.
SENTENCES = {
    1: "{second} is better than {first} on {}",
    -1: "{second} is worse than {first} on {}",
    0: "on {} the difference may be chance",
    None: "on {} there is no difference",
}


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its models, one for each seed, and the files of their predictions."""

    name: str
    places: Mapping[str, tuple[Path, ...]]  # by dev set, a file for each seed
    metrics: Mapping[str, tuple[str, ...]]  # by dev set, as it was scored
    mixed: bool = False  # whether some of these are different models with one role, and not seeds of one model


@dataclass(frozen=True)
class Compared:
    """One dev set on which two sides were compared by the primary metric of its task."""

    place: str
    metric: str
    first: Summary
    second: Summary
    difference: Difference  # second minus first, over rows, and over seeds too where there are several
    checks: tuple[Difference, ...]  # by other tests: McNemar of two accuracies, Mann-Whitney of several seeds each
    mixed: bool  # whether a side has different models, and not seeds of one model
    p: float | None  # of the difference, corrected for the number of comparisons

    @property
    def verdict(self) -> int:
        """1 where the second is significantly better, −1 where it is worse, 0 where neither is shown."""
        if self.p is None or self.p >= CLAIMED:
            return 0
        better = self.difference.delta > 0
        return 1 if better != is_error(self.metric) else -1

    @property
    def seeds(self) -> tuple[int, int]:
        """How many models each side has."""
        return len(self.first.values), len(self.second.values)

    @property
    def several(self) -> bool:
        """Whether both sides have several seeds, so that a claim extends to other seeds."""
        return not self.mixed and min(self.seeds) > 1


@dataclass(frozen=True)
class Comparison:
    """Two sides on all dev sets that both have."""

    first: str
    second: str
    compared: tuple[Compared, ...]

    @property
    def claim(self) -> str:
        """What may be claimed of A and B, and what may not, in plain words."""
        return self.claim_of("A", "B")

    @property
    def claims(self) -> bool:
        """Whether anything may be claimed at all."""
        return any(each.verdict for each in self.compared)

    def claim_of(self, first: str, second: str) -> str:
        """Return the claim in words, with the two sides under these names."""
        places: dict[int | None, list[str]] = {verdict: [] for verdict in SENTENCES}
        for each in self.compared:
            alike = each.difference.interval == (0.0, 0.0)
            places[None if alike else each.verdict].append(each.place.removesuffix("/dev"))
        sides = {"first": first, "second": second}
        whole = "; ".join(SENTENCES[key].format(", ".join(names), **sides) for key, names in places.items() if names)
        if not self.claims:
            return f"Nothing may be claimed: {whole}."
        if all(each.several for each in self.compared if each.verdict):
            scope = "This should hold for other seeds of the same recipes, and for other rows like these."
        else:
            scope = "This is about these very models, on other rows like these; other seeds may differ."
        return f"{whole[0].upper()}{whole[1:]}. {scope}"


def compare(names: Sequence[str]) -> list[Comparison]:
    """Compare runs or models, the later ones each with the first, on the dev sets that both have."""
    if len(names) < 2:
        raise UserError("there is nothing to compare it with → name two runs or models, or more")
    sides = [find_side(name) for name in names]
    return compare_sides([(sides[0], other) for other in sides[1:]])


def compare_sides(pairs: Sequence[tuple[Side, Side]]) -> list[Comparison]:
    """Compare the second of each pair with the first, with one Holm correction over all of them."""
    rows = [[_compare(place, first, second) for place in _common(first, second)] for first, second in pairs]
    corrected = iter(holm([each.difference.p for some in rows for each in some]))
    return [
        Comparison(first.name, second.name, tuple(replace(each, p=next(corrected)) for each in some))
        for (first, second), some in zip(pairs, rows, strict=True)
    ]


def _common(first: Side, second: Side) -> list[str]:
    both = [place for place in first.places if place in second.places]
    if not both:
        raise UserError(
            f"{first.name} and {second.name} have no dev set in common: {', '.join(first.places) or 'none'} "
            f"and {', '.join(second.places) or 'none'}"
        )
    return both


# Sides ----------------------------------------------------------------------------------------------------------------


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
    return _side(name, [[_facts_of(find_model(path))]])


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
    if wanted == "teachers":
        seeds = [[(path / cell["answers"], cell["teachers"])] for cell in cells if cell.get("answers")]
    else:
        parts = [
            [model for title, model in cell["models"].items() if wanted in (model["role"], title)] for cell in cells
        ]
        seeds = [[(_kept_by(path / model["folder"]), model["scores"]) for model in mine] for mine in parts]
    if not any(seeds):
        known = {*roles, *models, *(variants if len(variants) > 1 else ())}
        known |= {"teachers"} if cells[0].get("answers") else set()
        raise UserError(f'{path} has no "{wanted}"; {nearest(wanted, known)}')
    return _side(name, seeds)


def _kept_by(folder: Path) -> Path:
    """Return where the predictions of a model folder are kept."""
    return folder.resolve().parent / "predictions"


def _facts_of(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return where the predictions of a model that is named by its folder are kept, and its scores."""
    try:
        refuse_damaged_file(folder / "scores.json", "run the recipe again")
        scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"{folder}: no scores.json here that can be read → name the run that made the model") from None
    return _kept_by(folder), scores


def _side(name: str, seeds: Sequence[Sequence[tuple[Path, Mapping[str, Any]]]]) -> Side:
    """Gather the predictions of each seed's models; a model that seeds share counts once."""
    places: dict[str, dict[Path, None]] = {}
    metrics: dict[str, tuple[str, ...]] = {}
    mixed = False
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
    return Side(name, {place: tuple(files) for place, files in places.items()}, metrics, mixed)


# Rows -----------------------------------------------------------------------------------------------------------------


def _compare(place: str, first: Side, second: Side) -> Compared:
    task = kept_task(first.places[place][0], first.metrics[place])
    for side in (first, second):
        if strange := {kept_task(file, task.metrics).kind for file in side.places[place]} - {task.kind}:
            raise UserError(f"{place}: a {task.kind} task for {first.name}, a {strange.pop()} task for {side.name}")
    rows = [[read_kept(file, task) for file in side.places[place]] for side in (first, second)]
    names = [first.name] * len(rows[0]) + [second.name] * len(rows[1])
    aligned = _answered(_aligned(place, names, [*rows[0], *rows[1]]))
    ones, others = aligned[: len(rows[0])], aligned[len(rows[0]) :]
    gold, groups = aligned[0].gold, aligned[0].groups
    before, after = (np.stack([each.predictions.values for each in side]) for side in (ones, others))
    one, other = (summarise(_scores(task, side)) for side in (ones, others))
    checks = []
    if len(ones) == len(others) == 1:
        difference = paired_bootstrap(task, gold, after[0], before[0], groups)
        if counts_hits(task):
            known = ~np.isnan(gold)
            checks.append(mcnemar((after[0] == gold)[known], (before[0] == gold)[known]))
    else:
        difference = nested_bootstrap(task, gold, after, before, groups)
        if min(len(ones), len(others)) > 1:
            checks.append(compare_seeds(other.values, one.values))
    mixed = first.mixed or second.mixed
    return Compared(place, task.metrics[0], one, other, difference, tuple(checks), mixed, None)


def _answered(rows: Sequence[KeptRows]) -> list[KeptRows]:
    """Drop the gold of rows that some side has no prediction for, as teachers may, so that they do not count."""
    gold = np.sum([each.settled for each in rows], axis=0)  # NaN where any of them is NaN
    return [replace(each, gold=np.where(np.isnan(gold), np.nan, each.gold)) for each in rows]


def _scores(task: Task, rows: Sequence[KeptRows]) -> list[float]:
    return [score(task, each.gold, each.predictions.values, each.groups)[task.metrics[0]] for each in rows]


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
