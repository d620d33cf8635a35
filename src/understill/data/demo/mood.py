"""Demo task `mood`: is the customer calm or upset, which the structure of the sentence decides, not its words."""

from __future__ import annotations

import numpy as np

from understill.data.demo.phrases import PHRASES
from understill.data.demo.templates import Columns, Draws, capital, fill, objects
from understill.tasks import CLASSIFICATION, Task

LABELS = ("calm", "upset")
TASK = Task("mood", CLASSIFICATION, ("message",), "label", LABELS)
THINGS, GOOD, BAD, HOW, PEOPLE, FRAMES = (
    PHRASES["mood"][name] for name in ("things", "good", "bad", "how", "people", "frames")
)
WEIGHTS = (2, 2) + (1,) * 14


def make(draws: Draws) -> Columns:
    """Make the rows of a block."""
    labels = draws.below(2)
    good, good2, bad, bad2 = (draws.pick(words) for words in (GOOD, GOOD, BAD, BAD))
    thing, person = draws.pick(THINGS), draws.pick(PEOPLE)
    upset = labels == 1
    cores = fill(
        FRAMES.all,
        draws.weighted(WEIGHTS),
        thing=thing,
        Thing=capital(thing),
        other=draws.pick(THINGS),
        person=person,
        Person=capital(person),
        how=draws.pick(HOW),
        how2=draws.pick(HOW),
        a=np.where(upset, bad, good),
        a2=np.where(upset, bad2, good2),
        b=np.where(upset, good, bad),
    )
    return {"message": draws.assign(cores), "label": objects(LABELS)[draws.noisy(labels, 2)]}
