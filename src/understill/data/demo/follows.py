"""Demo task `follows`: does a statement follow from a ticket, contradict it, or stay open."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understill.data.demo.fill import Columns, Dice, Ints, Phrases, Texts, fill, flat, objects
from understill.data.demo.world import CATEGORIES, COMMON_PER_CATEGORY, DAYS, PER_CATEGORY, SHELVES

LABELS = ("follows", "open", "contradicts")

#: Yes-or-no facts: (ticket yes, ticket no, statement yes, statement no). Each is independent of the others.
STATES: dict[str, tuple[Phrases, Phrases, Phrases, Phrases]] = {
    "arrived": (
        Phrases.of("""
            It arrived this morning.
            The parcel reached us safely.
            The courier has handed it over.
            ---
            It turned up at noon.
            It is already here.
        """),
        Phrases.of("""
            It has not arrived.
            We are still waiting for the parcel.
            The courier never came.
            ---
            Nothing has turned up so far.
            It got lost on the way.
        """),
        Phrases(("The parcel has been delivered.", "The delivery took place."), ("The goods have come.",)),
        Phrases(
            ("The parcel has not been delivered.", "The delivery did not take place."), ("The goods have not come.",)
        ),
    ),
    "paid": (
        Phrases.of("""
            The bill is paid.
            I have already sent you the money.
            The price was debited from my card.
            ---
            The invoice was settled at once.
            I transferred the sum last week.
        """),
        Phrases.of("""
            The bill is still unpaid.
            I have not sent you any money yet.
            Nothing was debited from my card.
            ---
            The invoice is still due.
            I have yet to transfer the sum.
        """),
        Phrases(("The payment has been made.", "The customer has paid."), ("The money was received.",)),
        Phrases(("The payment has not been made.", "The customer has not paid."), ("The money was not received.",)),
    ),
    "phoned": (
        Phrases.of("""
            I have phoned you about it.
            I called your hotline.
            I told your colleague on the phone.
            ---
            I rang you up twice.
            I was on the line with your team.
        """),
        Phrases.of("""
            I have not phoned you about it.
            I never called your hotline.
            I did not reach anybody on the phone.
            ---
            I did not ring you up.
            I was never on the line with your team.
        """),
        Phrases(("The customer has phoned us.", "There was a phone call."), ("We got a call.",)),
        Phrases(("The customer has not phoned us.", "There was no phone call."), ("We got no call.",)),
    ),
}
COLOURS = ("red", "blue", "green", "black")
NAMES = ("Maria", "Tom", "Aisha", "Peter", "Lena", "Omar", "Grace", "Paul", "Nadia", "Felix", "Ines", "Hugo", "Anna",
         "David", "Sara", "Ben", "Julia", "Adam", "Laura", "Simon")  # fmt: skip

#: The facts a ticket may mention; a statement is about one of them.
FACTS = ("category", "person", "day", "colour", *STATES)
WEIGHTS = (1.2, 0.5, 0.6, 1.0, 1.5, 1.5, 1.5)
FACTS_TOLD = 2
DENIALS = 0.2  # the share of negated statements

#: What a statement may say; {by}, {to} and the rest are the values it claims.
SAID = (
    Phrases(("The order was a {category}.", "What was bought is a {category}."), ("It concerns a {category}.",)),
    Phrases(
        ("It is a present from {by} to {to}.", "{by} bought something for {to}."), ("{to} gets a gift from {by}.",)
    ),
    Phrases(("The order was placed on a {day}.", "The order is from {day}."), ("{day} was the day of purchase.",)),
    Phrases(("The item is {colour}.", "The chosen colour is {colour}."), ("What was ordered looks {colour}.",)),
    *(words for state in STATES.values() for words in state[2:]),
)
VERBS = Phrases(("bought", "ordered", "chose"), ("purchased", "picked out"))
CUSTOMERS = Phrases(("I", "We", "Last month I", "Last month we", "In spring I", "In spring we"))
VALUES = np.array([len(CATEGORIES), 2, len(DAYS.all), len(COLOURS), *(2 for _ in STATES)])
SLOTS = 4  # the facts before the yes-or-no ones


def make(dice: Dice) -> Columns:
    """Make the rows of a block."""
    rows = np.arange(dice.rows)
    labels, about = dice.below(3), dice.weighted(WEIGHTS)
    claim = np.stack([dice.below(int(end)) for end in VALUES], axis=1)
    # Most statements say that something is so, as people do.
    claim[:, SLOTS:] = np.where(dice.chance(DENIALS)[:, None], 1, 0)
    told = _told(dice, labels, about)
    truth = np.stack([dice.below(int(end)) for end in VALUES], axis=1)
    stated = claim[rows, about]
    other = (stated + 1 + dice.below(VALUES[about] - 1)) % VALUES[about]
    truth[rows, about] = np.where(labels == 2, other, stated)
    first = dice.below(len(NAMES))
    pair = np.stack([first, dice.other(first, len(NAMES))])
    return {
        "ticket": dice.settle(_tickets(dice, truth, told, pair), numbers=False),
        "statement": _statements(dice, about, claim, pair).tolist(),
        "label": objects(LABELS)[dice.noisy(labels, 3)],
    }


def _told(dice: Dice, labels: Ints, about: Ints) -> npt.NDArray[np.bool_]:
    """Choose the facts that each ticket tells; the one in question is among them unless it is to stay open."""
    rows = np.arange(dice.rows)
    keys = dice.rng.random((dice.rows, len(FACTS)))
    keys[rows, about] = np.where(labels == 1, 2.0, -1.0)
    return np.asarray(keys.argsort(axis=1).argsort(axis=1) < FACTS_TOLD)


def _tickets(dice: Dice, truth: Ints, told: npt.NDArray[np.bool_], pair: Ints) -> Texts:
    """Write one sentence on the purchase, then one for each yes-or-no fact that is told."""
    per_shelf = COMMON_PER_CATEGORY if dice.split == "train" else PER_CATEGORY
    names = objects([product for shelf in SHELVES.values() for product, _ in shelf])
    by, to = (objects(NAMES)[side] for side in _sides(truth[:, 1], pair))
    texts = fill(
        ("{by} {verb} the {colour}{product}{to}{day}.",),
        np.zeros(dice.rows, dtype=np.int64),
        verb=dice.pick(VERBS),
        product=np.where(told[:, 0], names[truth[:, 0] * PER_CATEGORY + dice.below(per_shelf)], "item"),
        by=np.where(told[:, 1], by, dice.pick(CUSTOMERS)),
        to=np.where(told[:, 1], " for " + to, ""),
        day=np.where(told[:, 2], objects([f" on {day}" for day in DAYS.all])[truth[:, 2]], ""),
        colour=np.where(told[:, 3], objects([f"{colour} " for colour in COLOURS])[truth[:, 3]], ""),
    )
    for number, state in enumerate(STATES.values(), SLOTS):
        sentences = objects(flat(state[:2]))[dice.pick_from(state[:2], truth[:, number])]
        texts = texts + np.where(told[:, number], " " + sentences, "")
    return texts


def _statements(dice: Dice, about: Ints, claim: Ints, pair: Ints) -> Texts:
    """Write one short claim about the fact in question."""
    value = claim[np.arange(dice.rows), about]
    kind = np.where(about < SLOTS, about, SLOTS + 2 * (about - SLOTS) + value)
    by, to = (objects(NAMES)[side] for side in _sides(claim[:, 1], pair))
    return fill(
        flat(SAID),
        dice.pick_from(SAID, kind),
        by=by,
        to=to,
        category=objects(CATEGORIES)[claim[:, 0]],
        day=objects(DAYS.all)[claim[:, 2]],
        colour=objects(COLOURS)[claim[:, 3]],
    )


def _sides(swapped: Ints, pair: Ints) -> tuple[Ints, Ints]:
    """Say who gives and who gets."""
    return np.where(swapped == 1, pair[1], pair[0]), np.where(swapped == 1, pair[0], pair[1])
