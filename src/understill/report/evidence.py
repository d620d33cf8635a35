"""Evidence: scores and what may be claimed of them, cost, training, and what several runs show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from understill.errors import listed
from understill.evaluate.efficiency import PARTS
from understill.evaluate.significance import Interval, stars
from understill.numbers import (
    between,
    chance,
    change,
    change_between,
    figure,
    large,
    milliseconds,
    plain_name,
    size,
    times,
)
from understill.pipeline.record import BESIDE, FLOORS
from understill.pipeline.shortfalls import LEGEND, marks_of
from understill.report import figures
from understill.report.blocks import Block, Paragraph, Picture, Table
from understill.report.facts import Facts, Score, Timing, Versus
from understill.report.overview import means, warnings
from understill.tasks.metric import is_error

#: Below this p-value, corrected by Holm, a difference has one star, two, three.
STARS = "* p < 0.05, ** p < 0.01, *** p < 0.001, after Holm's correction for all comparisons of this table"


def scores(facts: Facts) -> Iterator[Block]:
    """Show all scores, and what may be claimed of them."""
    for versus in facts.versus:
        yield Paragraph(_claim(versus), strong=True)
    marks, below = _marks(facts), marks_of(warnings(facts), facts.tasks)
    rows = []
    for row in facts.scores:
        cells = [
            _cell(row.metric, row.scores.get(column), marks.get(key, "") + below.get(key, ""))
            for column in facts.columns
            for key in [(row.place, row.metric, column)]
        ]
        rows.append((plain_name(row.place), row.metric, *cells))
    averages = means(facts)
    if len({row.place.split("/")[0] for row in facts.scores}) > 1 and averages:
        rows.append(
            (
                "mean",
                "first of each",
                *(figure("", averages[name]) if name in averages else "–" for name in facts.columns),
            )
        )
    brackets = "95 % interval over rows in brackets"
    spread = f"mean ± standard deviation over seeds; of one seed, {brackets}" if facts.seeds > 1 else brackets
    caption = f"Dev scores ×100; {spread}" + (f"; {LEGEND}" if below else "")
    yield Table(caption, ("task", "metric", *facts.columns), tuple(rows), 2)
    if facts.versus:
        yield from _comparisons(facts)


def _claim(versus: Versus) -> str:
    """Say what may be claimed, with the sides under the names that the report has for them."""
    if versus.found.claims:
        said = versus.found.claim_of(_article(versus.first), _article(versus.second))
        return said[0].upper() + said[1:]
    names = listed([plain_name(row.place) for row in versus.found.compared], "and")
    sides = f"{_article(versus.second)} against {_article(versus.first)}"
    return f"Nothing may be claimed of {sides}: on {names} the difference may be chance."


def _article(column: str) -> str:
    return f"the {column}" if column in BESIDE or column == "student" else column


def _marks(facts: Facts) -> dict[tuple[str, str, str], str]:
    """Return the stars of the main column, which are about the baseline."""
    return {
        (row.place, row.metric, versus.second): stars(row.p)
        for versus in facts.versus
        if versus.first.endswith("baseline")
        for row in versus.found.compared
    }


def _cell(metric: str, score: Score | None, mark: str) -> str:
    if score is None:
        return "–"
    text = figure(metric, score.summary.mean)
    if len(score.summary.values) > 1:
        return f"{text} ± {figure(metric, score.summary.spread)}{mark}"
    return f"{text}{mark} [{between(metric, score.interval)}]" if score.interval else text + mark


def _comparisons(facts: Facts) -> Iterator[Block]:
    rows, bars = [], []
    for versus in facts.versus:
        for row in versus.found.compared:
            found, name = row.difference, f"{versus.second} − {versus.first}"
            rows.append(
                (
                    name,
                    plain_name(row.place),
                    row.metric,
                    change(row.metric, found.delta) + stars(row.p),
                    change_between(row.metric, found.interval),
                    chance(found.p),
                    chance(row.p),
                    size(found.effect),
                    found.test,
                )
            )
            if not is_error(row.metric):
                bars.append(_bar(f"{plain_name(row.place)}, {_against(versus)}", found.delta, found.interval))
    head = ("what", "task", "metric", "points", "95 % interval", "p", "p, Holm", "effect", "test")
    table = Table("Differences", head, tuple(rows), 3)
    if bars:
        about = "Differences in points with their 95 % intervals; one that crosses the line at 0 may be chance."
        yield Picture(figures.intervals(about, bars, "points"), about, table)
    else:
        yield table
    yield Paragraph(
        f"{STARS}; in the table of scores they are about the baseline. Each interval is of its own comparison "
        "alone and is not corrected, so one that leaves out 0 may be without a star. The effect is the difference in "
        "standard deviations of what one row adds to it. What was chosen on a dev set looks better on it than on new "
        "rows, and no test knows of that."
    )


def _against(versus: Versus) -> str:
    return f"{versus.second} − {versus.first}"


def _bar(name: str, delta: float, interval: Interval | Sequence[float] | None) -> figures.Bar:
    low, high = (None, None) if interval is None else (100 * interval[0], 100 * interval[1])
    return figures.Bar(name, 100 * delta, low, high)


# Cost -----------------------------------------------------------------------------------------------------------------


def cost(timing: Timing | None) -> Iterator[Block]:
    """Show how well models do against what they cost."""
    if timing is None:
        return
    rows = []
    reference = timing.models[-1].efficiency
    for each in timing.models:
        found = each.efficiency
        latency, rate = found.latency[PARTS[1]], found.rate(PARTS[1])
        faster = found.times_as_fast(reference, PARTS[1])
        compared = (
            f"{times(faster.value)} [{times(faster.low)} to {times(faster.high)}]" if found is not reference else "1×"
        )
        rows.append(
            (
                found.name,
                figure("", each.score) if timing.tasks else "–",
                large(found.parameters),
                f"{found.file_bytes / 1e6:.1f} MB",
                f"{found.peak_bytes / 1e6:.0f} MB" if found.peak_bytes else "–",
                large(found.flops),
                milliseconds(latency.median),
                milliseconds(latency.p95),
                milliseconds(latency.p99),
                f"{rate.value:,.0f}" if rate.value >= 100 else f"{rate.value:.3g}",
                compared,
            )
        )
    head = (
        "model", "score", "parameters", "file", "memory", "operations a text", "median", "p95", "p99", "texts/s",
        f"× {reference.name}",
    )  # fmt: skip
    caption = f"Cost of a text, from text to answer, on {reference.device} in {reference.precision}"
    table = Table(caption, head, tuple(rows))
    if timing.tasks:
        points = [
            (each.efficiency.name, 1000 * each.efficiency.latency[PARTS[1]].median, 100 * each.score,
             float(each.efficiency.parameters))
            for each in timing.models
        ]  # fmt: skip
        what = "mean dev score" if len(timing.tasks) > 1 else f"dev score of {timing.tasks[0]}"
        how = "against the median time of one text. Areas are parameters; up and to the left is better."
        about = f"{what[0].upper()}{what[1:]} {how}"
        yield Picture(figures.scatter(about, points, "milliseconds for one text", what), about, table)
    else:
        yield table
    first = timing.models[0].efficiency
    yield Paragraph(
        f"Measured when this report was written, side by side on {timing.texts} dev texts of {timing.task}, "
        f"{len(first.seconds[PARTS[1]])} rounds in batches of {first.batch}; median, p95 and p99 are of single texts. "
        "A machine that does other things meanwhile makes all of them slower, so ratios are safer than times."
    )


# Training -------------------------------------------------------------------------------------------------------------


def training(facts: Facts) -> Iterator[Block]:
    """Show how the trainings went."""
    # Models that are taught alike have the same λ, so that of the first stands for all.
    mixes = [figures.Line("λ", _done(each.mixes, each.total)) for each in facts.curves if each.mixes][:1]
    for title, what, attribute in (
        ("Dev score during training", "mean dev score of its tasks", "looks"),
        ("Loss during training", "loss", "losses"),
    ):
        curves = [each for each in facts.curves if getattr(each, attribute)]
        if not curves:
            continue
        scale = 100 if attribute == "looks" else 1
        series = [
            figures.Line(
                each.name,
                [(x, scale * y) for x, y in _done(getattr(each, attribute), each.total)],
                attribute == "looks",
            )
            for each in curves
        ]
        right = mixes if attribute == "looks" else []
        about = f"{title}, against the share of each model's steps" + (
            "; λ, the weight of gold labels, on the right." if right else "."
        )
        drawing = figures.lines(about, series, "% of the steps", what, right, "λ")
        rows = [
            (each.name, str(step), f"{scale * value:.{1 if scale == 100 else 3}f}", _at(each.mixes, step))
            for each in curves
            for step, value in _some(getattr(each, attribute))
        ]
        yield Picture(drawing, about, Table(title, ("model", "step", what, "λ"), tuple(rows)))


def _done(points: Sequence[tuple[int, float]], total: int) -> list[tuple[float, float]]:
    return [(100 * step / max(total, 1), value) for step, value in points]


def _some(points: Sequence[tuple[int, float]], most: int = 20) -> list[tuple[int, float]]:
    """Return points at about equal distances, with both ends."""
    if len(points) <= most:
        return list(points)
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]


def _at(mixes: Sequence[tuple[int, float]], step: int) -> str:
    """Write λ as it was at a step, or last before it."""
    before = [value for when, value in mixes if when <= step]
    return f"{before[-1]:.2f}" if before else "–"


# Studies --------------------------------------------------------------------------------------------------------------


def study_title(facts: Facts) -> str:
    """Name what several runs were made to show."""
    if facts.findings.get("effects"):
        return "Effects of the factors"
    return "Ablations" if facts.findings.get("deltas") else "Seeds"


def study(facts: Facts) -> Iterator[Block]:
    """Show what the runs of a study came to."""
    found = facts.findings
    yield from _seeds(found, facts.main)
    for column, variants in found.get("deltas", {}).items():
        rows: list[tuple[str, ...]] = []
        bars = []
        for name, by_task in variants.items():
            for task, delta in by_task.items():
                difference = delta["difference"]
                rows.append((name, task, *_difference(difference), chance(delta["holm"])))
            task, delta = list(by_task.items())[-1]
            bars.append(_bar(name, delta["difference"]["delta"], _pair(delta["difference"]["interval"])))
        head = ("variant", "task", "points", "95 % interval", "p", "p, Holm")
        yield from _effects_shown(f"{column}: difference from the recipe as it is", head, rows, bars)
    for column, by_task in found.get("effects", {}).items():
        rows = [
            (task, name, *_difference(effect)) for task, effects in by_task.items() for name, effect in effects.items()
        ]
        last = list(by_task.values())[-1]
        bars = [_bar(name, effect["delta"], _pair(effect["interval"])) for name, effect in last.items()]
        yield from _effects_shown(f"{column}: effects", ("task", "effect", "points", "95 % interval", "p"), rows, bars)


def _effects_shown(
    caption: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], bars: Sequence[figures.Bar]
) -> Iterator[Block]:
    about = f"{caption[0].upper()}{caption[1:]}, in points, with 95 % intervals over seeds."
    if bars:
        yield Picture(figures.intervals(about, bars, "points"), about, Table(caption, head, tuple(rows), 2))


def _seeds(found: Mapping[str, Any], main: str) -> Iterator[Block]:
    """Show what each variant came to over seeds, in the mean of all tasks or in the only one."""
    rows = []
    for variant, columns in found.get("summaries", {}).items():
        for column, by_task in columns.items():
            if by_task and column not in FLOORS:
                task, summary = list(by_task.items())[-1]
                interval = _pair(summary["interval"])
                rows.append(
                    (variant or "as it is", column, task, figure("", summary["median"]), figure("", summary["mean"]),
                     figure("", summary["spread"]) if len(summary["values"]) > 1 else "–",
                     between("", interval), str(len(summary["values"])))
                )  # fmt: skip
    if rows:
        head = ("variant", "column", "task", "median", "mean", "deviation", "95 % interval", "seeds")
        yield Table("What the seeds came to", head, tuple(rows), 3)


def _difference(found: Mapping[str, Any]) -> tuple[str, str, str]:
    return change("", found["delta"]), change_between("", _pair(found["interval"])), chance(found["p"])


def _pair(interval: Any) -> Interval | None:
    """Read an interval of the record."""
    if interval is None:
        return None
    return Interval(interval["low"], interval["high"]) if isinstance(interval, Mapping) else Interval(*interval)
