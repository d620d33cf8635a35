"""Comparisons of runs: scores side by side, and whether the difference is significant."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

from understill.numbers import delta, effect_size, interval, mean_spread, p_value, plain_name
from understill.terminal import console

if TYPE_CHECKING:
    from understill.evaluate.significance import Difference
    from understill.pipeline.comparison import Comparison


def show_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Show the result of each comparison, and what may be claimed of it."""
    from understill.evaluate.significance import stars

    for each in comparisons:
        console.say(f"A: {each.first}\nB: {each.second}")
        scores, tests = [], []
        for row in each.compared:
            name, metric, difference = plain_name(row.place), row.metric, row.difference
            sides = (mean_spread(metric, side) for side in (row.first, row.second))
            change = f"{delta(metric, difference.delta)}{stars(row.p):<3}"
            scores.append((name, metric, *sides, change, interval(metric, difference.interval, "+")))
            tests.append((name, *_test(difference, p_value(row.p))))
            tests += [("", *_test(check, "")) for check in row.checks]
        console.show_table("dev scores", ("task", "metric"), ("A", "B", "B − A", "95 % interval"), scores)
        console.show_table("significance", ("task", "test"), ("p", "p, Holm", "effect"), tests)
        console.say(each.claim)
    for seeds in sorted({row.seeds for each in comparisons for row in each.compared if min(row.seeds) > 1}):
        console.say(smallest_p(*seeds))
    console.say("* p < 0.05, ** p < 0.01, *** p < 0.001, after Holm's correction for all dev sets and runs shown")


def _test(difference: Difference, corrected: str) -> tuple[str, ...]:
    return difference.test, p_value(difference.p), corrected, effect_size(difference.effect)


def smallest_p(one: int, other: int) -> str:
    """Say how small a p-value so many seeds can give: that of the two orders in which one side is above the other."""
    seeds = f"{one} seeds each" if one == other else f"{one} and {other} seeds"
    return f"with {seeds} the smallest possible p of a Mann-Whitney test is {2 / comb(one + other, one):.2g}"
