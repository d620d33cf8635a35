"""Error analysis: confusion matrices, calibration, agreement, slices and examples of each dev set."""

from __future__ import annotations

from collections.abc import Iterator

from understill import numbers
from understill.numbers import percent, plain_name
from understill.report import figures
from understill.report.blocks import Block, Heading, Paragraph, Picture, SearchableRows, Table
from understill.report.facts import Facts, Place


def confusion(facts: Facts) -> Iterator[Block]:
    """Show the confusion matrices."""
    for place in facts.places:
        if place.confusion is None:
            continue
        labels, counts = place.task.labels, place.confusion.tolist()
        name = plain_name(place.name)
        about = f"{name}: gold labels from top to bottom, predictions of {facts.main} from left to right."
        rows = tuple((label, *map(str, line)) for label, line in zip(labels, counts, strict=True))
        table = Table(f"{name}: rows by gold label, columns by prediction", ("gold", *labels), rows)
        yield Heading(name)
        yield Picture(figures.matrix(about, labels, counts), about, table)


def calibration(facts: Facts) -> Iterator[Block]:
    """Show how well confidence and accuracy agree."""
    rows: list[tuple[str, ...]] = []
    pictures: list[Block] = []
    for place in facts.places:
        name = plain_name(place.name)
        for column, each in place.calibrations.items():
            errors = (percent(each.error), numbers.percents(each.interval), percent(each.mass_error))
            others = (percent(each.largest_gap), f"{each.brier:.3f}", f"{each.log_loss:.3f}")
            rows.append((name, column, *errors, *others))
        if place.calibrations:
            pictures += [Heading(name), _reliability(name, place, facts.main)]
    if rows:
        yield Paragraph(
            "A model whose confidence equals its accuracy lies on the diagonal. The expected calibration error (ECE) "
            "is the mean distance from it; for all of these figures, less is better."
        )
        head = ("task", "column", "ECE", "95 % interval", "ECE, equal mass", "largest gap", "Brier", "log loss")
        yield Table("Calibration", head, tuple(rows), 2)
        yield from pictures


def _reliability(name: str, place: Place, main: str) -> Picture:
    # The same colours as elsewhere: the student or main model first, its teachers last.
    columns = sorted(reversed(list(place.calibrations)), key=lambda column: column != main)
    series = []
    for column in columns:
        each = place.calibrations[column]
        most = max(bucket.rows for bucket in each.curve)
        points = [(bucket.confidence, bucket.accuracy) for bucket in each.curve]
        sizes = [(bucket.rows / most) ** 0.5 for bucket in each.curve]
        series.append(figures.Line(f"{column}, ECE {percent(each.error)}", points, True, sizes))
    rows = tuple(
        (column, f"{bucket.low:.2f} to {bucket.high:.2f}", str(bucket.rows), percent(bucket.confidence),
         percent(bucket.accuracy), numbers.percents(bucket.interval))
        for column, each in place.calibrations.items()
        for bucket in each.curve
    )  # fmt: skip
    about = f"{name}: accuracy against confidence; the larger a mark, the more rows."
    head = ("column", "confidence", "rows", "mean confidence", "accuracy", "95 % interval")
    return Picture(figures.reliability(about, series), about, Table(f"{name}: reliability", head, rows, 2))


def agreement(facts: Facts) -> Iterator[Block]:
    """Show how far the model and its teachers agree."""
    rows = []
    for place in facts.places:
        if each := place.agreement:
            alike = (percent(each.same), numbers.percents(each.interval))
            other = (numbers.NONE if value is None else f"{value:.3f}" for value in (each.divergence, each.correlation))
            kept = percent(place.retention.get(place.task.metrics[0]))
            rows.append((plain_name(place.name), f"{each.rows:,}", *alike, *other, kept))
    if rows:
        head = ("task", "rows", "same prediction", "95 % interval", "KL, nats", "correlation", "score kept")
        yield Table("Agreement of the student with its teachers", head, tuple(rows))
        yield Paragraph(
            "KL is the divergence KL(teachers‖student) at temperature 1. The score kept is the student's primary "
            "metric as a share of its teachers'."
        )


def slices(facts: Facts) -> Iterator[Block]:
    """Show scores on slices of the rows."""
    for place in facts.places:
        rows = []
        for cut in place.cuts:
            for each in cut.slices:
                metric, value = next(iter(each.scores.items()), ("", None))
                interval = numbers.interval(metric, each.interval)
                name = metric or numbers.NONE
                rows.append((cut.by, each.name, f"{each.rows:,}", name, numbers.score(metric, value), interval))
        if rows:
            yield Heading(plain_name(place.name))
            caption = f"{plain_name(place.name)}: {facts.main} on slices of the rows"
            yield Table(caption, ("by", "slice", "rows", "metric", "score", "95 % interval"), tuple(rows), 2)


def examples_title(facts: Facts) -> str:
    """Name what the examples have in common."""
    taught = any(place.examples.against == "teachers" for place in facts.places)
    return "Where student and teachers differ" if taught else "Where the model is wrong"


def examples(facts: Facts) -> Iterator[Block]:
    """Show the rows on which a model and its teachers differ, or on which it is wrong."""
    for place in facts.places:
        rows, task, kind = place.examples, place.task, place.task.kind
        name = plain_name(place.name)
        texts = task.text[:1] if kind.grouped else task.text
        other = "its teachers differ" if rows.against == "teachers" else "the gold label differ"
        yield Heading(name)
        shown = f", the {len(rows.shown):,} clearest of them here" if len(rows.shown) < rows.total else ""
        who = "The student" if facts.main == "student" else "The model"
        if rows.total:
            count, order = (
                f"{rows.total:,} of {rows.rows:,} {kind.units}{shown}",
                "; the clearest differences come first",
            )
        else:
            count, order = f"none of {rows.rows:,} {kind.units}", ""
        yield Paragraph(f"{who} and {other}{kind.far} on {count}{order}.")
        if rows.shown:
            yield SearchableRows(name, (*texts, "gold", *rows.answered_by), rows)
