"""Units: what is drawn as a whole, which is a row, or in a ranking a query with its candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Random = Callable[[int], NDArray[np.uint64]]  # gives so many random numbers


class Measures(NamedTuple):
    """What units come to, [units] each."""

    longest: Ints  # the tokens of the longest row
    rows: Ints
    tokens: Ints  # of a unit that is cut, about


@dataclass(frozen=True, eq=False)
class Singles:
    """Rows that are drawn one by one."""

    rows: Ints | None  # all, where none are given
    count: int

    def __len__(self) -> int:
        return self.count

    def measure(self, lengths: Ints) -> Measures:
        """Return what the units come to, given the tokens of all rows."""
        own = (lengths if self.rows is None else lengths[self.rows]).astype(np.uint16)
        return Measures(own, np.ones(len(own), np.uint8), own)

    def draw(self, units: Ints, random: Random) -> tuple[Ints, Ints]:
        """Return the rows of some units, one unit after the other, and how many each has."""
        return units if self.rows is None else self.rows[units], np.ones_like(units)


@dataclass(frozen=True, eq=False)
class WholeQueries:
    """Candidates that are drawn query by query."""

    rows: Ints  # [rows], those of a query side by side
    starts: Ints  # [queries + 1], where each query begins, and where the last one ends
    right: NDArray[np.bool_]  # [rows], the right ones
    most: int | None  # no more candidates of a query take part in a step

    def __len__(self) -> int:
        return len(self.starts) - 1

    def measure(self, lengths: Ints) -> Measures:
        """Return what the units come to, given the tokens of all rows."""
        own, first, whole = lengths[self.rows], self.starts[:-1], np.diff(self.starts)
        sizes = np.minimum(whole, self.most or len(self.rows))
        tokens = np.add.reduceat(own, first, dtype=np.int64) * sizes // whole
        return Measures(np.maximum.reduceat(own, first).astype(np.uint16), sizes, tokens)

    def draw(self, units: Ints, random: Random) -> tuple[Ints, Ints]:
        """Return the rows of some units, one unit after the other, and how many each has.

        Of a query with too many candidates the right ones are taken, save that one place is left for a wrong one, and
        wrong ones are drawn for the rest.
        """
        sizes = np.diff(self.starts)[units]
        places = spans(self.starts[units], sizes)
        if self.most is None or sizes.max() <= self.most:
            return self.rows[places], sizes
        unit, right = np.repeat(np.arange(len(units)), sizes), self.right[places]
        # Those of a query stay side by side: first its right ones, then its wrong ones, each shuffled.
        order = np.lexsort((random(len(places)), ~right, unit))
        number = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        there = np.bincount(unit, right)[unit].astype(np.int64)  # right ones of the query
        taken = np.minimum(there, self.most - 1)
        kept = np.sort(order[np.where(number < there, number < taken, number - there < self.most - taken)])
        return self.rows[places[kept]], np.bincount(unit[kept])


def queries_of(groups: Ints, rows: Ints | None, right: NDArray[np.bool_], most: int | None) -> WholeQueries:
    """Make units of all rows, or of some; groups keep the order of their numbers."""
    rows = np.arange(len(groups)) if rows is None else rows
    order, starts = side_by_side(groups[rows])
    return WholeQueries(rows[order], starts, right[rows[order]], most)


def side_by_side(groups: Ints) -> tuple[Ints, Ints]:
    """Return all rows, those of a group side by side, and where each group begins, and where the last one ends."""
    rows = np.argsort(groups, kind="stable")
    return rows, np.append(np.flatnonzero(np.diff(groups[rows], prepend=-1)), len(rows))


def spans(starts: Ints, lengths: Ints) -> Ints:
    """Return the numbers from each start on, so many of each, one after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: Ints = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return numbers
