"""How far the tests of scores can be trusted: coverage, false positives and power by simulation; and their seconds.

python benchmarks/significance.py [--trials 1000] [--seeds 1 2 3 5 10] [--rows 100 1000 5000]
python benchmarks/significance.py --tables docs/results/significance.json
python benchmarks/significance.py --time
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from understill.evaluate.bootstrap import Resampled, resample
from understill.evaluate.metrics import Array
from understill.evaluate.uncertainty import SeedScores, difference, mean_of_tasks
from understill.tasks import GLUE, KINDS, Task

CLASSES = Task("classes", "classification", ("text",), "label", ("no", "yes"), metrics=KINDS["classification"].metrics)
SCORES = Task("scores", "regression", ("a", "b"), "label", range=(0.0, 5.0), metrics=KINDS["regression"].metrics)
TASKS = {metric: CLASSES for metric in ("accuracy", "f1", "matthews")} | {m: SCORES for m in ("pearson", "spearman")}
#: How far seeds differ, in units of a row's difficulty: hardly, and so much that it outweighs what rows do.
LUCKS = (0.05, 0.3)
#: How much better the second side is where power is measured.
SHIFT = 0.25
#: Fewer than in use, so a little against the tests: a variance by 200 resamples is 10 % off.
RESAMPLES = 200
#: How many rows are of the positive class.
RATE = 0.6
#: Of eight tasks.
MEAN = "mean"


def world(
    rng: np.random.Generator, task: Task, rows: int, seeds: int, luck: float, shifts: Sequence[float]
) -> tuple[Array, list[Array]]:
    """Return gold and the answers of sides, [seeds, rows] each: rows are hard for all, for a side, and for a seed."""
    hard = rng.normal(size=rows)
    sides = []
    if task is CLASSES:
        gold = (rng.random(rows) < RATE).astype(np.float64)
        for shift in shifts:
            own = (
                0.5 * rng.normal(size=rows) + 0.7 * rng.normal(size=(seeds, rows)) + luck * rng.normal(size=(seeds, 1))
            )
            sides.append(np.where(1.2 + shift + hard + own > 0, gold, 1 - gold))
        return gold, sides
    gold = rng.normal(size=rows)
    for shift in shifts:
        noise = 0.5 * hard + 0.3 * rng.normal(size=rows) + 0.4 * rng.normal(size=(seeds, rows))
        sides.append(gold + (1 - shift / 2) * np.exp(luck * rng.normal(size=(seeds, 1))) * noise)
    return gold, sides


def true_score(metric: str, luck: float) -> float:
    """Return the score that a side has over all rows and seeds there are, by Gauss-Hermite quadrature over luck."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    if TASKS[metric] is CLASSES:
        scores = _of_classes(metric, stats.norm.cdf((1.2 + luck * nodes) / (1 + 0.5**2 + 0.7**2) ** 0.5))
    else:
        scores = 1 / np.sqrt(1 + (0.5**2 + 0.3**2 + 0.4**2) * np.exp(2 * luck * nodes))
        scores = 6 / np.pi * np.arcsin(scores / 2) if metric == "spearman" else scores
    return float(scores @ weights / weights.sum())


def _of_classes(metric: str, right: Array) -> Array:
    """Return what a metric is where so many of all rows are right, of either class alike."""
    both, answered = RATE * right, RATE * right + (1 - RATE) * (1 - right)
    spread = np.sqrt(RATE * (1 - RATE) * answered * (1 - answered))
    f1, matthews = 2 * both / (RATE + answered), (both - RATE * answered) / spread
    return {"accuracy": right, "f1": f1, "matthews": matthews}[metric]


Sides = list[SeedScores]


def simulate(rng: np.random.Generator, metric: str, rows: int, seeds: int, luck: float, shift: float) -> Resampled:
    """Simulate two sides that do not differ and one that is better, and resample them together."""
    gold, sides = world(rng, TASKS[metric], rows, seeds, luck, [0.0, 0.0, shift])
    options = {"metric": metric, "resamples": RESAMPLES, "seed": int(rng.integers(1 << 30))}
    # Each row is a cluster: so many models agree on hardly any, and looking for those that do takes longest.
    return resample(TASKS[metric], gold, np.concatenate(sides), clusters=np.arange(rows), **options)


def outcomes(sides: Sides, truth: float, discordant: int) -> tuple[float, ...]:
    """Tell whether the first side's interval holds the truth, and whether it differs from each of the two others."""
    first, alike, better = sides
    low, high = first.interval()
    ps = [difference(other, first, discordant).p or 0.0 for other in (alike, better)]
    # Scores as they are, without variance by rows: Welch's t over seeds alone.
    bare = [SeedScores(side.scores, np.broadcast_to(side.scores[:, None], side.drawn.shape)) for side in (alike, first)]
    alone = first.count > 1 and (difference(*bare, discordant).p or 0.0) < 0.05
    return low <= truth <= high, ps[0] < 0.05, ps[1] < 0.05, alone


def tally(tasks: Sequence[tuple[str, int]], all_seeds: Sequence[int], luck: float, trials: int, draw: int = 0) -> Array:
    """Return shares in percent, [seeds, 4], of one task or of the mean of several, each a metric and its rows.

    A trial is simulated once, with the most seeds, and fewer seeds are the first of them.
    """
    entropy = [*(rows for _, rows in tasks), round(1000 * luck), *tasks[0][0].encode()]
    rng = np.random.default_rng(entropy if draw == 0 else [*entropy, draw])
    truth = float(np.mean([true_score(metric, luck) for metric, _ in tasks]))
    most, hits = max(all_seeds), np.zeros((len(all_seeds), 4))
    for _ in range(trials):
        results = [simulate(rng, metric, rows, most, luck, SHIFT / len(tasks) ** 0.5) for metric, rows in tasks]
        discordant = sum(each.discordant for each in results)
        for place, seeds in enumerate(all_seeds):
            sides = [mean_of_tasks([each.seeds(side * most, seeds) for each in results]) for side in range(3)]
            hits[place] += outcomes(sides, truth, discordant)
    return 100 * hits / trials


def settings(all_rows: Sequence[int], metrics: Sequence[str]) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
    """Yield name, rows of a task (0 of several) and tasks of what is tried."""
    yield from ((metric, rows, [(metric, rows)]) for metric in metrics if metric != MEAN for rows in all_rows)
    if MEAN in metrics:
        yield MEAN, 0, [(metric, rows) for metric in ("accuracy", "matthews", "f1", "pearson") for rows in (250, 1500)]


def show_trust(
    trials: int,
    all_seeds: Sequence[int],
    all_rows: Sequence[int],
    metrics: Sequence[str],
    lucks: Sequence[float] = (0.0, *LUCKS),
    draw: int = 0,
) -> list[Any]:
    """Print the shares of every setting, how far they are from what they should be, and return them."""
    error = 100 * (0.05 * 0.95 / trials) ** 0.5
    print(f"{trials:,} trials each; a share of 5 or 95 % has a standard error of {error:.1f}")
    print("coverage: of one side's score; false: p < 0.05 without a difference; power: with one;")
    print("t: false positives of Welch's t over seeds alone. One seed stands for itself, so there luck is 0.")
    print(f"{'metric':<12}{'luck':>6}{'rows':>7}{'seeds':>7}{'coverage':>10}{'false':>8}{'power':>8}{'t':>8}")
    lines: list[Any] = []
    for metric, rows, tasks in settings(all_rows, metrics):
        for luck in lucks:
            if tried := [seeds for seeds in all_seeds if (seeds == 1) == (luck == 0)]:
                for seeds, shares in zip(tried, tally(tasks, tried, luck, trials, draw).tolist(), strict=True):
                    lines.append([metric, luck, rows, seeds, trials, *(round(share, 2) for share in shares)])
                    print(f"{metric:<12}{luck:>6.2f}{rows or '':>7}{seeds:>7}{shares[0]:>10.1f}", end="")
                    print("".join(f"{share:>8.1f}" for share in shares[1:]), flush=True)
    show_extremes([line for line in lines if line[3] > 1])
    return lines


def show_extremes(lines: Sequence[Any]) -> None:
    """Print how far settings of several seeds are from what is asked: coverage of 93 to 97, at most 5.5 % false."""
    if lines:
        coverage, false = np.array([line[5:7] for line in lines]).T
        print(f"from two seeds on: coverage {coverage.min():.1f} to {coverage.max():.1f}, mean {coverage.mean():.1f},")
        print(f"outside of 93 to 97: {((coverage < 93) | (coverage > 97)).sum()} of {len(lines)};")
        print(f"false positives {false.min():.1f} to {false.max():.1f}, mean {false.mean():.1f},")
        print(f"above 5.5: {(false > 5.5).sum()} of {len(lines)}")


def tables(lines: Sequence[Any]) -> str:
    """Return the settings of several seeds as tables in Markdown, by seeds and by rows."""
    several = [line for line in lines if line[3] > 1]
    heads = {3: "seeds", 2: "rows of a task"}
    return "\n\n".join("\n".join(_table(several, column, head)) for column, head in heads.items()) + "\n"


def _table(lines: Sequence[Any], column: int, head: str) -> Iterator[str]:
    yield f"| {head} | settings | coverage | false positives | Welch's t over seeds alone | not 93 to 97 | above 5.5 |"
    yield "|---" * 7 + "|"
    for value in sorted({line[column] for line in lines}):
        chosen = np.array([line[5:9] for line in lines if line[column] == value])
        coverage, false, _, alone = chosen.T
        outside = int(((coverage < 93) | (coverage > 97)).sum())
        cells = [f"{value:,}" if value else "mean of eight", len(chosen), _spread(coverage), _spread(false)]
        cells += [f"{alone.min():.1f} to {alone.max():.1f}", outside, int((false > 5.5).sum())]
        yield f"| {' | '.join(map(str, cells))} |"


def _spread(shares: Array) -> str:
    return f"{shares.min():.1f} to {shares.max():.1f}, mean {shares.mean():.1f}"


def show_time(rows: int, resamples: int) -> None:
    """Print the seconds of each metric, for two models and for two of three seeds each."""
    rng = np.random.default_rng(0)
    print(f"{rows:,} rows, {resamples:,} resamples, one process")
    print(f"{'metric':<18}{'two models, s':>15}{'three seeds each, s':>21}")
    for task in (GLUE["mnli"].task, GLUE["stsb"].task):
        gold = np.round(rng.uniform(0, 5, rows), 1)
        predicted = gold + rng.normal(size=(6, rows))
        if task.labels:
            gold = rng.integers(0, len(task.labels), rows).astype(np.float64)
            guess = rng.integers(0, len(task.labels), (6, rows)).astype(np.float64)
            predicted = np.where(rng.random((6, rows)) < 0.8, gold, guess)
        for metric in task.kind.metrics:
            seconds = []
            for seeds in (1, 3):
                began = time.process_time()
                sides = predicted[:seeds], predicted[3 : 3 + seeds]
                resampled = resample(task, gold, np.concatenate(sides), metric=metric, resamples=resamples)
                difference(resampled.seeds(0, seeds), resampled.seeds(seeds, seeds), resampled.discordant)
                seconds.append(time.process_time() - began)
            print(f"{metric:<18}{seconds[0]:>15.2f}{seconds[1]:>21.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def main(arguments: list[str] | None = None) -> None:
    """Simulate, or measure the time."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true", help="20 trials of few settings")
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 5, 10])
    options.add_argument("--rows", type=int, nargs="+", default=[100, 1000, 5000])
    options.add_argument("--metrics", nargs="+", default=[*TASKS, MEAN], choices=[*TASKS, MEAN])
    options.add_argument("--lucks", type=float, nargs="+", default=[0.0, *LUCKS], help="0 is for one seed")
    options.add_argument("--draw", type=int, default=0, help="others are fresh simulations")
    options.add_argument("--tables", type=Path, metavar="FILE", help="print the tables of docs/performance.md from it")
    options.add_argument("--json", type=Path, help="write the shares here, a line for each setting")
    options.add_argument("--time", action="store_true", help="measure the seconds of a set as large as MNLI's dev set")
    options.add_argument("--resamples", type=int, default=10_000, help="with --time")
    asked = options.parse_args(arguments)
    if asked.time:
        show_time(1000 if asked.small else 9815, asked.resamples)
        return
    if asked.tables:
        print(tables(json.loads(asked.tables.read_text(encoding="utf-8"))["settings"]), end="")
        return
    few = (20, [1, 3], [100]) if asked.small else (asked.trials, asked.seeds, asked.rows)
    lines = show_trust(*few, asked.metrics, asked.lucks, asked.draw)
    if asked.json:
        asked.json.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
