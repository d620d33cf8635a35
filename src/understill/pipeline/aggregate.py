"""Aggregation: what the runs of a study show together, over seeds, ablations and factors, with intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from understill.errors import UserError
from understill.evaluate.significance import Difference, Summary, factor_effects, summarise
from understill.events import Scores
from understill.pipeline.comparison import (
    MEAN,
    Comparison,
    Retention,
    averages,
    compare_pair,
    compare_sides,
    correct,
    plain,
    retention,
    score_side,
)
from understill.pipeline.record import BESIDE, FLOORS, Run
from understill.pipeline.sides import CLUSTERS, Side, kept_by, make_side

log = logging.getLogger(__name__)


class Delta(NamedTuple):
    """How far a variant is from the recipe as it is."""

    difference: Difference
    holm: float | None  # its p-value, corrected for all variants: means are one family, tasks another


@dataclass(frozen=True)
class Findings:
    """The findings of a study, for each task's primary metric and their mean."""

    seeds: Mapping[str, int]  # how many each variant has
    summaries: Mapping[str, Mapping[str, Mapping[str, Summary]]]  # by variant, column and task
    comparisons: tuple[Comparison, ...]  # of columns with each other, in the recipe as it is
    retention: Retention | None  # of the student
    deltas: Mapping[str, Mapping[str, Mapping[str, Delta]]]  # from the recipe as it is, by column, variant and task
    effects: Mapping[str, Mapping[str, Mapping[str, Difference]]]  # of factors, by column, task and effect

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        kinds = {"summaries": self.summaries, "deltas": self.deltas, "effects": self.effects}
        return {
            **{name: plain(values) for name, values in kinds.items()},
            "comparisons": [each.facts() for each in self.comparisons],
            "retention": plain(self.retention),
        }


def conclude(runs: Sequence[Run]) -> Findings:
    """Return the findings of a study from its runs, or of a single run."""
    variants: dict[str, list[Run]] = {}
    for run in runs:
        variants.setdefault(run.cell.variant if run.cell else "", []).append(run)
    first = next(iter(variants.values()))
    columns = list(first[0].columns)
    compared = [name for name in columns if name not in BESIDE or name == "finetuned"]
    factors = bool(runs[0].cell and runs[0].cell.levels)
    sides = {name: side_of(first, name) for name in columns if name not in FLOORS}
    pairs = [(sides[other], sides[one]) for one, other in pairs_of(columns)]
    return Findings(
        seeds={variant: len(mine) for variant, mine in variants.items()},
        summaries={variant: _summaries(mine, columns) for variant, mine in variants.items()},
        comparisons=tuple(compare_sides([pair for pair in pairs if set(pair[0].places) & set(pair[1].places)])),
        retention=_retention(sides, first[0].majority),
        deltas={} if factors or len(variants) == 1 else {name: _deltas(variants, name) for name in compared},
        effects={name: _effects(list(variants.values()), name) for name in compared} if factors else {},
    )


def _retention(sides: Mapping[str, Side], majority: Scores) -> Retention | None:
    student, teachers = sides.get("student"), sides.get("teachers")
    if not student or not teachers or not set(student.places) & set(teachers.places):
        return None
    return retention(student, teachers, sides.get("baseline"), majority)


def pairs_of(columns: Sequence[str]) -> list[tuple[str, str]]:
    """Name the columns that are compared within a run."""
    main = [name for name in columns if name not in BESIDE]
    pairs = [*((name, "baseline") for name in main), ("finetuned", "finetuned baseline")]
    pairs += [(name, "teachers") for name in main]
    return [pair for pair in pairs if set(pair) <= set(columns)]


def side_of(runs: Sequence[Run], column: str) -> Side:
    """Return the models of a column, with a seed for each run."""
    clusters = runs[0].study / CLUSTERS
    if column == "teachers":
        return make_side(column, [[(run.answers, run.teachers)] for run in runs if run.answers], clusters=clusters)
    seeds = [
        [(kept_by(model.folder), model.scores) for model in run.models if model.role in _roles(column)] for run in runs
    ]
    taught = () if column.endswith("baseline") else [run.answers for run in runs]
    return make_side(column, seeds, taught, clusters)


def _roles(column: str) -> tuple[str, ...]:
    """Name the roles of a column's models; what a recipe is made for may have other names in its variants."""
    return (column,) if column in BESIDE else ("student", "model")


# Figures --------------------------------------------------------------------------------------------------------------


def scores_of(run: Run, column: str) -> Scores:
    """Return the scores of a column; what a recipe is made for may have other names in its variants."""
    if column in BESIDE:
        return run.columns.get(column, {})
    return next((scores for name, scores in run.columns.items() if name not in BESIDE), {})


def apart(runs: Sequence[Run], column: str) -> list[Run]:
    """Return runs of which each has its own models in a column; one set of teachers, for instance, serves them all."""
    firsts: dict[Any, Run] = {}
    for run in runs:
        firsts.setdefault(_origin(run, column), run)
    return list(firsts.values())


def _origin(run: Run, column: str) -> Any:
    """Return what tells whose scores a column has."""
    roles = ("teacher",) if column == "teachers" else _roles(column)
    return tuple(model.folder for model in run.models if model.role in roles) or repr(scores_of(run, column))


def figures(runs: Sequence[Run], column: str, tasks: Iterable[str]) -> dict[str, list[float]]:
    """Return the first metric of some tasks and their mean, with a value for each run that has models of its own."""
    mine = apart(runs, column)
    rows = {name: [scores_of(run, column)[f"{name}/dev"][run.tasks[name].metrics[0]] for run in mine] for name in tasks}
    if len(rows) > 1:
        rows[MEAN] = [sum(values) / len(values) for values in zip(*rows.values(), strict=True)]
    return rows


def _tasks(runs: Sequence[Run], column: str) -> list[str]:
    """Name the tasks whose first metric all runs have; an error has no upper end and is left out."""
    return [
        name
        for name, task in runs[0].tasks.items()
        if averages(f"{name}/dev", task)
        and all(f"{name}/dev" in scores_of(run, column) for run in runs)
        and all(run.tasks[name].metrics[0] == task.metrics[0] for run in runs)
    ]


# Findings -------------------------------------------------------------------------------------------------------------


def _summaries(runs: Sequence[Run], columns: Sequence[str]) -> dict[str, dict[str, Summary]]:
    """Summarise the primary metric of each task, and their mean, by column."""
    summaries = {}
    for column in columns:
        values = figures(runs, column, _tasks(runs, column))
        summaries[column] = {row: summarise(each)._replace(interval=None) for row, each in values.items()}
        if values and column not in FLOORS:
            scored = score_side(side_of(runs, column))
            own = {row: scored.get(row if row == MEAN else f"{row}/dev") for row in values}
            summaries[column] |= {row: summary for row, summary in own.items() if summary}
    return summaries


def _deltas(variants: Mapping[str, Sequence[Run]], column: str) -> dict[str, dict[str, Delta]]:
    """Compare each variant with the recipe as it is, by tasks and first metrics that both have."""
    usual, *others = variants
    first, raw = side_of(variants[usual], column), {}
    for name in others:
        try:
            raw[name] = compare_pair(first, side_of(variants[name], column))
        except UserError as error:
            log.warning("%s is not compared with the unchanged recipe: %s", name, error)
    whole = _tasks(variants[usual], column)
    deltas: dict[str, dict[str, Delta]] = {name: {} for name in others}
    for name, comparison in zip(raw, correct(list(raw.values())), strict=True):
        own = _tasks(variants[name], column)
        before, after = variants[usual][0].tasks, variants[name][0].tasks
        theirs = [task for task in whole if task in own and before[task].metrics[0] == after[task].metrics[0]]
        # A mean of other tasks or metrics is not that beside it.
        rows = comparison.rows if theirs == whole == own else comparison.compared
        mine = {row.name: Delta(row.difference, row.p) for row in rows}
        deltas[name] = {row: mine[row] for row in (*theirs, MEAN) if row in mine}
    return deltas


def _effects(cells: Sequence[Sequence[Run]], column: str) -> dict[str, dict[str, Difference]]:
    levels = [dict(mine[0].cell.levels) for mine in cells if mine[0].cell]
    factors = {factor: list(dict.fromkeys(each[factor] for each in levels)) for factor in levels[0]}
    tasks = _tasks([run for mine in cells for run in mine], column)
    values_of = [figures(mine, column, tasks) for mine in cells]
    return {
        row: factor_effects(
            {tuple(each.values()): values[row] for each, values in zip(levels, values_of, strict=True)}, factors
        )
        for row in values_of[0]
    }
