"""How far the tests of scores can be trusted: coverage, false positives and power by simulation; and their seconds.

python benchmarks/significance.py [--trials 1000] [--seeds 1 2 3 5 10] [--rows 100 300 1000 5000]
python benchmarks/significance.py --time
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from understill.evaluate.bootstrap import Resampled, resample
from understill.evaluate.metrics import Array, score
from understill.evaluate.significance import compare_seeds
from understill.evaluate.uncertainty import difference, mean_of_tasks
from understill.tasks import GLUE, KINDS, Task

CLASSES = Task("classes", "classification", ("text",), "label", ("no", "yes"), metrics=KINDS["classification"].metrics)
SCORES = Task("scores", "regression", ("a", "b"), "label", range=(0.0, 5.0), metrics=KINDS["regression"].metrics)
TASKS = {metric: CLASSES for metric in ("accuracy", "f1", "matthews")} | {m: SCORES for m in ("pearson", "spearman")}
#: How far seeds differ, in units of a row's difficulty: hardly, and so much that it outweighs what rows do.
LUCKS = (0.05, 0.3)
#: How much better the second side is where power is measured.
SHIFT = 0.25
RESAMPLES = 400


def simulate(
    rng: np.random.Generator, task: Task, rows: int, seeds: int, luck: float, shifts: Sequence[float]
) -> tuple[Array, list[Array]]:
    """Return gold and the answers of sides, [seeds, rows] each: rows are hard for all, for a side, and for a seed."""
    hard = rng.normal(size=rows)
    sides = []
    if task is CLASSES:
        gold = (rng.random(rows) < 0.6).astype(np.float64)
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
    """Return the score that a side has over all rows and seeds there are."""
    rng, task = np.random.default_rng(99), TASKS[metric]
    worlds = [simulate(rng, task, 20_000, 25, luck, [0.0]) for _ in range(16)]
    return float(np.mean([score(task, gold, each)[metric] for gold, (side,) in worlds for each in side]))


def drawn(rng: np.random.Generator, metric: str, rows: int, seeds: int, luck: float, shift: float) -> Resampled:
    """Simulate two sides and resample them."""
    task = TASKS[metric]
    gold, sides = simulate(rng, task, rows, seeds, luck, [0.0, shift])
    seed = int(rng.integers(1 << 30))
    return resample(task, gold, np.concatenate(sides), metric=metric, resamples=RESAMPLES, seed=seed)


class Tally(NamedTuple):
    """Shares of trials, in percent."""

    coverage: float  # intervals of a score that hold the true one
    false: float  # p < 0.05 where the sides do not differ
    power: float  # p < 0.05 where they do
    by_seeds: float  # as `false`, by Welch's t over seeds alone


def tally(metric: str, rows: int, seeds: int, luck: float, truth: float, trials: int) -> Tally:
    """Try a setting so often."""
    rng = np.random.default_rng([rows, seeds, round(1000 * luck), len(metric)])
    hits = np.zeros(4)
    for _ in range(trials):
        for shift in (0.0, SHIFT):
            result = drawn(rng, metric, rows, seeds, luck, shift)
            one, other = result.seeds(0, seeds), result.seeds(seeds, seeds)
            p = difference(other, one, result.units, result.discordant).p
            if shift:
                hits[2] += p < 0.05
                continue
            low, high = one.interval()
            ends = compare_seeds(other.scores.tolist(), one.scores.tolist()).interval
            alone = ends is not None and (ends.low > 0 or ends.high < 0)
            hits += low <= truth <= high, p < 0.05, 0, alone
    return Tally(*(100 * hits / trials))


def tally_mean(seeds: int, luck: float, trials: int) -> tuple[float, float]:
    """Return false positives and power of the mean of eight tasks of 250 to 5,000 rows, by four metrics."""
    tasks = [(metric, rows) for metric in ("accuracy", "matthews", "f1", "pearson") for rows in (250, 1500)]
    rng = np.random.default_rng([seeds, round(1000 * luck)])
    hits = np.zeros(2)
    for _ in range(trials):
        for place, shift in enumerate((0.0, SHIFT / 3)):
            results = [drawn(rng, metric, rows, seeds, luck, shift) for metric, rows in tasks]
            one, other = (mean_of_tasks([each.seeds(start, seeds) for each in results]) for start in (0, seeds))
            units = sum(each.units for each in results)
            hits[place] += difference(other, one, units, sum(each.discordant for each in results)).p < 0.05
    return tuple(100 * hits / trials)  # type: ignore[return-value]


def show_trust(trials: int, all_seeds: Sequence[int], all_rows: Sequence[int]) -> None:
    """Print the shares of every setting, and how far they are from what they should be."""
    error = 100 * (0.05 * 0.95 / trials) ** 0.5
    print(f"{trials:,} trials each; a share of 5 or 95 % has a standard error of {error:.1f}")
    print("coverage: of one side's score; false: p < 0.05 without a difference; power: with one;")
    print("t: false positives of Welch's t over seeds alone. With one seed a side all is about these very models,")
    print("so that coverage and false positives are those of other rows alone where luck is small.")
    print(f"{'metric':<10}{'luck':>6}{'rows':>7}{'seeds':>7}{'coverage':>10}{'false':>8}{'power':>8}{'t':>8}")
    tallies = []
    for metric in TASKS:
        for luck in LUCKS:
            truth = true_score(metric, luck)
            for rows in all_rows:
                for seeds in all_seeds:
                    if rows * seeds > 25_000:
                        continue  # minutes for what fewer rows show
                    each = tally(metric, rows, seeds, luck, truth, trials)
                    shares = f"{each.coverage:>10.1f}{each.false:>8.1f}{each.power:>8.1f}{each.by_seeds:>8.1f}"
                    print(f"{metric:<10}{luck:>6.2f}{rows:>7,}{seeds:>7}{shares}", flush=True)
                    tallies += [each] if seeds > 1 else []
    if tallies:
        coverage, false = np.array([each.coverage for each in tallies]), np.array([each.false for each in tallies])
        print(f"from two seeds on: coverage {coverage.min():.1f} to {coverage.max():.1f}, mean {coverage.mean():.1f};")
        print(f"false positives {false.min():.1f} to {false.max():.1f}, mean {false.mean():.1f}")
        sure = stats.norm.ppf(1 - 0.05 / len(tallies)) * error
        print(f"of {len(tallies)} settings the most extreme are off by {sure:.1f} by chance alone")
    print(f"{'mean of eight tasks':<23}{'seeds':>7}{'':>10}{'false':>8}{'power':>8}")
    for luck in LUCKS:
        for seeds in all_seeds:
            false_share, power = tally_mean(seeds, luck, max(trials // 5, 2))
            print(f"{'':<10}{luck:>6.2f}{'':>7}{seeds:>7}{'':>10}{false_share:>8.1f}{power:>8.1f}", flush=True)


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
                difference(resampled.seeds(0, seeds), resampled.seeds(seeds, seeds), rows, resampled.discordant)
                seconds.append(time.process_time() - began)
            print(f"{metric:<18}{seconds[0]:>15.2f}{seconds[1]:>21.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def main(arguments: list[str] | None = None) -> None:
    """Simulate, or measure the time."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true", help="20 trials of few settings")
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 5, 10])
    options.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000, 5000])
    options.add_argument("--time", action="store_true", help="measure the seconds of a set as large as MNLI's dev set")
    options.add_argument("--resamples", type=int, default=10_000, help="with --time")
    asked = options.parse_args(arguments)
    if asked.time:
        show_time(1000 if asked.small else 9815, asked.resamples)
    elif asked.small:
        show_trust(20, [1, 3], [100])
    else:
        show_trust(asked.trials, asked.seeds, asked.rows)


if __name__ == "__main__":
    main()
