"""What a study came to: means over seeds, ablations and the effects of factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING

from rich.table import Table

from understill.errors import listed
from understill.pipeline.record import FLOORS
from understill.pipeline.shortfalls import LEGEND, Shortfall, marks_of, shortfalls
from understill.tasks.metric import is_error
from understill.terminal import console
from understill.terminal.scores import say_shortfalls, show_run

if TYPE_CHECKING:
    from understill.evaluate.significance import Interval, Summary
    from understill.pipeline import Findings, Run

#: Columns beside the names of rows that fit on 80 columns.
ABREAST = 5


def show_study(runs: Sequence[Run]) -> None:
    """Show what the runs of a recipe came to; a single one as it is."""
    if len(runs) == 1:
        show_run(runs[0])
        return
    from understill.pipeline import conclude

    findings = conclude(runs)
    usual = next(iter(findings.summaries))
    if not any(findings.summaries[usual].values()):
        _show_scores([run for run in runs if run.cell and run.cell.variant == usual], findings.seeds[usual])
        console.say("the first metric of every task is an error, which is not compared → name another metric first")
    else:
        _show_findings(runs, findings, usual)
    console.say(f"models of the first run: {runs[0].folder / 'models'}; of the others: {runs[1].folder.parent}")
    console.say(f"run folder: {runs[0].folder}")


def _show_findings(runs: Sequence[Run], findings: Findings, usual: str) -> None:
    if not findings.effects:
        below = _below(runs[0], findings.summaries[usual])
        _show_scores([run for run in runs if run.cell and run.cell.variant == usual], findings.seeds[usual], below)
        _show_summaries(findings.summaries[usual], findings.seeds[usual])
        _show_gains(findings)
        say_shortfalls(below)
    for column, deltas in findings.deltas.items():
        _show_deltas(findings, column, list(deltas))
    for column in findings.effects:
        _show_cells(runs, findings, column)
        _show_effects(runs, findings, column)
    _say_what_may_be_claimed(findings)


def _table(title: str, *names: str) -> Table:
    """Start a table whose first columns are names."""
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _number(table: Table, name: str) -> None:
    """Add a column of numbers, which are never cut."""
    table.add_column(name, justify="right", overflow="fold", min_width=5)


def _over(seeds: int) -> str:
    return f"over {seeds} seeds" if seeds > 1 else "of one seed"


def _spread(summary: Summary) -> str:
    """Write a mean with its spread, where there is any to speak of."""
    return f"{100 * summary.mean:.1f}" + (f" ±{100 * summary.spread:.1f}" if len(summary.values) > 1 else "")


def _interval(interval: Interval | None) -> str:
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}" if interval else "–"


def _points(difference: float) -> str:
    return f"{round(100 * difference, 1) + 0.0:+.1f}"  # added, so that nothing is not below nothing


def _signed(interval: Interval | None) -> str:
    return f"{_points(interval.low)} to {_points(interval.high)}" if interval else "–"


def _p(value: float | None) -> str:
    return "–" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


# Seeds ----------------------------------------------------------------------------------------------------------------


def _below(run: Run, summaries: Mapping[str, Mapping[str, Summary]]) -> list[Shortfall]:
    """Return what is below what it should beat, in the mean over seeds."""
    firsts = {
        column: {row: 100 * summary.mean for row, summary in rows.items() if row in run.tasks}
        for column, rows in summaries.items()
    }
    return shortfalls(firsts, run.cell.recipe) if run.cell else []


def _show_scores(runs: Sequence[Run], seeds: int, below: Sequence[Shortfall] = ()) -> None:
    """Show every metric of the recipe as it is."""
    from understill.evaluate.significance import summarise
    from understill.pipeline.aggregate import apart, scores_of

    columns = list(runs[0].columns)
    marks = marks_of(below, runs[0].tasks)
    title = f"dev scores, {'mean ± standard deviation ' if seeds > 1 else ''}{_over(seeds)}"
    table = _table(f"{title} ({LEGEND})" if marks else title, "task", "metric")
    for column in columns:
        _number(table, column)
    for name, task in runs[0].tasks.items():
        places = [place for column in columns for place in runs[0].columns[column] if place.split("/")[0] == name]
        for place in dict.fromkeys(places):
            for metric in task.metrics:
                cells = []
                for column in columns:
                    mine = [scores_of(run, column).get(place, {}) for run in apart(runs, column)]
                    known = [scores[metric] for scores in mine if metric in scores]
                    text = _score(metric, summarise(known)) if known else "–"
                    cells.append(text + marks.get((place, metric, column), ""))
                table.add_row(place.removesuffix("/dev").replace("/dev_", " "), metric, *cells)
    console.out.print(table)


def _score(metric: str, summary: Summary) -> str:
    if not is_error(metric):
        return _spread(summary)
    return f"{summary.mean:.3f}" + (f" ±{summary.spread:.3f}" if len(summary.values) > 1 else "")


def _show_summaries(summaries: Mapping[str, Mapping[str, Summary]], seeds: int) -> None:
    """Show what the seeds of each column came to, in the mean of all tasks."""
    if seeds == 1:
        return
    row = _last(summaries)
    what = "mean of the tasks' first metrics" if row == "mean" else row
    table = _table(f"{what}, {_over(seeds)}", "")
    for name in ("median", "mean", "deviation", "95 % interval", "seeds"):
        _number(table, name)
    for column, rows in summaries.items():
        if column not in FLOORS and row in rows:
            found = rows[row]
            numbers = [f"{100 * number:.1f}" for number in (found.median, found.mean)]
            several = len(found.values) > 1
            table.add_row(
                column,
                *numbers,
                f"{100 * found.spread:.1f}" if several else "–",
                _interval(found.interval),
                str(len(found.values)),
            )
    console.out.print(table)


def _last(summaries: Mapping[str, Mapping[str, Summary]]) -> str:
    """Name the row that stands for all tasks: their mean, or the only one."""
    return max((list(rows) for rows in summaries.values()), key=len)[-1]


def _show_gains(findings: Findings) -> None:
    """Say what one column has over another."""
    for name, rows in findings.gains.items():
        row, difference = list(rows.items())[-1]
        sure = ""
        if difference.interval and difference.p is not None:
            sure = f" (95 % interval {_signed(difference.interval)}, Mann-Whitney p {_p(difference.p)})"
        console.say(f"{name}, {row}: {_points(difference.delta)}{sure}")


# Ablations ------------------------------------------------------------------------------------------------------------


def _show_deltas(findings: Findings, column: str, variants: Sequence[str]) -> None:
    """Show how far each variant is from the recipe as it is, task by task."""
    usual = findings.summaries[next(iter(findings.summaries))][column]
    for begin in range(0, len(variants), ABREAST - 1):
        some = variants[begin : begin + ABREAST - 1]
        table = _table(f"{column}: difference from the recipe as it is", "task")
        for name in ("as it is", *some):
            _number(table, name)
        deltas = {name: findings.deltas[column][name] for name in some}
        for row, summary in usual.items():
            if row == "mean":
                table.add_section()
            cells = [_points(deltas[name][row].difference.delta) if row in deltas[name] else "–" for name in some]
            table.add_row(row, _spread(summary), *cells)
        last = list(usual)[-1]
        sure = {name: deltas[name].get(last) for name in some}
        if any(found and found.difference.p is not None for found in sure.values()):
            table.add_row(
                "95 %", "", *(_signed(found.difference.interval) if found else "–" for found in sure.values())
            )
            table.add_row("p", "", *(_p(found.difference.p) if found else "–" for found in sure.values()))
            table.add_row("p, Holm", "", *(_p(found.holm) if found else "–" for found in sure.values()))
        console.out.print(table)


# Factors --------------------------------------------------------------------------------------------------------------


def _show_cells(runs: Sequence[Run], findings: Findings, column: str) -> None:
    """Show what each combination of levels came to."""
    levels = {run.cell.variant: run.cell.levels for run in runs if run.cell}
    rows = list(findings.summaries[next(iter(levels))][column])
    shown = rows if len(rows) <= ABREAST - 1 else rows[-1:]
    table = _table(f"{column}, {_over(next(iter(findings.seeds.values())))}", *next(iter(levels.values())))
    for name in shown:
        _number(table, name)
    for variant, mine in levels.items():
        found = findings.summaries[variant][column]
        table.add_row(*mine.values(), *(_spread(found[row]) if row in found else "–" for row in shown))
    console.out.print(table)
    others = findings.summaries[next(iter(levels))]
    beside = [
        f"{name} {_spread(found[rows[-1]])}" for name, found in others.items() if name != column and rows[-1] in found
    ]
    console.say(f"{rows[-1]} of others: {', '.join(beside)}")


def _show_effects(runs: Sequence[Run], findings: Findings, column: str) -> None:
    """Show what each factor does, and pairs of them beyond that."""
    table = _table(f"{column}: effects", "task", "effect")
    for name in ("points", "95 % interval", "p"):
        _number(table, name)
    for row, effects in findings.effects[column].items():
        if row == "mean":
            table.add_section()
        for number, (name, effect) in enumerate(effects.items()):
            table.add_row("" if number else row, name, _points(effect.delta), _signed(effect.interval), _p(effect.p))
    console.out.print(table)
    levels: dict[str, dict[str, None]] = {}
    for factor, level in ((factor, level) for run in runs if run.cell for factor, level in run.cell.levels.items()):
        levels.setdefault(factor, {})[level] = None
    sides = []
    for factor, (first, *others) in levels.items():
        sides.append(f"{listed(others, 'and')} against {first} {factor}")
    console.say(f"points of {'; of '.join(sides)}")
    if any("×" in name for effects in findings.effects[column].values() for name in effects):
        console.say("× is a difference of differences: what the one gains more where the other has its second level")


def _say_what_may_be_claimed(findings: Findings) -> None:
    """Say what so many seeds can show at all."""
    fewest = min(findings.seeds.values())
    if fewest == 1:
        console.say("one seed each: nothing can be claimed, since seeds differ too → run it with --seeds 3 or more")
    elif findings.deltas or (not findings.effects and _tested(findings)):
        # Were all seeds of one side above all of the other, this would be left to chance.
        least = 2 / comb(2 * fewest, fewest)
        what = f"with {fewest} seeds on each side no p of Mann and Whitney can be below {least:.2g}"
        corrected = f", and Holm corrects for {_many(findings)}" if findings.deltas else ""
        console.say(f"{what}; the intervals are Welch's{corrected}")


def _tested(findings: Findings) -> bool:
    """Tell whether a p-value was shown of what one column has over another."""
    return any(found.p is not None for rows in findings.gains.values() for found in rows.values())


def _many(findings: Findings) -> str:
    count = len(findings.summaries) - 1
    return f"{count} variants" if count > 1 else "the one variant"
