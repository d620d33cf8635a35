"""Outputs of models: answers, exports, submissions, and what answering costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from understill.errors import counted
from understill.numbers import duration, percent, score
from understill.terminal import console

if TYPE_CHECKING:
    from pathlib import Path

    from understill.bench.measure import Bench
    from understill.errors import Problem
    from understill.inference.labelling import LabelledShards
    from understill.inference.predictor import Answer
    from understill.inference.stream import Predicted
    from understill.pipeline.exporting import Exported
    from understill.pipeline.glue_submission import Submission


def show_predicted(done: Predicted, path: Path) -> None:
    """Show how many rows of a file were answered, and which were not."""
    of = f"{done.answered:,} of " if done.unanswered else ""
    console.say(f"{of}{counted(done.rows, 'row')} answered for {', '.join(done.tasks)}: {path}")
    _show_unanswered(done.unanswered, done.faults)


def _show_unanswered(unanswered: int, faults: Sequence[Problem]) -> None:
    if unanswered:
        console.say(f"{counted(unanswered, 'row')} without an answer of every task, cells kept:")
        for fault in faults:
            console.say(f"  {fault}")
        if rest := unanswered - len(faults):
            console.say(f"  … and {rest:,} more")


def show_labelled(done: LabelledShards, target: Path) -> None:
    """Show how many shards and rows were labelled, and which rows were not."""
    skipped = f", {done.skipped:,} of them before" if done.skipped else ""
    console.say(f"{counted(done.shards, 'shard')} labelled{skipped}: {target}")
    if done.rows:
        rate = f"{done.rows / max(done.seconds, 1e-3):,.0f} rows/s"
        console.say(f"{counted(done.rows, 'row')} in {duration(done.seconds)} ({rate})")
    _show_unanswered(done.unanswered, done.faults)


def show_answers(texts: Sequence[str], second: Sequence[str] | None, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Show a model's predictions for each text."""
    for number, text in enumerate(texts):
        pair = f" | {second[number]}" if second else ""
        console.say(f"{text}{pair}")
        for task, predictions in answers.items():
            console.say(f"  {task}: {_answer(predictions[number])}")


def _answer(answer: Answer) -> str:
    """Write a score or scores, or the most probable label and the next two."""
    if answer.probabilities is None:
        scores = answer.scores or {"": answer.score or 0.0}
        return ", ".join(f"{name} {value:.2f}".strip() for name, value in scores.items())
    first, *others = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    return f"{first[0]} ({percent(first[1])})" + "".join(f", {name} {percent(p)}" for name, p in others[:2])


def show_export(made: Exported) -> None:
    """Show how far an export is from its model, and where it is."""
    rows: list[tuple[str, ...]] = []
    for each in made.parity:
        cells = (each.place, f"{each.rows:,}", f"{each.worst:.1e}", f"{each.changed:,}")
        costs = [cost for cost in made.rounded if cost.place == each.place]
        if not costs:  # nothing was rounded, or no row has gold
            rows.append(cells)
        for cost in costs:
            rows.append((*cells, cost.metric, score(cost.metric, cost.before), score(cost.metric, cost.after)))
            cells = ("",) * 4
    scores = ("metric", "before", "after") if made.rounded else ()
    head = ("rows", "largest difference", "labels changed", *scores)
    console.show_table("the export against the model", ("dev set",), head, rows)
    for part in made.parts:
        console.say(f"wrote {part}")
    if made.left:
        from understill.export.formats import in_words

        console.say(f"not exported: {in_words(made.left)} → --to onnx takes every task")
    second = ' --second "…"' if made.pair else ""
    console.say(f'ask it: understill predict {quote(str(made.parts[0]))} --text "…"{second}')


def show_submission(written: Submission) -> None:
    """Show which model answers each file of a submission, what no model answers, and whether there is a zip."""
    rows = []
    for filed in written.files:
        guess = f"; every row says {filed.guess}, the majority guess" if filed.guess else ""
        count = f"{filed.rows:,}" if filed.rows else "missing"
        rows.append((filed.name, count, filed.model or f"{filed.lack}{guess}"))
    console.show_table("GLUE submission", ("file",), ("rows",), rows, last="answered by")
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
    first, names = bench.models[0], _short([each.name for each in bench.models])
    for part in first.latency:
        rows = []
        for name, each in zip(names, bench.models, strict=True):
            one, rate, times = each.latency[part], each.rate(part), each.times_as_fast(first, part)
            numbers = (
                f"{each.bytes / 1e6:,.1f}", f"{1000 * one.median:.2f}", f"{1000 * one.p95:.2f}", f"{rate.value:,.0f}",
                f"{rate.low:,.0f} to {rate.high:,.0f}", f"{times.value:.3g}", f"{times.low:.3g} to {times.high:.3g}",
            )  # fmt: skip
            rows.append((name, each.form_in(part), *numbers))
        rounds, cores = counted(bench.rounds, "round"), counted(bench.machine["cores"], "core")
        title = f"{part}: {bench.texts:,} texts of {bench.task}, {rounds}, {cores}"
        head = ("MB", "one text\nms", "95 %\nms", "texts/s", "low to high", "× first", "low to high")
        console.show_table(title, ("model", "form"), head, rows)
    rates = (f"{each.rate('tokenising').value:,.0f}/s" for each in bench.models)
    console.say(f"tokenising alone: {', '.join(f'{name} {rate}' for name, rate in zip(names, rates, strict=True))}")


def _short(paths: Sequence[str]) -> list[str]:
    """Leave out of paths the folder that all of them lie in."""
    try:
        shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # some begin at the root and some do not
        return list(paths)
    return [os.path.relpath(path, shared or ".") for path in paths]
