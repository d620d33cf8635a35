"""Sampling: how an epoch is shared out among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understill.recipe.schema import Sampling

Floats = NDArray[np.floating[Any]]


def apportion(shares: Floats, total: int) -> NDArray[np.int64]:
    """Share out a total by largest remainder, at least 1 each."""
    # Rounding keeps the last bit of a platform's pow() from moving a unit.
    targets = np.round(shares / shares.sum() * total, 6)
    counts: NDArray[np.int64] = np.maximum(np.floor(targets), 1).astype(np.int64)
    while missing := total - int(counts.sum()):
        order = np.argsort(counts - targets, kind="stable")  # who is furthest below its target comes first
        if missing > 0:
            counts[order[:missing]] += 1
        else:
            rich = [index for index in order[::-1] if counts[index] > 1]
            if not rich:
                raise ValueError(f"{total} cannot be shared out among {len(shares)} tasks, at least 1 each")
            counts[rich[:-missing]] -= 1
    return counts


class Shares(NamedTuple):
    """How an epoch is shared out among streams, [streams] each."""

    mass: Floats  # the units each stream should count for
    copies: NDArray[np.int64] | None  # how often its set is taken; None where units are drawn one by one
    draws: NDArray[np.int64]  # the units drawn of it: whole batches in all, or of each stream in "one_task"


class Part(NamedTuple):
    """What decides a stream's share of an epoch."""

    task: int
    units: int  # rows, or queries of a ranking, counted twice where both orders of their texts are drawn
    share: float = 0.0  # of the task's draws, where these are its unlabelled rows


def shares(parts: Sequence[Part], batch: int, mode: str, sampling: Sampling) -> Shares:
    """Share an epoch out: to labelled rows ∝ their number to a power; unlabelled ones come on top of their task's."""
    units = np.array([part.units for part in parts])
    labelled = np.array([part.share == 0 for part in parts])
    mass = np.where(labelled, units.astype(np.float64) ** sampling.power, 0.0)
    mass *= units[labelled].sum() / mass.sum()
    copies = np.where(labelled, np.maximum(1, np.rint(mass / units)), 0).astype(np.int64) if sampling.copies else None
    wanted = mass.copy() if copies is None else (copies * units).astype(np.float64)
    home = {part.task: place for place, part in enumerate(parts) if part.share == 0}
    for place, part in enumerate(parts):
        if part.share:
            for amounts in (mass, wanted):
                amounts[place] = amounts[home[part.task]] * part.share / (1 - part.share)
    batches = -(-round(float(wanted.sum())) // batch)
    if mode == "mixed":
        return Shares(mass, copies, apportion(wanted, batches * batch))
    return Shares(mass, copies, apportion(wanted, max(batches, len(wanted))) * batch)
