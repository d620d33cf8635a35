"""Overview: what was run, and the figures that are seen first."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from understill import numbers
from understill.bench.efficiency import PARTS
from understill.data.load import FEW_DEV_ROWS
from understill.errors import counted
from understill.pipeline.comparison import averages
from understill.pipeline.shortfalls import Shortfall, shortfalls
from understill.recipe.schema import EncoderSpec
from understill.report.blocks import Block, Code, Heading, Paragraph, Table, Tiles
from understill.report.facts import Facts, ScoreRow
from understill.tasks import Task
from understill.tasks.metric import is_error


def overview(facts: Facts) -> Iterator[Block]:
    """Show models that are below what they should beat, and what was run, when and where."""
    for each in warnings(facts):
        yield Paragraph(each.sentence, strong=True)
    yield Tiles(tuple(_tiles(facts)))
    yield Paragraph(_recipe_in_words(facts))
    rows = []
    for name, task in facts.tasks.items():
        if dev := ", ".join(f"{place.rows:,}" for place in facts.places if place.task.name == name):
            train = f"{facts.train_rows[name]:,}" if name in facts.train_rows else "–"
            rows.append((name, _kind(task), ", ".join(task.metrics), train, dev))
    yield Table("Tasks", ("task", "kind", "metrics", "training rows", "dev rows"), tuple(rows), 3)
    made = facts.made_with
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(facts.finished))
    yield Table(
        "When and where",
        ("", ""),
        (
            ("finished", when),
            ("training time, all models", numbers.duration(facts.training_seconds)),
            ("machine", f"{made['system']}, {made['device']}"),
            ("versions", ", ".join(f"{key} {made[key]}" for key in ("understill", "python", "torch", "transformers"))),
            ("folder", facts.folder),
        ),
        2,
    )


def _tiles(facts: Facts) -> Iterator[tuple[str, str]]:
    mean = means(facts)
    if facts.main in mean:
        scored = {row.place for row in _primary(facts)}
        what = f"mean dev score of {len(scored)} tasks" if len(scored) > 1 else "dev score"
        fewest = min((place.rows for place in facts.places if place.name in scored), default=FEW_DEV_ROWS)
        if fewest < FEW_DEV_ROWS:
            where = ", one of them on" if len(scored) > 1 else ", of"
            what += f"{where} only {counted(fewest, 'dev row')}: mostly chance"
        yield numbers.score("", mean[facts.main]), f"{facts.main}: {what}"
    for versus in facts.versus:
        gain = versus.primary
        if (versus.first, versus.second) == ("baseline", facts.main) and not is_error(gain.metric):
            interval = numbers.interval("", gain.difference.interval, "+")
            what = f"against the baseline without {facts.aid} (95 % interval {interval})"
            yield numbers.delta("", gain.difference.delta), what
    if facts.retention:
        kept = facts.retention.kept
        ends = f" (95 % interval {numbers.percents(kept.interval)})" if kept.interval else ""
        yield numbers.percent(kept.value), f"of the teachers' score kept{ends}"
    if facts.timing and len(facts.timing.models) > 1:
        first, last = (facts.timing.models[place].efficiency for place in (0, -1))
        if last.name != "baseline":
            yield (
                numbers.ratio(first.times_as_fast(last, PARTS[1]).value),
                f"as fast as {last.name}, from text to answer",
            )
            yield numbers.percent(first.parameters / last.parameters), f"of the parameters of {last.name}"


def warnings(facts: Facts) -> list[Shortfall]:
    """Return the models that are below what they should beat."""
    rows = _primary(facts)
    scores = {
        column: {row.place.split("/")[0]: 100 * row.scores[column].mean for row in rows if column in row.scores}
        for column in facts.columns
    }
    return shortfalls(scores, facts.recipe)


def means(facts: Facts) -> dict[str, float]:
    """Return each column's mean over the primary metrics of all tasks, where it has them all; errors do not count."""
    rows = _primary(facts)
    return {
        # In points, as the terminal adds them up: a half is then rounded alike.
        column: sum(100 * row.scores[column].mean for row in rows) / len(rows) / 100
        for column in facts.columns
        if rows and all(column in row.scores for row in rows)
    }


def _primary(facts: Facts) -> list[ScoreRow]:
    """Return the rows of the tasks' primary metrics, as far as they take part in the mean."""
    rows = ((row, facts.tasks[row.place.split("/")[0]]) for row in facts.scores)
    return [row for row, task in rows if row.metric == task.metrics[0] and averages(row.place, task)]


def _recipe_in_words(facts: Facts) -> str:
    """Describe the recipe in a sentence or two."""
    recipe = facts.recipe
    own = [name for name, task in facts.tasks.items() if task.head == name]
    parts = [f"{len(own)} tasks" if len(own) > 1 else f"one task, {own[0]}"]
    if recipe.teachers:
        kinds = "; ".join(dict.fromkeys(teacher.describe() for teacher in recipe.teachers))
        parts.append(f"{counted(len(recipe.teachers), 'teacher')} ({kinds})")
        parts.append(f"a student made of {_encoder(recipe.settings(recipe.student).encoder)}")
        if "baseline" in facts.columns:
            parts.append(f"the same student without {facts.aid} as the baseline")
    else:
        parts.append(f"models made of {_encoder(recipe.encoder)}")
    words = f"{'; '.join(parts)}."
    if facts.runs > 1:
        words += f" {facts.runs} runs in all, {facts.seeds} of them with the unchanged recipe, one for each seed."
        words += " Analyses of single rows are of the first seed, which was not chosen for its score."
    else:
        words += f" One seed, {recipe.seed}: scores of other seeds may differ."
    return words[0].upper() + words[1:]


def _encoder(encoder: EncoderSpec) -> str:
    name = Path(encoder.name).name  # of a folder, what it is called
    return f"{counted(encoder.layers, 'layer')} of {name}" if encoder.layers else name


def _kind(task: Task) -> str:
    return f"{task.kind.summary(task)}, {'two texts' if task.pair else 'one text'}"


# The recipe -----------------------------------------------------------------------------------------------------------


def reproduction(facts: Facts) -> Iterator[Block]:
    """Show the recipe, and what to type to get the same again."""
    version = facts.made_with["understill"]
    yield Paragraph(
        f"This recipe, run by understill {version} in the folder where it was run first, gives the same models again; "
        "on a CPU bit for bit."
    )
    yield Code(f"understill run recipe.yaml\nunderstill report {shlex.quote(facts.folder)}")
    yield Heading("recipe.yaml")
    yield Code(facts.recipe.to_yaml())
