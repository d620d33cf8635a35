"""Which rows are worth asking about: at random, where a student is uncertain, or spread over the texts.

The functions know neither a language model nor a student: they take ids, logits and vectors of a pool, and whoever
answers the rows may be anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Rule = Literal["random", "uncertainty", "diverse"]
Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


def choose(
    rule: Rule,
    ids: Sequence[str],
    count: int,
    chosen: Collection[str] = (),
    *,
    logits: Floats | None = None,
    vectors: Floats | None = None,
    seed: int = 0,
) -> Ints:
    """Return the places of so many further rows of a pool, best first; `chosen` are the ids that are answered already.

    `uncertainty` goes by a student's logits, [rows, classes]; without them, in the first round, it is random.
    `diverse` goes by vectors of the texts, [rows, size].
    """
    taken = np.isin(np.asarray(ids, dtype=np.str_), np.asarray(sorted(chosen), dtype=np.str_))
    order = random_order(ids, seed)
    if rule == "uncertainty" and logits is not None:
        order = order[np.argsort(-entropy(logits)[order], kind="stable")]
    if rule == "diverse":
        assert vectors is not None
        return k_centres(vectors, min(count, int((~taken).sum())), taken, int(order[0]) if len(order) else 0)
    return order[~taken[order]][:count]


def random_order(ids: Sequence[str], seed: int) -> Ints:
    """Return the places of all rows in a random order that depends on their ids and the seed alone."""
    by_id = np.argsort(np.asarray(ids, dtype=np.str_), kind="stable")
    return by_id[np.random.default_rng(seed).permutation(len(by_id))]


def entropy(logits: Floats) -> NDArray[np.float64]:
    """Return how uncertain a student is of each row, in nats."""
    logged = log_softmax(np.asarray(logits, np.float64), axis=1)
    result: NDArray[np.float64] = -(np.exp(logged) * logged).sum(axis=1)
    return result


def k_centres(vectors: Floats, count: int, taken: NDArray[np.bool_], first: int = 0) -> Ints:
    """Choose rows one by one, each the furthest from all that are chosen (greedy k-centres)."""
    points = np.asarray(vectors, np.float32)
    distance = np.full(len(points), np.inf, np.float32)
    for place in np.flatnonzero(taken).tolist():
        distance = np.minimum(distance, _squared(points, place))
    result: list[int] = []
    for _ in range(count):
        place = first if not result and not taken.any() else int(np.argmax(np.where(taken, -1.0, distance)))
        result.append(place)
        taken = taken.copy()
        taken[place] = True
        distance = np.minimum(distance, _squared(points, place))
    return np.array(result, np.int64)


def _squared(points: NDArray[np.float32], place: int) -> NDArray[np.float32]:
    result: NDArray[np.float32] = np.square(points - points[place]).sum(axis=1)
    return result
