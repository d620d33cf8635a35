"""Demo task `answer`: a question with four candidate answers, of which one helps; the others are near or far misses."""

from __future__ import annotations

import numpy as np

from understill.data.demo.phrases import DATES, DAYS, PHRASES, PRODUCTS, Phrases
from understill.data.demo.templates import Columns, Draws, fill, flat, objects
from understill.tasks import RANKING, Task

GROUP = 4  # candidate answers to a question
LABELS = ("0", "1")  # wrong, right
TASK = Task(
    "answer", RANKING, ("question", "answer"), "label", LABELS, metrics=("precision_at_1", "mrr"), group="group"
)

#: Topics 2n and 2n+1 are easily confused: same words, other need.
QUESTIONS, ANSWERS = (tuple(topic[side] for topic in PHRASES["answer"]) for side in ("question", "answer"))
ASKING = ("{asked}", "{asked}", "I have been a customer since {date}. {asked}")
#: An answer may name the product or not; a wrong one that names it is a lure.
LEADS = Phrases(("", "", "", "Happy to help. ", "Thank you for your question. ", "About the {product}: "))


def make(draws: Draws) -> Columns:
    """Make the rows of a block, whole groups only; their `group` is a number within the block."""
    ask = Draws(draws.rng, draws.split, draws.rows // GROUP)
    topic, product = ask.below(len(QUESTIONS)), ask.pick(PRODUCTS)
    asked = fill(flat(QUESTIONS), ask.pick_from(QUESTIONS, topic), product=product, day=ask.pick(DAYS))
    asked = fill(ASKING, ask.below(len(ASKING)), asked=asked, date=ask.pick(DATES))
    # The candidates: the right topic, its twin, and two others from different pairs.
    pair = topic // 2
    step = 1 + ask.below(len(QUESTIONS) // 2 - 2)
    far = [(pair + step) % (len(QUESTIONS) // 2), (pair + step + 1) % (len(QUESTIONS) // 2)]
    candidates = np.stack([topic, topic ^ 1, *(2 * near + ask.below(2) for near in far)], axis=1)
    order = ask.rng.random((ask.rows, GROUP)).argsort(axis=1)
    answered = np.take_along_axis(candidates, order, axis=1).reshape(-1)
    helps = fill(flat(ANSWERS), draws.pick_from(ANSWERS, answered))
    named = fill(LEADS.all, draws.below(len(LEADS.all)), product=np.repeat(product, GROUP))
    return {
        "question": np.repeat(objects(ask.assign(asked)), GROUP),
        "answer": named + helps,
        "label": np.where(order.reshape(-1) == 0, "1", "0").astype(object),
        "group": np.arange(draws.rows) // GROUP,
    }
