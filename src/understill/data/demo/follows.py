"""Demo task `follows`: does a statement follow from a ticket, contradict it, or stay open."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understill.data.demo.phrases import CATALOGUE, CATEGORIES, DAYS, PER_CATEGORY, PHRASES, Phrases, per_category
from understill.data.demo.templates import Columns, Draws, Ints, Texts, fill, flat, objects
from understill.tasks import CLASSIFICATION, Task

LABELS = ("follows", "open", "contradicts")
TASK = Task("follows", CLASSIFICATION, ("ticket", "statement"), "label", LABELS)

#: Yes-or-no facts, each with its phrases: ticket yes, ticket no, statement yes, statement no.
STATES: dict[str, dict[str, Phrases]] = PHRASES["follows"]["states"]
COLOURS = ("red", "blue", "green", "black")
NAMES = ("Maria", "Tom", "Aisha", "Peter", "Lena", "Omar", "Grace", "Paul", "Nadia", "Felix", "Ines", "Hugo", "Anna",
         "David", "Sara", "Ben", "Julia", "Adam", "Laura", "Simon")  # fmt: skip

#: The facts a ticket may mention; a statement is about one of them.
FACTS = ("category", "person", "day", "colour", *STATES)
WEIGHTS = (1.2, 0.5, 0.6, 1.0, 1.5, 1.5, 1.5)
FACTS_MENTIONED = 2
DENIALS = 0.2  # the share of negated statements

#: What a statement may say; {by}, {to} and the rest are the values it claims.
STATEMENTS: tuple[Phrases, ...] = (
    *PHRASES["follows"]["statements"],
    *(state[f"statement {side}"] for state in STATES.values() for side in ("yes", "no")),
)
VERBS, CUSTOMERS = (PHRASES["follows"][name] for name in ("verbs", "customers"))
VALUES = np.array([len(CATEGORIES), 2, len(DAYS.all), len(COLOURS), *(2 for _ in STATES)])
SLOTS = 4  # the facts before the yes-or-no ones


def make(draws: Draws) -> Columns:
    """Make the rows of a block."""
    rows = np.arange(draws.rows)
    labels, about = draws.below(3), draws.weighted(WEIGHTS)
    claim = np.stack([draws.below(int(end)) for end in VALUES], axis=1)
    # Most statements say that something is so, as people do.
    claim[:, SLOTS:] = np.where(draws.chance(DENIALS)[:, None], 1, 0)
    mentioned = _mentioned(draws, labels, about)
    truth = np.stack([draws.below(int(end)) for end in VALUES], axis=1)
    stated = claim[rows, about]
    truth[rows, about] = np.where(labels == 2, draws.other(stated, VALUES[about]), stated)
    first = draws.below(len(NAMES))
    pair = np.stack([first, draws.other(first, len(NAMES))])
    return {
        "ticket": draws.assign(_tickets(draws, truth, mentioned, pair), numbers=False),
        "statement": _statements(draws, about, claim, pair).tolist(),
        "label": objects(LABELS)[draws.noisy(labels, 3)],
    }


def _mentioned(draws: Draws, labels: Ints, about: Ints) -> npt.NDArray[np.bool_]:
    """Choose the facts that each ticket tells; the one in question is among them unless it is to stay open."""
    rows = np.arange(draws.rows)
    keys = draws.rng.random((draws.rows, len(FACTS)))
    keys[rows, about] = np.where(labels == 1, 2.0, -1.0)
    return np.asarray(keys.argsort(axis=1).argsort(axis=1) < FACTS_MENTIONED)


def _tickets(draws: Draws, truth: Ints, mentioned: npt.NDArray[np.bool_], pair: Ints) -> Texts:
    """Write one sentence on the purchase, then one for each yes-or-no fact that is mentioned."""
    names = objects([product for names in CATALOGUE.values() for product in names])
    products = per_category(draws.split)
    by, to = (objects(NAMES)[side] for side in _sides(truth[:, 1], pair))
    texts = fill(
        ("{by} {verb} the {colour}{product}{to}{day}.",),
        np.zeros(draws.rows, dtype=np.int64),
        verb=draws.pick(VERBS),
        product=np.where(mentioned[:, 0], names[truth[:, 0] * PER_CATEGORY + draws.below(products)], "item"),
        by=np.where(mentioned[:, 1], by, draws.pick(CUSTOMERS)),
        to=np.where(mentioned[:, 1], " for " + to, ""),
        day=np.where(mentioned[:, 2], objects([f" on {day}" for day in DAYS.all])[truth[:, 2]], ""),
        colour=np.where(mentioned[:, 3], objects([f"{colour} " for colour in COLOURS])[truth[:, 3]], ""),
    )
    for number, state in enumerate(STATES.values(), SLOTS):
        sides = (state["ticket yes"], state["ticket no"])
        sentences = objects(flat(sides))[draws.pick_from(sides, truth[:, number])]
        texts = texts + np.where(mentioned[:, number], " " + sentences, "")
    return texts


def _statements(draws: Draws, about: Ints, claim: Ints, pair: Ints) -> Texts:
    """Write one short claim about the fact in question."""
    value = claim[np.arange(draws.rows), about]
    kind = np.where(about < SLOTS, about, SLOTS + 2 * (about - SLOTS) + value)
    by, to = (objects(NAMES)[side] for side in _sides(claim[:, 1], pair))
    return fill(
        flat(STATEMENTS),
        draws.pick_from(STATEMENTS, kind),
        by=by,
        to=to,
        category=objects(CATEGORIES)[claim[:, 0]],
        day=objects(DAYS.all)[claim[:, 2]],
        colour=objects(COLOURS)[claim[:, 3]],
    )


def _sides(swapped: Ints, pair: Ints) -> tuple[Ints, Ints]:
    """Say who gives and who gets."""
    return np.where(swapped == 1, pair[1], pair[0]), np.where(swapped == 1, pair[0], pair[1])
