"""How many sentences augmentation makes in a second, with parts of speech and without, and in how much memory."""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from tokenise import generate
from understill.data import demo
from understill.data.augment import AugmentRules, write_augmented
from understill.data.taggers import find_tagger
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.recipe import make_recipe


def glue(folder: Path, place: str, task: str) -> TaskData:
    """Read the training rows of a GLUE task."""
    from understill.data.load import load_tasks

    recipe = make_recipe({"tasks": [task], "data": {"glue": place}})
    return load_tasks(recipe, folder)[task].splits["train"]


def taggers(wanted: list[str]) -> list[str | None]:
    """Return no tagger at all, and those that are installed."""
    result: list[str | None] = [None]
    for name in wanted:
        try:
            result.append(find_tagger(name).name)
        except UserError as error:
            print(error)
    return result


def measure(data: TaskData, tagger: str | None, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Augment all rows once."""
    rules = AugmentRules(0.1, 0.1 if tagger else 0.0, 0.25, options.times, 0)
    start = time.perf_counter()
    rows = write_augmented(data, out, rules, tagger, options.workers)
    seconds = time.perf_counter() - start
    made = rows - data.rows
    figures = {
        "task": data.task.name, "tagger": tagger, "rows": data.rows, "made": made, "seconds": round(seconds, 2),
        "made_per_second": round(made / seconds), "workers": options.workers,
        "peak_resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip
    print(
        f"{data.task.name:<8} {tagger or 'no tags':<10} {data.rows:>9,} rows {made:>11,} made {seconds:>8.1f} s "
        f"{figures['made_per_second']:>9,} a second   peak {figures['peak_resident_mib']:,} MiB",
        flush=True,
    )
    return figures


def main() -> None:
    """Read the options, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the demo task")
    parser.add_argument("--small", action="store_true", help="2,000 rows, for a quick look")
    parser.add_argument("--task", default="mood", help="a demo task, or with --glue a GLUE task")
    parser.add_argument("--glue", help="a GLUE folder")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--taggers", nargs="*", default=["spacy", "textblob"])
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, rows = Path(place), 2000 if options.small else options.rows
        if options.glue:
            data = glue(folder, options.glue, options.task)
        elif options.task in demo.TASKS:
            data = generate(folder, options.task, rows, 0, lambda _: None)
        else:
            parser.error(f"no demo task {options.task}; with --glue FOLDER it may be one of GLUE")
        figures = [measure(data, tagger, options, folder / "out.arrow") for tagger in taggers(options.taggers)]
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
