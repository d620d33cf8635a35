"""Aggregation: what the runs of a study show together, over seeds, ablations and factors, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from understill.evaluate.significance import Difference, Summary, compare_seeds, factor_effects, holm, summarise
from understill.events import Scores
from understill.pipeline.record import BESIDE, Run
from understill.tasks.metric import is_error

#: The row that has the mean of all tasks.
MEAN = "mean"


class Delta(NamedTuple):
    """How far a variant is from the recipe as it is."""

    difference: Difference
    holm: float | None  # its p-value, corrected for the number of variants


@dataclass(frozen=True)
class Findings:
    """The findings of a study, for each task's primary metric and their mean."""

    seeds: Mapping[str, int]  # how many each variant has
    summaries: Mapping[str, Mapping[str, Mapping[str, Summary]]]  # by variant, column and task
    gains: Mapping[str, Mapping[str, Difference]]  # of one column over another, by task, in the recipe as it is
    deltas: Mapping[str, Mapping[str, Mapping[str, Delta]]]  # from the recipe as it is, by column, variant and task
    effects: Mapping[str, Mapping[str, Mapping[str, Difference]]]  # of factors, by column, task and effect

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        kinds = {"summaries": self.summaries, "gains": self.gains, "deltas": self.deltas, "effects": self.effects}
        return {name: _plain(values) for name, values in kinds.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value


def conclude(runs: Sequence[Run]) -> Findings:
    """Return the findings of a study from its runs."""
    variants: dict[str, list[Run]] = {}
    for run in runs:
        variants.setdefault(run.cell.variant if run.cell else "", []).append(run)
    first = next(iter(variants.values()))
    columns = list(first[0].columns)
    compared = [name for name in columns if name not in BESIDE or name == "finetuned"]
    gains = {f"{one} − {other}": _differences(first, one, first, other) for one, other in pairs_of(columns)}
    factors = bool(runs[0].cell and runs[0].cell.levels)
    return Findings(
        seeds={variant: len(mine) for variant, mine in variants.items()},
        summaries={variant: _summaries(mine, columns) for variant, mine in variants.items()},
        gains={name: differences for name, differences in gains.items() if differences},
        deltas={} if factors or len(variants) == 1 else {name: _deltas(variants, name) for name in compared},
        effects={name: _effects(list(variants.values()), name) for name in compared} if factors else {},
    )


def pairs_of(columns: Sequence[str]) -> list[tuple[str, str]]:
    """Name the columns that are compared within a run."""
    main = [name for name in columns if name not in BESIDE]
    pairs = [*((name, "baseline") for name in main), ("finetuned", "finetuned baseline")]
    pairs += [(name, "teachers") for name in main]
    return [pair for pair in pairs if set(pair) <= set(columns)]


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
    role = "teacher" if column == "teachers" else column
    roles = (role,) if column in BESIDE else ("student", "model")
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
        if task.head == name
        and not is_error(task.metrics[0])
        and all(f"{name}/dev" in scores_of(run, column) for run in runs)
        and all(run.tasks[name].metrics[0] == task.metrics[0] for run in runs)
    ]


# Findings -------------------------------------------------------------------------------------------------------------


def _summaries(runs: Sequence[Run], columns: Sequence[str]) -> dict[str, dict[str, Summary]]:
    return {
        column: {row: summarise(values) for row, values in figures(runs, column, _tasks(runs, column)).items()}
        for column in columns
    }


def _differences(ones: Sequence[Run], one: str, others: Sequence[Run], other: str) -> dict[str, Difference]:
    """Compare a column of some runs with one of others, by the tasks and first metrics that both have."""
    theirs = {(name, others[0].tasks[name].metrics[0]) for name in _tasks(others, other)}
    tasks = [name for name in _tasks(ones, one) if (name, ones[0].tasks[name].metrics[0]) in theirs]
    mine, against = figures(ones, one, tasks), figures(others, other, tasks)
    return {row: compare_seeds(mine[row], against[row]) for row in mine}


def _deltas(variants: Mapping[str, Sequence[Run]], column: str) -> dict[str, dict[str, Delta]]:
    usual, *others = variants
    by_name = {name: _differences(variants[name], column, variants[usual], column) for name in others}
    for differences in by_name.values():
        if set(differences) - {MEAN} != set(_tasks(variants[usual], column)):
            differences.pop(MEAN, None)  # of other tasks than that beside it
    corrected: dict[str, dict[str, float | None]] = {}
    for row in dict.fromkeys(row for differences in by_name.values() for row in differences):
        there = [name for name in others if row in by_name[name]]
        corrected[row] = dict(zip(there, holm([by_name[name][row].p for name in there]), strict=True))
    return {
        name: {row: Delta(difference, corrected[row][name]) for row, difference in differences.items()}
        for name, differences in by_name.items()
    }


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
