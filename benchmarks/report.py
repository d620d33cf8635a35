"""The seconds and the memory that the report of a run takes whose dev set is as large as QQP's.

python benchmarks/report.py [--glue FOLDER] [--rows 40430] [--small]

Student and teacher are means of word vectors, trained for a few steps; without a GLUE folder the pairs are made up.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"word{number}" for number in range(5000)]
TRAINING_ROWS = 2000


def made_up(path: Path, rows: int, seed: int) -> str:
    """Write pairs of about eleven words each that share most of them, or few."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(("first", "second", "label"))
        for number in range(rows):
            words = rng.choice(WORDS, 11)
            other = np.where(rng.random(11) < (0.8 if number % 3 else 0.3), words, rng.choice(WORDS, 11))
            out.writerow((" ".join(words), " ".join(other), "same" if number % 3 else "other"))
    return str(path)


def make_run(folder: Path, glue: Path | None, rows: int) -> Path:
    """Train a teacher, a student and its baseline, and return the folder of the run."""
    from understill.pipeline import run
    from understill.recipe import make_recipe

    tasks: dict[str, Any] = {"qqp": {"rows": TRAINING_ROWS}}
    if glue is None:
        train, dev = (
            made_up(folder / f"{name}.csv", count, count) for name, count in (("train", TRAINING_ROWS), ("dev", rows))
        )
        tasks = {"qqp": {"train": train, "dev": dev, "text": ["first", "second"], "label": "label"}}
    recipe = {
        "name": "qqp",
        "data": {"glue": str(glue)} if glue else {},
        "tasks": tasks,
        "encoder": {"name": "static", "words": {"size": 50}},
        "training": {"steps": 60, "batch": 64, "lr": 3e-3},
        "teachers": [{"tasks": "each"}],
        "targets": {"weak": "keep"},
        "output": {"folder": str(folder / "runs")},
    }
    return run(make_recipe(recipe)).folder


def peak() -> float:
    """Return the most memory this program has had, in MB; rusage would count what its parent had."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def report(folder: Path) -> None:
    """Write the report of a run and print what it took."""
    from understill.recipe import load_recipe
    from understill.report import write_report

    recipe = load_recipe(folder / "recipe.yaml")
    before = peak()
    began, busy = time.perf_counter(), time.process_time()
    page = write_report(folder, recipe, timing=False)
    wall, busy = time.perf_counter() - began, time.process_time() - busy
    size = page.stat().st_size / 1e6
    print(f"report: {wall:.1f} s ({busy:.1f} s of one core), {size:.1f} MB of HTML")
    print(f"peak memory: {peak():,.0f} MB, of which {before:,.0f} MB before it began")


def main(arguments: list[str] | None = None) -> None:
    """Make the run, then its report in a process of its own."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--glue", type=Path, help="a GLUE folder, for the real pairs")
    options.add_argument("--rows", type=int, default=40_430, help="of the dev set, where they are made up")
    options.add_argument("--small", action="store_true", help="400 rows")
    options.add_argument("--of", type=Path, help="only the report of this run")
    asked = options.parse_args(arguments)
    if asked.of:
        return report(asked.of)
    with tempfile.TemporaryDirectory() as place:
        folder = make_run(Path(place), asked.glue, 400 if asked.small else asked.rows)
        subprocess.run([sys.executable, __file__, "--of", str(folder)], check=True)


if __name__ == "__main__":
    main()
