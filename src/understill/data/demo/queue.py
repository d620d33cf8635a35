"""Demo task `queue`: which of twelve desks a ticket belongs to, although it often mentions the business of another."""

from __future__ import annotations

from understill.data.demo.phrases import DATES, DAYS, PHRASES, PRODUCTS, Phrases
from understill.data.demo.templates import Columns, Draws, capital, fill, flat, objects
from understill.tasks import CLASSIFICATION, Task

SAYINGS: dict[str, Phrases] = PHRASES["queue"]["sayings"]
FRAMES: Phrases = PHRASES["queue"]["frames"]
LABELS = tuple(SAYINGS)
TASK = Task("queue", CLASSIFICATION, ("message",), "label", LABELS, metrics=("accuracy", "macro_f1"))
WEIGHTS = (3, 3) + (1,) * 9


def make(draws: Draws) -> Columns:
    """Make the rows of a block."""
    labels = draws.below(len(LABELS))
    table, sayings = tuple(SAYINGS.values()), flat(tuple(SAYINGS.values()))
    product, other, day = draws.pick(PRODUCTS), draws.pick(PRODUCTS), draws.pick(DAYS)
    y = fill(sayings, draws.pick_from(table, labels), product=product, day=day)
    x = fill(sayings, draws.pick_from(table, draws.other(labels, len(LABELS))), product=other, day=draws.pick(DAYS))
    cores = fill(FRAMES.all, draws.weighted(WEIGHTS), x=x, y=y, Y=capital(y), date=draws.pick(DATES))
    return {"message": draws.assign(cores), "label": objects(LABELS)[draws.noisy(labels, len(LABELS))]}
