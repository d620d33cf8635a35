"""The language model: its score and the student's against what 1,000 answers of each cost, and what it got wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from understill import numbers
from understill.bench.efficiency import PARTS
from understill.numbers import percent, plain_name
from understill.report.blocks import Block, Heading, Paragraph, Table
from understill.report.facts import Facts, Place

#: Rows that are shown on which the student and the language model differ, and characters of each text.
SHOWN, LONG = 10, 300


def language_model(facts: Facts) -> Iterator[Block]:
    """Show what language models answered, what that cost, and where it is probably wrong."""
    if not facts.asked:
        return
    yield from _label_source(facts)
    yield _costs(facts)
    yield Paragraph(
        "Costs are of 1,000 rows. Those of a language model are what its server counted and how long it took, so many "
        "requests at a time as the recipe says; those of other models were measured here, in batches. Money is by the "
        "prices of the recipe; the machine that a model of your own runs on is not counted."
    )
    for place in facts.places:
        yield from _differences(facts, place)
    yield from _silence(facts)


def _label_source(facts: Facts) -> Iterator[Block]:
    """Say what scores mean where labels are answers of a language model."""
    for name, spec in facts.recipe.tasks.items():
        if "dev" in spec.silver:
            yield Paragraph(
                f"{name}: there is no hand-labelled row. Its dev labels are the language model's own answers, so every "
                "score above says how far a model agrees with the language model, and none how often it is right. The "
                "language model itself has 100 by construction. Label 200 rows by hand, name them under dev, and run "
                "again: nothing that was answered is paid for twice.",
                strong=True,
            )
        elif "train" in spec.silver:
            yield Paragraph(
                f"{name}: no training row was labelled by hand; the language model answered them all. Dev was labelled "
                "by hand, so scores and comparisons on it mean what they say. The baseline, where there is one, is the "
                "same student taught with the language model's first choices as if they were gold."
            )


def _costs(facts: Facts) -> Table:
    """Put scores beside costs, a line for each task and model.

    Where a task has further teachers, their joint score is no language model's.
    """
    rows = []
    timed = {each.efficiency.name: each.efficiency for each in facts.timing.models} if facts.timing else {}
    for place in facts.places:
        name, task, metric = plain_name(place.name), place.task.name, place.task.metrics[0]
        scores = next((row.scores for row in facts.scores if (row.place, row.metric) == (place.name, metric)), {})
        written = {column: numbers.mean_spread(metric, summary) for column, summary in scores.items()}
        for teacher, asked in facts.asked.items():
            if task in asked and "teachers" in scores:
                answered = place.agreement.rows if place.agreement else place.rows
                title = f"{teacher} ({asked[task]['model']})"
                score = written["teachers"] if _alone(facts, task) else numbers.NONE
                rows.append((name, title, f"{answered:,}", score, *_asked(asked[task])))
        for column in (each for each in (facts.main, "baseline") if each in scores):
            seconds = numbers.duration(1000 / timed[column].rate(PARTS[1]).value) if column in timed else numbers.NONE
            rows.append((name, column, f"{place.rows:,}", written[column], "0", seconds, "0"))
    head = ("task", "model", "dev rows", "score", "tokens", "time", "money")
    return Table("Score against the cost of 1,000 answers", head, tuple(rows), 2)


def _asked(asked: Mapping[str, Any]) -> tuple[str, str, str]:
    """Write the tokens, time and money of 1,000 answers."""
    each = 1000 / max(asked["rows"], 1)
    money = "no prices given" if asked["cost"] is None else f"{asked['cost'] * each:.4f}"
    tokens = each * (asked["tokens_in"] + asked["tokens_out"])
    return f"{tokens:,.0f}", numbers.duration(each * asked["seconds"]), money


def _differences(facts: Facts, place: Place) -> Iterator[Block]:
    """Show rows where the language model is probably wrong: the student, which never saw them, is sure of another."""
    agreed, rows = place.agreement, place.examples
    asked = any(place.task.name in tasks for tasks in facts.asked.values())
    if not asked or not agreed or rows.against != "teachers":
        return
    who = "language model" if _alone(facts, place.task.name) else "teachers"
    yield Heading(plain_name(place.name))
    if agreed.same is not None:
        ends = numbers.percents(agreed.interval)
        yield Paragraph(
            f"Student and {who} agree on {percent(agreed.same)} (95 % interval {ends}) of {agreed.rows:,} "
            "rows that the student never saw."
        )
    shown = tuple((*(text[:LONG] for text in each.texts), each.gold, *each.answers) for each in rows.shown[:SHOWN])
    if shown:
        columns = tuple(place.task.text[: len(rows.shown[0].texts)])
        caption = f"{plain_name(place.name)}: where one of them is probably wrong, the clearest cases first"
        yield Table(caption, (*columns, "dev label", *rows.answered_by), shown, len(columns) + 9)


def _alone(facts: Facts, task: str) -> bool:
    """Tell whether a task has no teacher but the language model."""
    return sum(teacher.teaches_task(task) for teacher in facts.recipe.teachers) == 1


def _silence(facts: Facts) -> Iterator[Block]:
    """Count the rows without an answer, with examples."""
    for name, tasks in facts.asked.items():
        for task, asked in tasks.items():
            hard = asked["rows"] - asked["probabilities"]
            yield Paragraph(
                f"{name} was asked about {asked['rows'] + asked['silences']:,} rows of {task} in {asked['requests']:,} "
                f"requests. {asked['probabilities']:,} answers came with probabilities, {hard:,} without; "
                f"{asked['silences']:,} rows got no answer that could be read, and take no part."
            )
            if asked["examples"]:
                lines = tuple((" / ".join(texts), reply) for texts, reply in asked["examples"])
                yield Table(f"{task}: answers of {name} that cannot be read", ("row", "answer"), lines, 9)
