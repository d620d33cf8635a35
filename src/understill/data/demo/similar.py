"""Demo task `similar`: how alike two tickets are, from 0 to 5, by what is wrong and with which product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understill.data.demo.fill import Columns, Dice, Ints, Texts, Words, fill, flat
from understill.data.demo.world import CATEGORIES, COMMON_PER_CATEGORY, PER_CATEGORY, SHELVES

#: What is wrong, by family; two problems of one family are related.
TROUBLES: dict[str, tuple[Words, ...]] = {
    "parcel": (
        Words.of("""
            The {product} has not been delivered yet.
            I am still waiting for the {product}.
            The {product} is late.
            ---
            My {product} has yet to turn up.
        """),
        Words.of("""
            The {product} was delivered to the wrong house.
            The courier gave the {product} to somebody else.
            The {product} went to another address.
            ---
            A stranger down the road got my {product}.
        """),
        Words.of("""
            The parcel with the {product} was open.
            The box around the {product} was torn.
            The packaging of the {product} was ripped.
            ---
            The carton of the {product} had a big hole.
        """),
    ),
    "defect": (
        Words.of("""
            The {product} is broken.
            The {product} does not work any more.
            The {product} has stopped working.
            ---
            The {product} gave up the ghost.
        """),
        Words.of("""
            There are scratches on the {product}.
            The surface of the {product} is scratched.
            The {product} came with marks all over it.
            ---
            The {product} has an ugly scrape.
        """),
        Words.of("""
            A part of the {product} is missing.
            The {product} is not complete.
            I cannot find one piece of the {product}.
            ---
            Something belonging to the {product} was left out.
        """),
    ),
    "money": (
        Words.of("""
            I was charged twice for the {product}.
            You took the money for the {product} two times.
            I paid double for the {product}.
            ---
            My card was debited once too often for the {product}.
        """),
        Words.of("""
            The discount for the {product} is missing.
            My voucher was not used for the {product}.
            I got no rebate on the {product}.
            ---
            The coupon for the {product} was ignored.
        """),
        Words.of("""
            I got no invoice for the {product}.
            The bill for the {product} never came.
            I need the receipt for the {product}.
            ---
            There was no proof of payment with the {product}.
        """),
    ),
    "choice": (
        Words.of("""
            The {product} is too small.
            The {product} is not big enough.
            I should have taken a larger {product}.
            ---
            The {product} is tiny.
        """),
        Words.of("""
            The {product} has the wrong colour.
            I wanted the {product} in another colour.
            The shade of the {product} is not what I chose.
            ---
            The {product} is blue instead of red.
        """),
        Words.of("""
            The {product} looks cheap.
            The quality of the {product} is poor.
            The {product} is badly made.
            ---
            The {product} feels shoddy.
        """),
    ),
}
FAMILIES = tuple(TROUBLES.values())
PER_FAMILY = 3

#: Points for the same trouble, a related one, the same product, one of the same category.
POINTS = {"trouble": 3.0, "family": 1.0, "product": 2.0, "category": 1.0}
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
    for fact, share in ((FAMILY, 0.55), (TROUBLE, 0.5), (CATEGORY, 0.55), (PRODUCT, 0.5)):
        two[:, fact] = np.where(dice.chance(share), one[:, fact], two[:, fact])
    rating = score(one, two)
    if dice.split == "train":
        rating = rating + dice.rng.normal(0.0, SPREAD, dice.rows)
    return {
        "first": dice.settle(_tickets(dice, one).tolist(), numbers=False),
        "second": dice.settle(_tickets(dice, two).tolist(), numbers=False),
        "label": np.clip(rating, 0.0, 5.0).round(2),
    }


def _per_shelf(dice: Dice) -> int:
    return COMMON_PER_CATEGORY if dice.split == "train" else PER_CATEGORY


def _tickets(dice: Dice, facts: Ints) -> Texts:
    """Write tickets from facts, each fact in one of several wordings."""
    names = np.array([product for shelf in SHELVES.values() for product in shelf], dtype=object)
    product = names[facts[:, CATEGORY] * PER_CATEGORY + facts[:, PRODUCT], dice.below(2)]
    troubles = tuple(trouble for family in FAMILIES for trouble in family)
    which = facts[:, FAMILY] * PER_FAMILY + facts[:, TROUBLE]
    return fill(flat(troubles), dice.pick_from(troubles, which), product=product)
