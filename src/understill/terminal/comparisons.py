"""Comparisons of runs: scores side by side, and whether the difference is significant."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

from understill.numbers import delta, effect_size, interval, mean_spread, p_value, score
from understill.terminal import console

if TYPE_CHECKING:
    from understill.evaluate.significance import Difference
    from understill.pipeline.comparison import Comparison


def show_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Show the result of each comparison, the mean over tasks first, and what may be claimed of it."""
    from understill.pipeline.comparison import CLAIMED, better_than_all

    for each in comparisons:
        console.say(f"A: {each.first}\nB: {each.second}")
        scores: list[Sequence[str] | None] = []
        tests: list[Sequence[str] | None] = []
        for row in each.rows:
            metric, result = row.metric, row.difference
            sides = (mean_spread(metric, side) for side in (row.first, row.second))
            change = f"{delta(metric, result.delta)}{row.stars:<3}"
            scores.append((row.name, metric, *sides, change, interval(metric, result.interval, "+")))
            tests.append((row.name, *_test(result, p_value(row.p), score(metric, result.detectable))))
            tests += [("", *_test(check, "", "")) for check in row.checks]
            if row is each.mean:
                scores.append(None)
                tests.append(None)
        console.show_table("dev scores", ("task", "metric"), ("A", "B", "B − A", "95 % interval"), scores)
        head = ("p", "p, Holm", "effect", "detectable")
        console.show_table("significance", ("task", "test"), head, tests)
        console.say(each.claim)
    largest = better_than_all(comparisons)
    if largest is not None:
        sure = "significantly" if largest < CLAIMED else "but not significantly"
        console.say(f"A is better than each of the others, {sure}: the largest p is {p_value(largest)}")
    for seeds in sorted({row.seeds for each in comparisons for row in each.rows if min(row.seeds) > 1}):
        console.say(smallest_p(*seeds))
    console.say(
        "* p < 0.05, ** p < 0.01, *** p < 0.001, of several seeds each, after Holm's correction: means over tasks are "
        "one family, single tasks another; detectable: a true difference of so many points is significant in 4 of 5"
    )


def _test(result: Difference, corrected: str, detectable: str) -> tuple[str, ...]:
    return result.test, p_value(result.p), corrected, effect_size(result.effect), detectable


def smallest_p(one: int, other: int) -> str:
    """Say how small a p-value so many seeds can give: that of the two orders in which one side is above the other."""
    seeds = f"{one} seeds each" if one == other else f"{one} and {other} seeds"
    return f"with {seeds} the smallest possible p of a Mann-Whitney test is {2 / comb(one + other, one):.2g}"
