"""Row by row: what the answers of the first seed show, dev set by dev set."""

from __future__ import annotations

from collections.abc import Iterator

from understill.numbers import between, figure, plain_name, share
from understill.report import figures
from understill.report.blocks import Block, Heading, Paragraph, Picture, SearchableRows, Table
from understill.report.facts import Facts, Place


def answers(facts: Facts) -> Iterator[Block]:
    """Show the confusion matrices."""
    for place in facts.places:
        if place.confusion is None:
            continue
        labels, counts = place.task.labels, place.confusion.tolist()
        name = plain_name(place.name)
        about = f"{name}: answers of {facts.main}, from left to right, by gold label, from top to bottom."
        rows = tuple((label, *map(str, line)) for label, line in zip(labels, counts, strict=True))
        table = Table(f"{name}: rows by gold label, columns by answer", ("gold", *labels), rows)
        yield Heading(name)
        yield Picture(figures.matrix(about, labels, counts), about, table)


def calibration(facts: Facts) -> Iterator[Block]:
    """Show whether models are right as often as they are sure."""
    rows: list[tuple[str, ...]] = []
    pictures: list[Block] = []
    for place in facts.places:
        name = plain_name(place.name)
        for column, found in place.calibrations.items():
            rows.append(
                (name, column, *(share(value) for value in (found.error, found.mass_error, found.largest_gap)),
                 f"{found.brier:.3f}", f"{found.log_loss:.3f}")
            )  # fmt: skip
        if place.calibrations:
            pictures.append(Heading(name))
            pictures.append(_reliability(name, place, facts.main))
    if rows:
        yield Paragraph(
            "A model that is right as often as it is sure lies on the diagonal. The expected calibration error (ECE) "
            "is the mean distance from it; for all of these figures, less is better."
        )
        head = ("task", "column", "ECE", "ECE, equal mass", "largest gap", "Brier", "log loss")
        yield Table("Calibration", head, tuple(rows), 2)
        yield from pictures


def _reliability(name: str, place: Place, main: str) -> Picture:
    # The same colours as elsewhere: first what the recipe is made for, last its teachers.
    columns = sorted(reversed(list(place.calibrations)), key=lambda column: column != main)
    series = []
    for column in columns:
        found = place.calibrations[column]
        most = max(each.rows for each in found.curve)
        points = [(each.confidence, each.accuracy) for each in found.curve]
        sizes = [(each.rows / most) ** 0.5 for each in found.curve]
        series.append(figures.Line(f"{column}, ECE {share(found.error)}", points, True, sizes))
    rows = tuple(
        (column, f"{each.low:.2f} to {each.high:.2f}", str(each.rows), share(each.confidence), share(each.accuracy),
         f"{share(each.interval.low)} to {share(each.interval.high)}")
        for column, found in place.calibrations.items()
        for each in found.curve
    )  # fmt: skip
    about = f"{name}: how often answers are right against how sure they are; the larger a mark, the more rows."
    head = ("column", "confidence", "rows", "mean confidence", "right", "95 % interval")
    return Picture(figures.reliability(about, series), about, Table(f"{name}: reliability", head, rows, 2))


def agreement(facts: Facts) -> Iterator[Block]:
    """Show how alike a model and its teachers answer."""
    rows = []
    for place in facts.places:
        found = place.agreement
        if found:
            interval = f"{share(found.interval.low)} to {share(found.interval.high)}" if found.interval else "–"
            metric = place.task.metrics[0]
            kept = share(place.retention[metric]) if metric in place.retention else "–"
            rows.append(
                (plain_name(place.name), f"{found.rows:,}", share(found.same), interval,
                 "–" if found.divergence is None else f"{found.divergence:.3f}",
                 "–" if found.correlation is None else f"{found.correlation:.3f}", kept)
            )  # fmt: skip
    if rows:
        head = ("task", "rows", "same answer", "95 % interval", "KL, nats", "correlation", "score kept")
        yield Table("How much of its teachers the student has kept", head, tuple(rows))
        yield Paragraph(
            "KL is that of the student from its teachers, at temperature 1. The score kept is of the first metric."
        )


def slices(facts: Facts) -> Iterator[Block]:
    """Show scores on parts of the rows."""
    for place in facts.places:
        rows = []
        for cut in place.cuts:
            for each in cut.slices:
                metric = next(iter(each.scores), "")
                value = figure(metric, each.scores[metric]) if metric else "–"
                rows.append((cut.by, each.name, f"{each.rows:,}", metric or "–", value, between(metric, each.interval)))
        if rows:
            yield Heading(plain_name(place.name))
            caption = f"{plain_name(place.name)}: {facts.main} on parts of the rows"
            yield Table(caption, ("by", "part", "rows", "metric", "score", "95 % interval"), tuple(rows), 2)


def examples_title(facts: Facts) -> str:
    """Name what the examples have in common."""
    taught = any(place.examples.against == "teachers" for place in facts.places)
    return "Where student and teachers differ" if taught else "Where the model is wrong"


def examples(facts: Facts) -> Iterator[Block]:
    """Show the rows on which a model and its teachers differ, or on which it is wrong."""
    for place in facts.places:
        found, task, kind = place.examples, place.task, place.task.kind
        name = plain_name(place.name)
        texts = task.text[:1] if kind.grouped else task.text
        other = "its teachers differ" if found.against == "teachers" else "the gold label differ"
        yield Heading(name)
        shown = f", the {len(found.shown):,} clearest of them here" if len(found.shown) < found.total else ""
        who = "The student" if facts.main == "student" else "The model"
        yield Paragraph(
            f"{who} and {other}{kind.far} on {found.total:,} of {found.rows:,} {kind.units}{shown}; "
            "the clearest come first."
        )
        if found.shown:
            yield SearchableRows(name, (*texts, "gold", *found.answered_by), found)
