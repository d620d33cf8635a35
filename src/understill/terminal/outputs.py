"""Outputs of models: answers, exports, submissions, and what answering costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from understill.errors import counted
from understill.terminal import console
from understill.terminal.scores import score

if TYPE_CHECKING:
    from pathlib import Path

    from understill.bench.measure import Bench
    from understill.evaluate.stream import Predicted
    from understill.pipeline import Exported, Submission
    from understill.runtime.answers import Answer


def show_predicted(done: Predicted, path: Path) -> None:
    """Show how many rows of a file were answered, and which were not."""
    of = f"{done.answered:,} of " if done.unanswered else ""
    console.say(f"{of}{counted(done.rows, 'row')} answered for {', '.join(done.tasks)}: {path}")
    if done.unanswered:
        console.say(f"{counted(done.unanswered, 'row')} without an answer of every task, cells kept:")
        for fault in done.faults:
            console.say(f"  {fault}")
        if rest := done.unanswered - len(done.faults):
            console.say(f"  … and {rest:,} more")


def show_answers(texts: Sequence[str], second: Sequence[str] | None, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Show what a model says of each text."""
    for number, text in enumerate(texts):
        pair = f" | {second[number]}" if second else ""
        console.say(f"{text}{pair}")
        for task, found in answers.items():
            answer = found[number]
            if answer.probabilities is None:
                numbers = answer.scores or {"": answer.score or 0.0}
                console.say(
                    f"  {task}: " + ", ".join(f"{name} {number:.2f}".strip() for name, number in numbers.items())
                )
                continue
            ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
            console.say(
                f"  {task}: {ranked[0][0]} ({ranked[0][1]:.0%})"
                + "".join(f", {name} {p:.0%}" for name, p in ranked[1:3])
            )


def show_export(made: Exported) -> None:
    """Show how far an export is from its model, and where it is."""
    table = console.table("the export against the model", "dev set")
    for column in ("rows", "largest difference", "labels changed"):
        table.add_column(column, justify="right")
    for column in ("metric", "before", "after") if made.rounded else ():
        table.add_column(column, justify="left" if column == "metric" else "right")
    for each in made.parity:
        cells = (each.place, f"{each.rows:,}", f"{each.worst:.1e}", f"{each.changed:,}")
        costs = [cost for cost in made.rounded if cost.place == each.place]
        if not costs:  # nothing was rounded, or no row has gold
            table.add_row(*cells)
        for cost in costs:
            table.add_row(*cells, cost.metric, *(score(cost.metric, value) for value in (cost.before, cost.after)))
            cells = ("",) * 4
    console.out.print(table)
    for part in made.parts:
        console.say(f"wrote {part}")
    if made.left:
        from understill.export.formats import in_words

        console.say(f"not exported: {in_words(made.left)} → --to onnx takes every task")
    second = ' --second "…"' if made.pair else ""
    console.say(f'ask it: understill predict {console.typed(made.parts[0])} --text "…"{second}')


def show_submission(written: Submission) -> None:
    """Show who answers each file of a submission, what no model answers, and whether there is a zip."""
    table = console.table("GLUE submission", "file", "rows", "answered by")
    table.columns[1].justify = "right"
    for filed in written.files:
        rows = f"{filed.rows:,}" if filed.rows else "missing"
        sample = f"; every row says {filed.guess}, the majority guess" if filed.guess else ""
        table.add_row(filed.name, rows, filed.model or f"{filed.lack}{sample}")
    console.out.print(table)
    samples = [filed.name for filed in written.files if filed.guess]
    if samples:
        console.say(f"samples, which no model has answered: {', '.join(samples)}")
    console.say(f"files: {written.folder}")
    if written.zip:
        console.say(f"upload: {written.zip}")
    else:
        what = f"no zip: {', '.join(written.missing)} missing, and the benchmark refuses a zip without"
        console.say(f"{what}; --fill writes a sample where there are training rows")


def show_bench(bench: Bench) -> None:
    """Show what models cost side by side; beside each number stand the lowest and the highest round."""
    first, names = bench.models[0], _short([each.model for each in bench.models])
    for part in first.latency:
        rounds = counted(bench.rounds, "round")
        table = console.table(
            f"{part}: {bench.texts:,} texts of {bench.task}, {rounds}, {counted(bench.machine['cores'], 'core')}"
        )
        table.add_column("model", overflow="fold", min_width=12)
        table.add_column("form", no_wrap=True)
        for column in ("MB", "one text\nms", "95 %\nms", "texts/s", "low to high", "× first", "low to high"):
            table.add_column(column, justify="right", no_wrap=True)
        for name, each in zip(names, bench.models, strict=True):
            one, rate, times = each.latency[part], each.rate(part), each.times(first, part)
            table.add_row(
                name,
                each.form_in(part),
                f"{each.bytes / 1e6:,.1f}",
                f"{1000 * one.median:.2f}",
                f"{1000 * one.p95:.2f}",
                f"{rate.middle:,.0f}",
                f"{rate.low:,.0f} to {rate.high:,.0f}",
                f"{times.middle:.3g}",
                f"{times.low:.3g} to {times.high:.3g}",
            )
        console.out.print(table)
    rates = (f"{each.rate('tokenising').middle:,.0f}/s" for each in bench.models)
    console.say(f"tokenising alone: {', '.join(f'{name} {rate}' for name, rate in zip(names, rates, strict=True))}")


def _short(paths: Sequence[str]) -> list[str]:
    """Leave out of paths the folder that all of them lie in."""
    try:
        shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # some begin at the root and some do not
        return list(paths)
    return [os.path.relpath(path, shared or ".") for path in paths]
