"""Demo task `similar`: how alike two tickets are, from 0 to 5, by what is wrong and with which product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understill.data.demo.fill import Columns, Dice, Ints, Phrases, Texts, fill, flat
from understill.data.demo.world import CATEGORIES, COMMON_PER_CATEGORY, PER_CATEGORY, SHELVES

#: What is wrong, by family; two problems of one family are related.
TROUBLES: dict[str, tuple[Phrases, ...]] = {
    "parcel": (
        Phrases.of("""
            The {product} has not been delivered yet, and the date has passed.
            I am still waiting for the {product}, the delivery is late.
            The {product} should have arrived by now, but nothing came.
            ---
            My {product} has yet to turn up, it is overdue.
        """),
        Phrases.of("""
            The {product} was delivered to the wrong house.
            The courier gave my {product} to a neighbour I do not know.
            The {product} went to the address of somebody else.
            ---
            A stranger down the road received my {product}.
        """),
        Phrases.of("""
            The box with the {product} was open and torn on arrival.
            The packaging of the {product} was ripped when it came.
            The parcel with the {product} came crushed and half open.
            ---
            The carton around the {product} had a big hole.
        """),
    ),
    "defect": (
        Phrases.of("""
            The {product} is broken and does not work any more.
            The {product} stopped working after two days.
            I tried everything, but the {product} no longer works.
            ---
            The {product} gave up the ghost after a week.
        """),
        Phrases.of("""
            There are deep scratches on the {product}.
            The surface of the new {product} is scratched.
            The {product} came with scratch marks all over it.
            ---
            The {product} has an ugly scrape on one side.
        """),
        Phrases.of("""
            A part of the {product} is missing from the box.
            The {product} is not complete, one piece is missing.
            I cannot find all the parts of the {product}.
            ---
            Something that belongs to the {product} was left out.
        """),
    ),
    "money": (
        Phrases.of("""
            I was charged twice for the {product}.
            You took the money for the {product} two times.
            I see that I paid double for the {product}.
            ---
            My card was debited once too often for the {product}.
        """),
        Phrases.of("""
            The discount for the {product} was not applied.
            My voucher was not taken off the price of the {product}.
            I paid the full price for the {product} despite my discount code.
            ---
            The coupon for the {product} was ignored at the checkout.
        """),
        Phrases.of("""
            I have not received an invoice for the {product}.
            The invoice for the {product} never came by mail.
            Please send me the bill for the {product}, I need it for my taxes.
            ---
            I still need a receipt as proof that I paid for the {product}.
        """),
    ),
    "choice": (
        Phrases.of("""
            The {product} is too small for us.
            The {product} is not big enough, I need a larger size.
            I should have taken a bigger {product}.
            ---
            The {product} is tiny, much smaller than I had thought.
        """),
        Phrases.of("""
            The {product} has the wrong colour.
            I ordered the {product} in another colour than this.
            The colour of the {product} is not the one I chose.
            ---
            The {product} is blue, although I wanted a red one.
        """),
        Phrases.of("""
            The {product} looks cheap and is badly made.
            The quality of the {product} is poor.
            I am not happy with the poor quality of the {product}.
            ---
            The {product} feels shoddy and flimsy.
        """),
    ),
}
FAMILIES = tuple(TROUBLES.values())
PER_FAMILY = 3

#: Points for the same trouble, a related one, the same product, one of the same category.
POINTS = {"trouble": 3.0, "family": 1.0, "product": 2.0, "category": 1.0}
OTHER_NAME = 0.25  # how often a product goes by its other name
SPREAD = 0.25  # of the rating noise in train

#: One ticket's facts: family, trouble within it, category, product within it.
FAMILY, TROUBLE, CATEGORY, PRODUCT = range(4)


def score(one: Ints, two: Ints) -> npt.NDArray[np.float64]:
    """Rate two arrays of facts [n, 4]; the order of the two does not matter."""
    same = one == two
    trouble = np.where(same[:, FAMILY], np.where(same[:, TROUBLE], POINTS["trouble"], POINTS["family"]), 0.0)
    product = np.where(same[:, CATEGORY], np.where(same[:, PRODUCT], POINTS["product"], POINTS["category"]), 0.0)
    return np.asarray(trouble + product)


def make(dice: Dice) -> Columns:
    """Make the rows of a block."""
    sizes = (len(FAMILIES), PER_FAMILY, len(CATEGORIES), _per_shelf(dice))
    one = np.stack([dice.below(size) for size in sizes], axis=1)
    two = np.stack([dice.below(size) for size in sizes], axis=1)
    # Most random tickets have nothing in common, so a part of each second ticket is taken from the first.
    for fact, share in ((FAMILY, 0.5), (TROUBLE, 0.8), (CATEGORY, 0.5), (PRODUCT, 0.8)):
        two[:, fact] = np.where(dice.chance(share), one[:, fact], two[:, fact])
    rating = score(one, two)
    if dice.split == "train":
        rating = rating + dice.rng.normal(0.0, SPREAD, dice.rows)
    return {
        "first": dice.settle(_tickets(dice, one), numbers=False),
        "second": dice.settle(_tickets(dice, two), numbers=False),
        "label": np.clip(rating, 0.0, 5.0).round(2),
    }


def _per_shelf(dice: Dice) -> int:
    return COMMON_PER_CATEGORY if dice.split == "train" else PER_CATEGORY


def _tickets(dice: Dice, facts: Ints) -> Texts:
    """Write tickets from facts, each fact in one of several wordings."""
    names = np.array([product for shelf in SHELVES.values() for product in shelf], dtype=object)
    product = names[facts[:, CATEGORY] * PER_CATEGORY + facts[:, PRODUCT], dice.chance(OTHER_NAME).astype(np.int64)]
    troubles = tuple(trouble for family in FAMILIES for trouble in family)
    which = facts[:, FAMILY] * PER_FAMILY + facts[:, TROUBLE]
    return fill(flat(troubles), dice.pick_from(troubles, which), product=product)
