"""The tables of docs/performance.md, "The first model", from docs/results/first-run.json: `python _first_tables.py`.

The name begins with a line so that `make bench` does not take it for a benchmark.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from scipy.special import stdtrit

DOCS = Path(__file__).parents[1] / "docs"
FILE, PAGE = DOCS / "results" / "first-run.json", DOCS / "performance.md"
#: Where the tables stand in the page.
BEGIN, END = "<!-- first models -->", "<!-- /first models -->"

TASKS = {"sst2": "SST-2", "cola": "CoLA", "debian": "Debian", "mrpc": "MRPC", "qqp": "QQP", "rte": "RTE"}
TASKS |= {"qnli": "QNLI", "mnli": "MNLI", "stsb": "STS-B"}
SIZES = {"8": "8 rows a class (STS-B: 48)", "100": "100 rows", "500": "500 rows", "2000": "2,000 rows"}
SIZES |= {"all": "all rows"}
METHODS = {"default": "default", "frozen": "frozen + linear", "setfit": "SetFit", "trainer": "Trainer"}

#: By task, size and method: the scores of the draws.
Cells = Mapping[tuple[str, str, str], Mapping[int, float]]


def cells_of(file: Path) -> Cells:
    """Read the scores; those of today's rule take the place of earlier ones."""
    cells: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    results = json.loads(file.read_text(encoding="utf-8"))
    for task, size, draw, method, score, *_ in [*results["scores"]["results"], *results["since"]["results"]]:
        cells[task, size, method][draw] = score
    return cells


def differences(cells: Cells, task: str, size: str, one: str = "default", other: str = "frozen") -> list[float]:
    """Return by how much one method is ahead of another, draw by draw."""
    ours, theirs = cells.get((task, size, one), {}), cells.get((task, size, other), {})
    if size == "all" and other == "frozen" and theirs:  # a linear model of all rows is one, in whatever order
        theirs = dict.fromkeys(ours, next(iter(theirs.values())))
    return [ours[draw] - theirs[draw] for draw in sorted(ours.keys() & theirs.keys())]


def in_words(values: list[float]) -> str:
    """Write a mean difference, with half of its 95 % interval over draws."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):+.1f}".replace("-", "−")
    if len(values) < 2:
        return mean
    reach = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean} ± {reach:.1f}"


def table(cells: Cells, size: str) -> list[str]:
    """Return the table of a size: mean scores (draws), and by how much the default is ahead."""
    methods = [name for name in METHODS if any((task, size, name) in cells for task in TASKS)]
    titles = [METHODS[name] for name in methods]
    head = [SIZES[size], *titles[:2], "difference", *titles[2:]]
    lines = [head, ["---"] * len(head)]
    for task, title in TASKS.items():
        scores = [cells.get((task, size, name), {}).values() for name in methods]
        written = [f"{statistics.mean(each):.1f} ({len(each)})".replace("-", "−") if each else "–" for each in scores]
        lines.append([title, *written[:2], in_words(differences(cells, task, size)), *written[2:]])
    return [f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines]


def beside_setfit(cells: Cells) -> list[str]:
    """Return by how much the default is ahead of SetFit, on the same draws."""
    sizes = [size for size in SIZES if any((task, size, "setfit") in cells for task in TASKS)]
    tasks = [task for task in TASKS if any((task, size, "setfit") in cells for size in sizes)]
    lines = ["| default − SetFit, same draws | " + " | ".join([*(TASKS[task] for task in tasks), "mean"]) + " |"]
    lines.append("|" + "---|" * (len(tasks) + 2))
    for size in sizes:
        ahead = [differences(cells, task, size, "default", "setfit") for task in tasks]
        mean = f"{statistics.mean(map(statistics.mean, ahead)):+.1f}".replace("-", "−") if all(ahead) else "–"
        lines.append(f"| {SIZES[size].partition(' (')[0]} | {' | '.join(map(in_words, ahead))} | {mean} |")
    return lines


def tables(file: Path = FILE) -> str:
    """Return all tables as Markdown."""
    cells = cells_of(file)
    return "\n\n".join("\n".join(lines) for lines in [*(table(cells, size) for size in SIZES), beside_setfit(cells)])


def main() -> None:
    """Write the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
