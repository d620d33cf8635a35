"""The seconds of one core that 10,000 resamples of two models take, for a set as large as MNLI's dev set.

python benchmarks/significance.py [--rows 9815] [--resamples 10000]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from understill.evaluate.bootstrap import nested_bootstrap, paired_bootstrap
from understill.tasks import GLUE, Task


def made_up(task: Task, rows: int, models: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make gold and the answers of models that are right most of the time."""
    if task.kind.name == "regression":
        gold = np.round(rng.uniform(0, 5, rows), 1)
        return gold, gold + rng.normal(size=(models, rows))
    gold = rng.integers(0, len(task.labels), rows).astype(float)
    guess = rng.integers(0, len(task.labels), (models, rows)).astype(float)
    return gold, np.where(rng.random((models, rows)) < 0.8, gold, guess)


def main(arguments: list[str] | None = None) -> None:
    """Print the seconds of each metric, for two models and for two of three seeds each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true", help="1,000 rows")
    options.add_argument("--rows", type=int, default=9815, help="as many as MNLI's dev set has")
    options.add_argument("--resamples", type=int, default=10_000)
    asked = options.parse_args(arguments)
    rows = 1000 if asked.small else asked.rows
    rng = np.random.default_rng(0)
    print(f"{rows:,} rows, {asked.resamples:,} resamples, one process")
    print(f"{'metric':<18}{'two models, s':>15}{'three seeds each, s':>21}")
    for task in (GLUE["mnli"].task, GLUE["stsb"].task):
        gold, predicted = made_up(task, rows, 6, rng)
        for metric in task.kind.metrics:
            began = time.process_time()
            paired_bootstrap(task, gold, predicted[0], predicted[1], metric=metric, resamples=asked.resamples)
            middle = time.process_time()
            nested_bootstrap(task, gold, predicted[:3], predicted[3:], metric=metric, resamples=asked.resamples)
            print(f"{metric:<18}{middle - began:>15.2f}{time.process_time() - middle:>21.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
