"""Pages of results: tables and numbers between the markers of a page, and pictures, made anew from the kept scores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _results_data import (
    GLUE,
    NAMES,
    RESULTS,
    ROOT,
    SHARED,
    command,
    evaluate,
    gain,
    plan,
    row_variance,
    seed_minutes,
    seeds_asked,
    seeds_measured,
    summary,
)
from understill.evaluate.significance import Difference, Summary
from understill.numbers import NONE, fixed
from understill.report.figures import Bar, intervals

PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
TABLE = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- /results -->)", re.S)
NUMBER = re.compile(r"(<!--= (.+?) -->).*?(<!--/-->)")
#: The lines of the protocol, as a table says that it does not keep them.
PROTOCOL = {
    "settings": "settings were chosen on these dev sets",
    "weights": "the best weights on these dev sets were kept",
    "teachers": "all seeds have the same teachers",
}
LEAST_SEEDS = 5
#: Colours of a picture by itself; a report brings its own.
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #5b6470 } .grid { stroke: #8884 } .axis { stroke: #888 }
.whisker { stroke: #0b7fc4; stroke-width: 2 } .fill0 { fill: #0b7fc4 }
</style>"""


# Tables ---------------------------------------------------------------------------------------------------------------


def table(name: str) -> str:
    """Return a table, what of it is not measured yet, and the lines of the protocol that it does not keep."""
    spec = plan()["tables"][name]
    columns, rows, paper = spec.get("tasks") or [*GLUE, "mean"], rows_of(name), spec.get("paper", {})
    there = {label: row for label, row in rows.items() if any(summary(row["of"], column) for column in columns)}
    # Where there is no mean, every task has a difference of its own, on a line below.
    below = len(columns) > 1 and "mean" not in columns
    aside = not below and any("against" in row for row in rows.values())
    head = ["model", "seeds", *(NAMES[column] if column != "mean" else "mean" for column in columns)]
    lines = [[*head, *["difference (95 %)"] * aside, *["paper"] * bool(paper)]]
    for label, row in there.items():
        shown = [_over_seeds(summary(row["of"], column), below or column == columns[-1]) for column in columns]
        line = [label, _seeds(row["of"], columns), *shown, *[_difference(row, columns[-1])] * aside]
        lines.append([*line, *[fixed(float(paper[label]), 1) if label in paper else NONE] * bool(paper)])
        if below and set(apart := [_difference(row, column) for column in columns]) != {NONE}:
            lines.append(["difference (95 %)", NONE, *apart])
    notes = _notes(spec, there, columns[-1])
    return "\n\n".join(part for part in (_drawn(lines) if there else "", notes, _missing(rows)) if part)


def rows_of(name: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table: by label, which model each is `of`, and what it is compared `against`."""
    spec = plan()["tables"][name]
    rows = {label: row if isinstance(row, dict) else {"of": row} for label, row in spec["rows"].items()}
    usual = {"against": spec["against"]} if "against" in spec else {}
    # What teaches is no rival of what is taught.
    return {label: {**({} if row["of"].endswith("teachers") else usual), **row} for label, row in rows.items()}


def _over_seeds(values: Summary | None, whole: bool) -> str:
    """Write a mean over seeds; that of the last column with half of its 95 % interval."""
    if values is None:
        return NONE
    mean = fixed(values.mean, 1)
    return f"{mean} ± {fixed(values.interval.high - values.mean, 1)}" if whole and values.interval else mean


def _seeds(model: str, columns: list[str]) -> str:
    return str(next(len(values.values) for column in columns if (values := summary(model, column))))


def _difference(row: dict[str, str], column: str) -> str:
    against = row.get("against", row["of"])
    return _gain(gain(row["of"], against, column)) if against != row["of"] else NONE


def _gain(difference: Difference | None) -> str:
    if difference is None:
        return NONE
    ends = difference.interval
    return fixed(difference.delta, 1, "+") + (
        f" ({fixed(ends.low, 1, '+')} to {fixed(ends.high, 1, '+')})" if ends else ""
    )


def _missing(rows: dict[str, dict[str, str]]) -> str:
    """Name the runs of a table of which seeds are still to be measured, with about how long they take."""
    runs = dict.fromkeys(model.partition("/")[0] for row in rows.values() for model in row.values())
    left = {name: len(seeds_asked(name)) - len(seeds_measured(name)) for name in runs if name in plan()["runs"]}
    names = [f"`{name}` ({count} of {len(seeds_asked(name))} seeds)" for name, count in left.items() if count]
    minutes = sum(count * seed_minutes(name) for name, count in left.items())
    return f"Still to be measured: {', '.join(names)}; about {minutes:.0f} minutes on one H200." if names else ""


def _notes(spec: dict[str, Any], there: dict[str, dict[str, str]], column: str) -> str:
    """Name the files of a table, the lines of the protocol that it does not keep, and what its intervals are over."""
    if not there:
        return ""
    files = dict.fromkeys(row["of"].partition("/")[0] for row in there.values())
    lines = [PROTOCOL[key] for key in spec.get("breaks", ())]
    own = [row["of"] for row in there.values() if row["of"].rpartition("/")[2] not in SHARED]
    if any(len(values.values) < LEAST_SEEDS for model in own if (values := summary(model, column))):
        lines.append("fewer than five seeds")
    kept = f"Not by the protocol: {'; '.join(lines)}." if lines else "By the protocol."
    over = [label for label, row in there.items() if row_variance([row["of"]], column)]
    whose = "" if len(over) == len(there) else f" of {', '.join(over)}"
    kept += f" Intervals{whose} are over seeds and rows{', others over seeds alone' * bool(whose)}." if over else ""
    return f"{kept} Files: {', '.join(f'[{name}](results/{name}.json)' for name in files)}."


def summary_table() -> str:
    """Return the README's table: students with and without teachers."""
    lines = [["student", "task", "seeds", "teachers", "without teachers", "distilled", "gain (95 %)"]]
    for row in plan()["summary"]:
        task = row["task"]
        before, after = summary(row["without"], task), summary(row["distilled"], task)
        teachers = summary(row["teachers"], task)
        cells = [fixed(teachers.mean, 1) if teachers else NONE, _over_seeds(before, True), _over_seeds(after, True)]
        change = _gain(gain(row["distilled"], row["without"], task))
        lines.append([row["student"], NAMES[task], _seeds(row["distilled"], [task]), *cells, change])
    return _drawn(lines)


def commands() -> str:
    """Return the command of every run, in the order of the queue."""
    lines = (command(name, seeds_asked(name)).replace(" --set ", " \\\n  --set ", 1) for name in plan()["runs"])
    return "```bash\n" + "\n".join(lines) + "\n```"


def _drawn(lines: list[list[str]]) -> str:
    """Write a table as Markdown, its head first."""
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rows])


# Pages ----------------------------------------------------------------------------------------------------------------


def renewed(page: str) -> str:
    """Return a page with its tables and numbers made anew."""

    def made(match: re.Match[str]) -> str:
        whole = {"summary": summary_table, "commands": commands}.get(match[2], lambda: table(match[2]))
        return f"{match[1]}\n{whole()}\n\n{match[3]}"

    return NUMBER.sub(lambda match: f"{match[1]}{evaluate(match[2])}{match[3]}", TABLE.sub(made, page))


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield every picture, with where it belongs."""
    for name, spec in plan()["pictures"].items():
        bars = []
        for column, label in {**GLUE, "mean": "mean"}.items():
            if difference := gain(spec["gains"], spec["against"], column):
                ends = difference.interval or (None, None)
                bars.append(Bar(label, difference.delta, *ends))
        drawn = intervals(spec["title"], bars, spec["title"])
        yield RESULTS / f"{name}.svg", drawn.replace(">", f">{STYLE}", 1) + "\n"


def pages() -> dict[Path, str]:
    """Return what every page and picture has to be."""
    return {**{path: renewed(path.read_text(encoding="utf-8")) for path in PAGES}, **dict(pictures())}


def loose_numbers(page: str) -> list[str]:
    """Return the scores of a page that come from no file: decimals and points outside of code, tables and markers."""
    for pattern in (TABLE, re.compile(r"<!--= .*?<!--/-->"), re.compile(r"```.*?```|`[^`]*`", re.S)):
        page = pattern.sub("", page)
    return re.findall(r"[^\s(|*>]*\d+\.\d+\S*|\d+ points?\b", re.sub(r"\]\([^)]*\)", "]", page))
