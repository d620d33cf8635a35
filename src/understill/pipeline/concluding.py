"""Concluding: what the runs of a study show together, with how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from understill.evaluate.significance import (
    Difference,
    Summary,
    compare_seeds,
    factor_effects,
    holm,
    summarise,
)
from understill.pipeline.outcome import Run

#: The row that has the mean of all tasks.
MEAN = "mean"
#: What is compared between variants: what a recipe is made for, and what fine-tuning makes of it.
COMPARED = ("student", "finetuned")
#: What is compared within a run: one part played against another.
PAIRS = (("student", "baseline"), ("finetuned", "finetuned baseline"), ("student", "teachers"))


class Delta(NamedTuple):
    """How far a variant is from the recipe as it is."""

    difference: Difference
    holm: float | None  # its p-value, corrected for the number of variants


@dataclass(frozen=True)
class Findings:
    """What a study has found, of each task's first metric and of their mean."""

    seeds: Mapping[str, int]  # how many each variant has
    summaries: Mapping[str, Mapping[str, Mapping[str, Summary]]]  # by variant, column and task
    gains: Mapping[str, Mapping[str, Difference]]  # of one column over another, by task, in the recipe as it is
    deltas: Mapping[str, Mapping[str, Mapping[str, Delta]]]  # from the recipe as it is, by column, variant and task
    effects: Mapping[str, Mapping[str, Mapping[str, Difference]]]  # of factors, by column, task and effect

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        kinds = {"summaries": self.summaries, "gains": self.gains, "deltas": self.deltas, "effects": self.effects}
        return {name: _plain(found) for name, found in kinds.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def conclude(runs: Sequence[Run]) -> Findings:
    """Say what the runs of a study show."""
    variants: dict[str, list[Run]] = {}
    for run in runs:
        assert run.cell
        variants.setdefault(run.cell.variant, []).append(run)
    first = next(iter(variants.values()))
    names = [name for name in first[0].columns if name in compared(first[0])]
    summaries = {variant: _summaries(mine) for variant, mine in variants.items()}
    gains = {f"{one} − {other}": _differences(first, one, first, other) for one, other in _pairs(first[0])}
    factors = runs[0].cell.levels if runs[0].cell else {}
    deltas = {} if factors or len(variants) == 1 else {name: _deltas(variants, name) for name in names}
    effects = {name: _effects(list(variants.values()), name) for name in names} if factors else {}
    return Findings({variant: len(mine) for variant, mine in variants.items()}, summaries, gains, deltas, effects)


def compared(run: Run) -> list[str]:
    """Name the columns of a run that variants are compared by."""
    alone = [name for name in run.columns if name not in ("majority", "teachers", "baseline", "finetuned baseline")]
    return [name for name in alone if name in COMPARED] if any(name == "student" for name in alone) else alone


def _pairs(run: Run) -> list[tuple[str, str]]:
    pairs = [*PAIRS, *((name, "baseline") for name in compared(run) if name not in COMPARED)]
    return [(one, other) for one, other in pairs if one in run.columns and other in run.columns]


def figures(runs: Sequence[Run], column: str, tasks: Iterable[str]) -> dict[str, list[float]]:
    """Return the first metric of some tasks and their mean, with a value for each run that has models of its own."""
    found = {name: [_first(run, column, name) for run in apart(runs, column)] for name in tasks}
    if len(found) > 1:
        found[MEAN] = [sum(values) / len(found) for values in zip(*found.values(), strict=True)]
    return found


def apart(runs: Sequence[Run], column: str) -> list[Run]:
    """Return runs of which each has its own models in a column; one set of teachers, for instance, serves them all."""
    found: dict[Any, Run] = {}
    for run in runs:
        found.setdefault(_origin(run, column), run)
    return list(found.values())


def rows_of(runs: Iterable[Run], columns: Iterable[str]) -> list[str]:
    """Name the tasks whose first metric all runs have in all columns; an error has no upper end and is left out."""
    runs, columns = list(runs), list(columns)
    return [
        name
        for name, task in runs[0].tasks.items()
        if task.head == name
        and task.metrics[0] != "mse"
        and all(f"{name}/dev" in run.columns.get(column, {}) for run in runs for column in columns)
    ]


def _first(run: Run, column: str, task: str) -> float:
    return run.columns[column][f"{task}/dev"][run.tasks[task].metrics[0]]


def _origin(run: Run, column: str) -> Any:
    """Return what tells whose scores a column has."""
    role = {"single-task": "model", "teachers": "teacher"}.get(column, column)
    folders = tuple(model.folder for model in run.models if role in (model.role, model.name))
    return folders or repr(run.columns[column])


def _summaries(runs: Sequence[Run]) -> dict[str, dict[str, Summary]]:
    return {
        column: {row: summarise(values) for row, values in figures(runs, column, rows_of(runs, [column])).items()}
        for column in runs[0].columns
    }


def _differences(ones: Sequence[Run], one: str, others: Sequence[Run], other: str) -> dict[str, Difference]:
    """Compare a column of some runs with one of others, task by task."""
    tasks = [name for name in rows_of(ones, [one]) if name in rows_of(others, [other])]
    mine, theirs = figures(ones, one, tasks), figures(others, other, tasks)
    return {row: compare_seeds(mine[row], theirs[row]) for row in mine}


def _deltas(variants: Mapping[str, Sequence[Run]], column: str) -> dict[str, dict[str, Delta]]:
    usual, *others = variants
    found = {name: _differences(variants[name], column, variants[usual], column) for name in others}
    rows = dict.fromkeys(row for differences in found.values() for row in differences)
    corrected: dict[str, dict[str, float | None]] = {}
    for row in rows:
        there = [name for name in others if row in found[name]]
        corrected[row] = dict(zip(there, holm([found[name][row].p for name in there]), strict=True))
    return {
        name: {row: Delta(difference, corrected[row][name]) for row, difference in differences.items()}
        for name, differences in found.items()
    }


def _effects(cells: Sequence[Sequence[Run]], column: str) -> dict[str, dict[str, Difference]]:
    levels = [dict(mine[0].cell.levels) for mine in cells if mine[0].cell]
    factors = {factor: list(dict.fromkeys(each[factor] for each in levels)) for factor in levels[0]}
    tasks = rows_of([run for mine in cells for run in mine], [column])
    found = [figures(mine, column, tasks) for mine in cells]
    return {
        row: factor_effects(
            {tuple(each.values()): values[row] for each, values in zip(levels, found, strict=True)}, factors
        )
        for row in (found[0] if found else ())
    }
