"""The kept scores of runs: results.yaml, the files of docs/results, and what is computed from them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Container, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from understill.evaluate.metrics import Array
from understill.evaluate.significance import Difference, Interval, Summary, compare_seeds, summarise
from understill.evaluate.uncertainty import SeedSpread, weigh
from understill.numbers import fixed
from understill.recipe.yaml import read_yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
#: The eight tasks of every GLUE table, as they are named there; each by its first metric.
GLUE = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI-m",
    "qnli": "QNLI",
    "rte": "RTE",
}
NAMES = {**GLUE, "mean": "GLUE", "qqp.f1": "QQP F1", "mnli.mismatched": "MNLI-mm"}
#: Columns of a run that may be the same for all its seeds.
SHARED = ("majority", "linear probe", "teachers")


@cache
def plan() -> dict[str, Any]:
    """Return what is to be run and shown."""
    values: dict[str, Any] = read_yaml(Path(__file__).with_name("results.yaml"))[0]
    return values


@cache
def stored(name: str) -> dict[str, Any]:
    """Return the file of a run; empty where it is not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


# Runs -----------------------------------------------------------------------------------------------------------------


def seeds_asked(name: str) -> list[int]:
    """Return the seeds that a run is to have."""
    seeds = plan()["runs"][name]["seeds"]
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def seeds_measured(name: str) -> list[int]:
    """Return the seeds that a run has, by the column that has most."""
    columns = stored(name).get("scores", {}).values()
    return sorted({int(seed) for column in columns for seed in column} & set(seeds_asked(name)))


def seed_minutes(name: str) -> float:
    """Return the minutes of one seed: as measured, or as estimated before that."""
    minutes = stored(name).get("minutes", {}).values()
    return sum(minutes) / len(seeds_measured(name)) if minutes else float(plan()["runs"][name]["minutes"])


def settings(name: str, seeds: Sequence[int] = ()) -> list[str]:
    """Return what `--set` takes for a run; without seeds, what all of them share."""
    spec = plan()["runs"][name]
    given = {**plan()["protocol"], **spec.get("set", {}), **({"seeds": list(seeds)} if seeds else {})}
    return [f"{key}={flow(value)}" for key, value in given.items()]


def flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def command(name: str, seeds: Sequence[int]) -> str:
    """Return the command that measures some seeds of a run."""
    return shlex.join(words(name, seeds, "path/to/glue", ""))


def words(name: str, seeds: Sequence[int], glue: str, root: str) -> list[str]:
    """Return the words of that command."""
    recipe = Path(root, "recipes", f"{plan()['runs'][name]['recipe']}.yaml")
    sets = [f"name={name}", f"data.glue={glue}", *settings(name, seeds)]
    return ["understill", "run", str(recipe), "--no-report", *(word for each in sets for word in ("--set", each))]


# Scores ---------------------------------------------------------------------------------------------------------------


def scores(model: str, column: str = "mean") -> dict[int, float]:
    """Return a model's scores in percent, by seed: a task's first metric, `qqp.f1`, or the mean of eight tasks."""
    name, _, part = model.partition("/")
    kept = stored(name).get("scores", {}).get(part, {})
    values = {int(seed): _score(places, column) for seed, places in kept.items()}
    return {seed: 100 * value for seed, value in values.items() if value is not None}


def dev_set(task: str, places: Container[str]) -> str:
    """Name GLUE's own dev set: it has another name where weights were chosen on held-out rows of train."""
    return f"{task}/dev_official" if f"{task}/dev_official" in places else f"{task}/dev"


def _score(places: dict[str, dict[str, float]], column: str) -> float | None:
    if column == "mean":
        each = [_score(places, task) for task in GLUE]
        return None if None in each else fmean(value for value in each if value is not None)
    task, _, more = column.partition(".")
    split = "dev_mismatched" if more == "mismatched" else "dev"
    values = places.get(dev_set(task, places) if split == "dev" else f"{task}/{split}")
    if values is None:
        return None
    return values.get(more) if more and more != "mismatched" else next(iter(values.values()))


class RowVariance(NamedTuple):
    """How far means over seeds of some models vary by rows, in points squared."""

    covariance: Array  # [models, models]
    seed_by_row: Array  # [models]
    rows: float


def row_variance(models: Sequence[str], column: str) -> RowVariance | None:
    """Return what is kept in rows.json; None where it is not of all these models with all their seeds."""
    kept, tasks = stored("rows"), list(GLUE) if column == "mean" else [column]
    if not kept or any(kept["seeds"].get(model) != sorted(scores(model, column)) for model in models):
        return None
    each = [kept["tasks"].get(task) for task in tasks]
    if any(facts is None or not {*models} <= {*facts["models"]} for facts in each):
        return None
    places = [[facts["models"].index(model) for model in models] for facts in each]
    # Tasks are resampled by themselves, so the variance of their mean is the sum over the square of their number.
    covariance = [np.array(facts["covariance"])[np.ix_(at, at)] for facts, at in zip(each, places, strict=True)]
    by_both = [np.array(facts["seed_by_row"])[at] for facts, at in zip(each, places, strict=True)]
    share, rows = len(tasks) ** 2, sum(facts["rows"] for facts in each)
    return RowVariance(np.sum(covariance, axis=0) / share, np.sum(by_both, axis=0) / share, rows)


def _spread(values: Sequence[float], by_row: float) -> SeedSpread:
    return SeedSpread(float(np.var(values, ddof=1)) / len(values), by_row, len(values))


def summary(model: str, column: str = "mean") -> Summary | None:
    """Return a model's scores over seeds, summed up; None where there are none.

    The interval is over rows too where answers row by row are kept, else over seeds alone.
    """
    values = list(scores(model, column).values())
    if not values:
        return None
    result, kept = summarise(values), row_variance([model], column)
    if kept is None or len(values) < 2:
        return result
    spread = _spread(values, kept.seed_by_row[0])
    return result._replace(interval=spread.interval(result.mean, kept.covariance[0, 0], kept.rows))


def gain(model: str, against: str, column: str = "mean") -> Difference | None:
    """Compare two models over seeds, and rows where answers of both are kept; one seed with the other's same seed."""
    one, other = scores(model, column), scores(against, column)
    if len(one) == 1 and (shared := one.keys() & other.keys()):
        other = {seed: other[seed] for seed in shared}
    if not one or not other:
        return None
    sides = [list(one.values()), list(other.values())]
    result, kept = compare_seeds(*sides), row_variance([model, against], column)
    if kept is None or min(map(len, sides)) < 2:
        return result
    signs = np.array([1.0, -1.0])
    spreads = [(1.0, _spread(*each)) for each in zip(sides, kept.seed_by_row, strict=True)]
    tested = weigh(result.delta, np.empty(0), float(signs @ kept.covariance @ signs), kept.rows, spreads)
    far = tested.reach()
    return result._replace(interval=Interval(result.delta - far, result.delta + far), p=tested.p())


# Expressions ----------------------------------------------------------------------------------------------------------


def _each(model: str, against: str, column: str = "mean") -> str:
    """Write the gains of the seeds that both have, one by one."""
    one, other = scores(model, column), scores(against, column)
    gains = [fixed(one[seed] - other[seed], 1, "+") for seed in sorted(one.keys() & other.keys())]
    return " and ".join([", ".join(gains[:-1]), gains[-1]]) if len(gains) > 1 else gains[0]


def _needed(value: Any) -> Any:
    if value is None:
        raise LookupError("it is not measured")
    return value


#: What may stand in a marker, <!--= mean(bam/student; rte) -->68.5<!--/-->, and how it is written.
FUNCTIONS: dict[str, Callable[..., str]] = {
    "mean": lambda *of: fixed(_needed(summary(*of)).mean, 1),
    "median": lambda *of: fixed(_needed(summary(*of)).median, 1),
    "interval": lambda *of: "{} to {}".format(*(fixed(end, 1) for end in _needed(_needed(summary(*of)).interval))),
    "seeds": lambda model: str(len(scores(model, next(iter(_places(model)))))),
    "list": lambda *of: ", ".join(fixed(value, 1) for _, value in sorted(scores(*of).items())),
    "gain": lambda *of: fixed(_needed(gain(*of)).delta, 1, "+"),
    "ends": lambda *of: "{} to {}".format(*(fixed(end, 1, "+") for end in _needed(_needed(gain(*of)).interval))),
    "p": lambda *of: f"{_needed(_needed(gain(*of)).p):.2g}",
    "each": _each,
    "paper": lambda table, row: fixed(float(plan()["tables"][table]["paper"][row]), 1),
    "minutes": lambda name: fixed(sum(stored(name)["minutes"].values()), 1),
}


def _places(model: str) -> list[str]:
    name, _, part = model.partition("/")
    return [place.partition("/")[0] for place in next(iter(stored(name)["scores"][part].values()))]


def evaluate(expression: str) -> str:
    """Return what an expression of a page is, as it is written there."""
    match = re.fullmatch(r"(\w+)\((.*)\)", expression.strip())
    if not match or match[1] not in FUNCTIONS:
        raise ValueError(f"{expression}: write one of {', '.join(FUNCTIONS)}, as in mean(bam/student; rte)")
    try:
        return FUNCTIONS[match[1]](*(word.strip() for word in match[2].split(";")))
    except (LookupError, TypeError) as error:
        raise ValueError(f"{expression}: {error}") from None
