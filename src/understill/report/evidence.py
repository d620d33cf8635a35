"""Evidence: scores and what may be claimed of them, cost, training curves, and what several runs show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from understill import numbers
from understill.bench.efficiency import PARTS
from understill.evaluate.significance import LEVEL, Interval, Summary
from understill.pipeline.comparison import Comparison, Retention
from understill.pipeline.record import FLOORS, named_column
from understill.pipeline.shortfalls import LEGEND, marks_of
from understill.report import figures
from understill.report.blocks import Block, Paragraph, Picture, Table
from understill.report.facts import Curve, Facts, Measured, Timing
from understill.report.overview import means, warnings
from understill.tasks.metric import is_error

#: What one, two and three stars mean.
STARS = "* p < 0.05, ** p < 0.01, *** p < 0.001, after Holm's correction: means are one family, single tasks another"
#: Steps of a curve that its table shows.
STEPS = 20


def scores(facts: Facts) -> Iterator[Block]:
    """Show all scores, and what may be claimed of them."""
    for versus in facts.versus:
        yield Paragraph(versus.claim_of(*map(named_column, (versus.first, versus.second))), strong=True)
    if facts.retention:
        yield Paragraph(facts.retention.sentence(facts.recipe.evaluation.keep), strong=True)
    marks, below = _marks(facts), marks_of(warnings(facts), facts.tasks)
    rows = []
    for row in facts.scores:
        keys = [(row.place, row.metric, column) for column in facts.columns]
        cells = (_cell(row.metric, row.scores.get(key[2]), marks.get(key, "") + below.get(key, "")) for key in keys)
        rows.append((numbers.plain_name(row.place), row.metric, *cells))
    averages = means(facts)
    if len({row.place.split("/")[0] for row in facts.scores}) > 1 and averages:
        stars = {versus.second: versus.mean.stars for versus in _to_baseline(facts) if versus.mean}
        cells = (_mean_cell(facts, name, averages.get(name), stars.get(name, "")) for name in facts.columns)
        rows.append(("mean", "primary metrics", *cells))
    over = "rows and seeds" if facts.seeds > 1 else "rows"
    spread = (
        f"{'mean ± standard deviation over seeds; ' if facts.seeds > 1 else ''}95 % interval over {over} in brackets"
    )
    caption = f"Dev scores ×100; {spread}" + (f"; {LEGEND}" if below else "")
    yield Table(caption, ("task", "metric", *facts.columns), tuple(rows), 2)
    if facts.versus:
        yield from _comparisons(facts)
    if facts.retention:
        yield _kept(facts.retention)


def _to_baseline(facts: Facts) -> list[Comparison]:
    return [versus for versus in facts.versus if versus.first.endswith("baseline")]


def _marks(facts: Facts) -> dict[tuple[str, str, str], str]:
    """Return the stars of the main column, which are about the baseline."""
    return {
        (row.place, row.metric, versus.second): row.stars for versus in _to_baseline(facts) for row in versus.compared
    }


def _cell(metric: str, score: Summary | None, mark: str) -> str:
    text = numbers.mean_spread(metric, score) + mark
    if score is None or score.interval is None:
        return text
    return f"{text} [{numbers.interval(metric, score.interval)}]"


def _mean_cell(facts: Facts, column: str, mean: float | None, mark: str) -> str:
    """Write a column's mean over tasks; floors have no interval."""
    return _cell("", facts.means[column], mark) if column in facts.means else numbers.score("", mean)


def _comparisons(facts: Facts) -> Iterator[Block]:
    rows, bars, drawn = [], [], sum(not is_error(row.metric) for versus in facts.versus for row in versus.rows)
    level = 1 - (1 - LEVEL) / max(drawn, 1)  # Bonferroni's, for intervals that are read together
    for versus in facts.versus:
        sides = f"{versus.second} − {versus.first}"
        for row in versus.rows:
            result, metric = row.difference, row.metric
            delta = numbers.delta(metric, result.delta) + row.stars
            interval = numbers.interval(metric, result.interval, "+")
            tests = (numbers.p_value(result.p), numbers.p_value(row.p), numbers.score(metric, result.detectable))
            effect = numbers.effect_size(result.effect)
            rows.append((sides, row.name, metric or "primary", delta, interval, *tests, effect, result.test))
            if not is_error(metric):
                bars.append(_bar(f"{row.name}, {sides}", result.delta, result.at(level)))
    head = ("difference", "task", "metric", "points", "95 % interval", "p", "p, Holm", "detectable", "effect", "test")
    table = Table("Differences", head, tuple(rows), 3)
    if bars:
        about = (
            "Differences in points with simultaneous 95 % intervals: that all of them hold has a probability of 95 %, "
            "so one that crosses the line at 0 may be chance."
        )
        yield Picture(figures.intervals(about, bars, "points"), about, table)
    else:
        yield table
    tried = ""
    if facts.tried:
        tried = (
            f" {facts.tried} other trained models beside this run were scored on these dev sets: a setting that was "
            "chosen among them looks better here than on new rows."
        )
    yield Paragraph(
        f"{STARS}; in the table of scores they are about the baseline, and one seed a side gets none. The mean over "
        "tasks is the first claim; single tasks come second. Intervals of the table are not corrected for the number "
        "of comparisons. Detectable is the true difference that would have been significant with a probability of "
        "80 %. The effect is the difference in standard deviations of one row's contribution to it. A model that was "
        f"selected on a dev set scores better there than on new rows; no test corrects for that.{tried}"
    )
    yield from _variance(facts)


def _variance(facts: Facts) -> Iterator[Block]:
    """Show where the uncertainty of each first claim comes from."""
    rows = []
    for versus in facts.versus:
        parts = versus.primary.difference.parts
        if parts and sum(parts) > 0 and max(versus.primary.seeds) > 1:
            shares = [numbers.percent(part / sum(parts)) for part in parts]
            error = numbers.score(versus.primary.metric, sum(parts) ** 0.5)
            rows.append((f"{versus.second} − {versus.first}", versus.primary.name, error, *shares))
    if rows:
        head = ("difference", "task", "standard error", "rows", "seeds of the first", "seeds of the second")
        yield Table("Where the uncertainty comes from: share of the variance", head, tuple(rows), 2)
        yield Paragraph(
            "More dev rows shrink the first part, more seeds the others; one seed stands for itself and adds none. "
            + (
                "All seeds had the same teachers, so what other teachers would change is in none of them."
                if any(versus.taught_alike for versus in facts.versus)
                else "Teachers that were trained anew with each seed count among its seeds."
            )
        )


def _kept(retention: Retention) -> Table:
    """Show what the student keeps of its teachers, in three ways."""
    rows = (
        ("score of the student by that of its teachers", retention.kept),
        ("the same above the majority guess", retention.above),
        ("distillation ratio: (student − baseline) / (teachers − baseline)", retention.distilled),
    )
    cells = tuple(
        (name, numbers.percent(each.value), numbers.percents(each.interval) if each.interval else "unbounded")
        for name, each in rows
        if each
    )
    return Table("Kept of the teachers, on the mean over tasks", ("", "share", "95 % interval"), cells)


def _bar(name: str, delta: float, interval: Interval | None) -> figures.Bar:
    low, high = (None, None) if interval is None else (100 * interval.low, 100 * interval.high)
    return figures.Bar(name, 100 * delta, low, high)


# Cost -----------------------------------------------------------------------------------------------------------------


def cost(timing: Timing | None) -> Iterator[Block]:
    """Show scores against what models cost."""
    if timing is None:
        return
    reference = timing.models[-1].efficiency
    head = (
        "model", "score", "parameters", "file", "memory", "FLOPs per text", "median", "p95", "p99", "texts/s",
        f"× {reference.name}",
    )  # fmt: skip
    caption = f"Cost of a text, from text to answer, on {reference.device} in {reference.precision}"
    table = Table(caption, head, tuple(_cost_row(each, timing) for each in timing.models))
    if timing.tasks:
        points = [
            (each.efficiency.name, 1000 * each.efficiency.latency[PARTS[1]].median, 100 * each.score,
             float(each.efficiency.parameters))
            for each in timing.models
        ]  # fmt: skip
        what = "mean dev score" if len(timing.tasks) > 1 else f"dev score of {timing.tasks[0]}"
        how = "against the median latency of one text. Areas are parameters; up and to the left is better."
        about = f"{what[0].upper()}{what[1:]} {how} The dashed line is the Pareto front."
        yield Picture(figures.scatter(about, points, "milliseconds for one text", what), about, table)
    else:
        yield table
    first = timing.models[0].efficiency
    yield Paragraph(
        f"Measured when this report was written, side by side on {timing.texts} dev texts of {timing.task}, "
        f"{len(first.seconds[PARTS[1]])} rounds in batches of {first.batch}; median, p95 and p99 are of single texts. "
        "Other work on the machine slows all models down, so trust ratios more than times."
    )


def _cost_row(each: Measured, timing: Timing) -> tuple[str, ...]:
    cost, reference = each.efficiency, timing.models[-1].efficiency
    latency, rate, faster = cost.latency[PARTS[1]], cost.rate(PARTS[1]), cost.times_as_fast(reference, PARTS[1])
    low, middle, high = (numbers.ratio(value) for value in (faster.low, faster.value, faster.high))
    return (
        cost.name,
        numbers.score("", each.score) if timing.tasks else numbers.NONE,
        numbers.magnitude(cost.parameters),
        numbers.file_size(cost.file_bytes),
        numbers.file_size(cost.peak_bytes) if cost.peak_bytes else numbers.NONE,
        numbers.magnitude(cost.flops),
        *(numbers.duration(seconds) for seconds in (latency.median, latency.p95, latency.p99)),
        f"{rate.value:,.0f}" if rate.value >= 100 else f"{rate.value:.3g}",
        "1×" if cost is reference else f"{middle} [{low} to {high}]",
    )


# Training -------------------------------------------------------------------------------------------------------------


def training(facts: Facts) -> Iterator[Block]:
    """Show the training curves."""
    looks = {each: [(step, 100 * score) for step, score in each.looks] for each in facts.curves if each.looks}
    losses = {each: list(each.losses) for each in facts.curves if each.losses}
    # Students with the same schedule have the same λ, so that of the first stands for all.
    mixes = [figures.Line("λ", _progress(each.mixes, each.total)) for each in facts.curves if each.mixes][:1]
    if looks:
        yield _curves("Dev score during training", "mean dev score of its tasks", looks, 1, mixes)
    if losses:
        yield _curves("Loss during training", "loss", losses, 3, [])


def _curves(
    title: str, what: str, points: Mapping[Curve, list[tuple[int, float]]], digits: int, mixes: Sequence[figures.Line]
) -> Picture:
    lines = [figures.Line(each.name, _progress(own, each.total), marks=what != "loss") for each, own in points.items()]
    about = f"{title}, against the share of each model's steps"
    about += "; λ, the weight of gold labels, on the right." if mixes else "."
    rows = [
        (each.name, str(step), numbers.fixed(value, digits), _mix_at(each.mixes, step))
        for each, own in points.items()
        for step, value in _thinned(own)
    ]
    drawing = figures.lines(about, lines, "% of the steps", what, mixes, "λ")
    return Picture(drawing, about, Table(title, ("model", "step", what, "λ"), tuple(rows)))


def _progress(points: Sequence[tuple[int, float]], total: int) -> list[tuple[float, float]]:
    return [(100 * step / max(total, 1), value) for step, value in points]


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return points at about equal distances, with both ends."""
    if len(points) <= STEPS:
        return list(points)
    return [points[round(number * (len(points) - 1) / (STEPS - 1))] for number in range(STEPS)]


def _mix_at(mixes: Sequence[tuple[int, float]], step: int) -> str:
    """Write λ as it was at a step, or last before it."""
    before = [value for when, value in mixes if when <= step]
    return f"{before[-1]:.2f}" if before else numbers.NONE


# Studies --------------------------------------------------------------------------------------------------------------


def study_title(facts: Facts) -> str:
    """Name what several runs were made to show."""
    if facts.findings.get("effects"):
        return "Effects of the factors"
    return "Ablations" if facts.findings.get("deltas") else "Seeds"


def study(facts: Facts) -> Iterator[Block]:
    """Show the results of a study; a single run is none."""
    if facts.runs == 1:
        return
    yield from _seeds(facts.findings)
    for column, variants in facts.findings.get("deltas", {}).items():
        rows: list[tuple[str, ...]] = [
            (name, task, *_difference(delta["difference"]), numbers.p_value(delta["holm"]))
            for name, by_task in variants.items()
            for task, delta in by_task.items()
        ]
        last = {name: list(by_task.values())[-1]["difference"] for name, by_task in variants.items() if by_task}
        head: tuple[str, ...] = ("variant", "task", "points", "95 % interval", "p", "p, Holm")
        yield from _effects(f"{column}: difference from the unchanged recipe", head, rows, last)
    for column, by_task in facts.findings.get("effects", {}).items():
        rows = [
            (task, name, *_difference(effect)) for task, effects in by_task.items() for name, effect in effects.items()
        ]
        head = ("task", "effect", "points", "95 % interval", "p")
        yield from _effects(f"{column}: effects", head, rows, list(by_task.values())[-1])


def _effects(
    caption: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], last: Mapping[str, Mapping[str, Any]]
) -> Iterator[Block]:
    """Show differences, drawn in the mean of all tasks or in the only one."""
    bars = [_bar(name, each["delta"], _interval(each["interval"])) for name, each in last.items()]
    about = f"{caption[0].upper()}{caption[1:]}, in points, with 95 % intervals."
    if bars:
        yield Picture(figures.intervals(about, bars, "points"), about, Table(caption, head, tuple(rows), 2))


def _seeds(findings: Mapping[str, Any]) -> Iterator[Block]:
    """Show the scores of each variant over seeds: the mean of all tasks, or the only one."""
    rows = []
    for variant, columns in findings.get("summaries", {}).items():
        for column, by_task in columns.items():
            if by_task and column not in FLOORS:
                task, summary = list(by_task.items())[-1]
                seeds = len(summary["values"])
                spread = numbers.score("", summary["spread"] if seeds > 1 else None)
                middle = (numbers.score("", summary[key]) for key in ("median", "mean"))
                interval = numbers.interval("", _interval(summary["interval"]))
                rows.append((variant or "unchanged", column, task, *middle, spread, interval, str(seeds)))
    if rows:
        head = ("variant", "column", "task", "median", "mean", "deviation", "95 % interval", "seeds")
        yield Table("Scores over seeds", head, tuple(rows), 3)


def _difference(each: Mapping[str, Any]) -> tuple[str, str, str]:
    interval = numbers.interval("", _interval(each["interval"]), "+")
    return numbers.delta("", each["delta"]), interval, numbers.p_value(each["p"])


def _interval(ends: Mapping[str, float] | None) -> Interval | None:
    """Read an interval of the record."""
    return Interval(**ends) if ends else None
