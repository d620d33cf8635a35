"""Results of a study: means over seeds, ablations and the effects of factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from understill.errors import counted, listed
from understill.numbers import NONE, delta, interval, mean_spread, p_value, score
from understill.pipeline.record import FLOORS, named_column
from understill.pipeline.shortfalls import LEGEND, Shortfall, marks_of, shortfalls
from understill.terminal import console
from understill.terminal.scores import say_retention, say_shortfalls, score_rows, show_run

if TYPE_CHECKING:
    from understill.evaluate.significance import Summary
    from understill.pipeline.aggregate import Findings
    from understill.pipeline.record import Run

#: Columns beside the names of rows that fit on 80 columns.
ABREAST = 5


def show_study(runs: Sequence[Run]) -> None:
    """Show the results of the runs of a recipe; a single one as `show_run` does."""
    if len(runs) == 1:
        show_run(runs[0])
        return
    from understill.pipeline.aggregate import conclude

    findings = runs[0].findings or conclude(runs)
    usual = next(iter(findings.summaries))
    own_runs = [run for run in runs if run.cell and run.cell.variant == usual]
    if not any(findings.summaries[usual].values()):
        _show_scores(own_runs, findings.seeds[usual])
        console.say("the first metric of every task is an error, which is not compared → name another metric first")
    else:
        if not findings.effects:
            below = _below(runs[0], findings.summaries[usual])
            _show_scores(own_runs, findings.seeds[usual], below)
            _show_summaries(findings.summaries[usual], findings.seeds[usual])
            _say_gains(findings)
            say_retention(runs[0])
            say_shortfalls(below)
        for column, deltas in findings.deltas.items():
            _show_deltas(findings, column, list(deltas))
        for column in findings.effects:
            _show_cells(runs, findings, column)
            _show_effects(runs, findings, column)
        _say_what_may_be_claimed(findings)
    console.say(f"models of the first run: {runs[0].folder / 'models'}; of the others: {runs[1].folder.parent}")
    console.say(f"run folder: {runs[0].folder}")


def _over(seeds: int) -> str:
    return f"over {seeds} seeds" if seeds > 1 else "of one seed"


# Seeds ----------------------------------------------------------------------------------------------------------------


def _below(run: Run, summaries: Mapping[str, Mapping[str, Summary]]) -> list[Shortfall]:
    """Return the models that are below what they should beat, in the mean over seeds."""
    means = {
        column: {row: 100 * summary.mean for row, summary in rows.items() if row in run.tasks}
        for column, rows in summaries.items()
    }
    return shortfalls(means, run.cell.recipe) if run.cell else []


def _show_scores(runs: Sequence[Run], seeds: int, below: Sequence[Shortfall] = ()) -> None:
    """Show every metric of the unchanged recipe."""
    marks = marks_of(below, runs[0].tasks)
    title = f"dev scores, {'mean ± standard deviation ' if seeds > 1 else ''}{_over(seeds)}"
    columns = {column: _over_seeds(runs, column) for column in runs[0].columns}
    rows = score_rows(columns, runs[0].tasks, marks, mean_spread)
    console.show_table(f"{title} ({LEGEND})" if marks else title, ("task", "metric"), tuple(columns), rows)


def _over_seeds(runs: Sequence[Run], column: str) -> dict[str, dict[str, Summary]]:
    """Summarise a column's scores over seeds, by dev set and metric."""
    from understill.evaluate.significance import summarise
    from understill.pipeline.aggregate import apart, scores_of

    seeds = [scores_of(run, column) for run in apart(runs, column)]
    return {
        place: {metric: summarise([scores[place][metric] for scores in seeds if place in scores]) for metric in metrics}
        for place, metrics in runs[0].columns[column].items()
    }


def _show_summaries(summaries: Mapping[str, Mapping[str, Summary]], seeds: int) -> None:
    """Show the seeds of each column: the mean of all tasks, or the only one."""
    if seeds == 1:
        return
    row = max((list(rows) for rows in summaries.values()), key=len)[-1]
    rows = []
    for column, by_task in summaries.items():
        if column not in FLOORS and row in by_task:
            each = by_task[row]
            spread = score("", each.spread if len(each.values) > 1 else None)
            numbers = (score("", each.median), score("", each.mean), spread, interval("", each.interval))
            rows.append((column, *numbers, str(len(each.values))))
    what = "mean of the tasks' primary metrics" if row == "mean" else row
    head = ("median", "mean", "deviation", "95 % interval", "seeds")
    console.show_table(f"{what}, {_over(seeds)}", ("",), head, rows)


def _say_gains(findings: Findings) -> None:
    """Say what may be claimed of one column against another."""
    for each in findings.comparisons:
        console.say(each.claim_of(*map(named_column, (each.first, each.second))))


# Ablations ------------------------------------------------------------------------------------------------------------


def _show_deltas(findings: Findings, column: str, variants: Sequence[str]) -> None:
    """Show how far each variant is from the unchanged recipe, task by task."""
    usual = findings.summaries[next(iter(findings.summaries))][column]
    for begin in range(0, len(variants), ABREAST - 1):
        some = variants[begin : begin + ABREAST - 1]
        deltas = {name: findings.deltas[column][name] for name in some}
        rows: list[Sequence[str] | None] = []
        for row, summary in usual.items():
            cells = (delta("", own[row].difference.delta) if row in own else NONE for own in deltas.values())
            rows += [None] if row == "mean" else []
            rows.append((row, mean_spread("", summary), *cells))
        last = [own.get(list(usual)[-1]) for own in deltas.values()]
        if min(findings.seeds.values()) > 1:
            differences = [each.difference if each else None for each in last]
            rows += [
                ("95 %", "", *(interval("", each.interval if each else None, "+") for each in differences)),
                ("p", "", *(p_value(each.p if each else None) for each in differences)),
                ("p, Holm", "", *(p_value(each.holm if each else None) for each in last)),
            ]
        console.show_table(f"{column}: difference from the unchanged recipe", ("task",), ("unchanged", *some), rows)


# Factors --------------------------------------------------------------------------------------------------------------


def _show_cells(runs: Sequence[Run], findings: Findings, column: str) -> None:
    """Show the scores of each combination of levels."""
    levels = {run.cell.variant: run.cell.levels for run in runs if run.cell}
    first = findings.summaries[next(iter(levels))]
    tasks = list(first[column])
    shown = tasks if len(tasks) <= ABREAST - 1 else tasks[-1:]
    rows = [
        (*own.values(), *(mean_spread("", findings.summaries[variant][column].get(task)) for task in shown))
        for variant, own in levels.items()
    ]
    title = f"{column}, {_over(next(iter(findings.seeds.values())))}"
    console.show_table(title, tuple(next(iter(levels.values()))), shown, rows)
    last = tasks[-1]
    beside = [f"{name} {mean_spread('', own[last])}" for name, own in first.items() if name != column and last in own]
    console.say(f"{last} of others: {', '.join(beside)}")


def _show_effects(runs: Sequence[Run], findings: Findings, column: str) -> None:
    """Show the main effect of each factor, and the interactions of pairs."""
    rows: list[Sequence[str] | None] = []
    for task, effects in findings.effects[column].items():
        rows += [None] if task == "mean" else []
        for number, (name, effect) in enumerate(effects.items()):
            numbers = (delta("", effect.delta), interval("", effect.interval, "+"), p_value(effect.p))
            rows.append(("" if number else task, name, *numbers))
    console.show_table(f"{column}: effects", ("task", "effect"), ("points", "95 % interval", "p"), rows)
    levels: dict[str, dict[str, None]] = {}
    for factor, level in (pair for run in runs if run.cell for pair in run.cell.levels.items()):
        levels.setdefault(factor, {})[level] = None
    sides = [f"{listed(others, 'and')} against {first} {factor}" for factor, (first, *others) in levels.items()]
    console.say(f"points of {'; of '.join(sides)}")
    if any("×" in name for effects in findings.effects[column].values() for name in effects):
        console.say("× is the interaction: how much larger the effect of the one is at the other's second level")


def _say_what_may_be_claimed(findings: Findings) -> None:
    """Say what so many seeds can show at all."""
    fewest = min(findings.seeds.values())
    if fewest == 1:
        console.say("one seed each: nothing can be claimed of other seeds → run it with --seeds 3 or more")
    elif findings.deltas:
        count = counted(len(findings.summaries) - 1, "variant")
        console.say(f"intervals and p are over rows and seeds; Holm corrects for {count}")
