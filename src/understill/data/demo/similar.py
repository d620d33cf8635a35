"""Demo task `similar`: how alike two tickets are, from 0 to 5, by what is wrong and with which product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understill.data.demo.phrases import CATALOGUE, CATEGORIES, PER_CATEGORY, PHRASES, Phrases, per_category
from understill.data.demo.templates import Columns, Draws, Ints, Texts, fill, flat
from understill.tasks import REGRESSION, Task

TASK = Task("similar", REGRESSION, ("first", "second"), "label", range=(0.0, 5.0), symmetric=True)
#: What is wrong, by family; two problems of one family are related.
FAMILIES: tuple[tuple[Phrases, ...], ...] = tuple(PHRASES["similar"].values())
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


def make(draws: Draws) -> Columns:
    """Make the rows of a block."""
    sizes = (len(FAMILIES), PER_FAMILY, len(CATEGORIES), per_category(draws.split))
    one = np.stack([draws.below(size) for size in sizes], axis=1)
    two = np.stack([draws.below(size) for size in sizes], axis=1)
    # Most random tickets have nothing in common, so a part of each second ticket is taken from the first.
    for fact, share in ((FAMILY, 0.5), (TROUBLE, 0.8), (CATEGORY, 0.5), (PRODUCT, 0.8)):
        two[:, fact] = np.where(draws.chance(share), one[:, fact], two[:, fact])
    rating = score(one, two)
    if draws.split == "train":
        rating = rating + draws.rng.normal(0.0, SPREAD, draws.rows)
    return {
        "first": draws.assign(_tickets(draws, one), numbers=False),
        "second": draws.assign(_tickets(draws, two), numbers=False),
        "label": np.clip(rating, 0.0, 5.0).round(2),
    }


def _tickets(draws: Draws, facts: Ints) -> Texts:
    """Write tickets from facts, each fact in one of several wordings."""
    names = np.array([product for names in CATALOGUE.values() for product in names.items()], dtype=object)
    product = names[facts[:, CATEGORY] * PER_CATEGORY + facts[:, PRODUCT], draws.chance(OTHER_NAME).astype(np.int64)]
    troubles = tuple(trouble for family in FAMILIES for trouble in family)
    which = facts[:, FAMILY] * PER_FAMILY + facts[:, TROUBLE]
    return fill(flat(troubles), draws.pick_from(troubles, which), product=product)
