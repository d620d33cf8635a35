"""Comparisons of two runs: scores side by side, and how sure the difference is."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

from understill.numbers import chance, plain_name
from understill.tasks.metric import is_error
from understill.terminal import console

if TYPE_CHECKING:
    from understill.pipeline import Compared, Comparison


def show_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Show what each comparison came to, and what may be claimed of it."""
    for each in comparisons:
        console.say(f"A: {each.first}\nB: {each.second}")
        table = console.table("dev scores", "task", "metric")
        for column in ("A", "B", "B − A", "95 % interval"):
            table.add_column(column, justify="right")
        for row in each.compared:
            table.add_row(plain_name(row.place), row.metric, *_compared(row))
        console.out.print(table)
        table = console.table("how sure that is", "task", "test")
        for column in ("p", "p, Holm", "effect"):
            table.add_column(column, justify="right")
        for row in each.compared:
            found = row.difference
            table.add_row(plain_name(row.place), found.test, chance(found.p), chance(row.p), _effect(found.effect))
            for found in row.checks:
                table.add_row("", found.test, chance(found.p), "", _effect(found.effect))
        console.out.print(table)
        console.say(each.claim)
    for one, other in sorted({row.seeds for each in comparisons for row in each.compared if min(row.seeds) > 1}):
        least = 2 / comb(one + other, one)  # of all orders of the seeds, those two that set the sides apart
        console.say(
            f"with {one} and {other} seeds no p of Mann and Whitney can be below {least:.2g}, whatever the difference"
        )
    console.say("* p < 0.05, ** p < 0.01, *** p < 0.001, after Holm's correction for all dev sets and runs shown")


def _compared(row: Compared) -> tuple[str, ...]:
    """Put two scores and their difference into words, ×100 unless it is an error."""
    from understill.evaluate.significance import stars

    times, digits = (1, 3) if is_error(row.metric) else (100, 1)
    sides = [
        f"{times * side.mean:.{digits}f}" + (f"±{times * side.spread:.{digits}f}" if len(side.values) > 1 else "")
        for side in (row.first, row.second)
    ]
    found = row.difference
    between = "–"
    if found.interval:
        between = f"{times * found.interval.low:+.{digits}f} to {times * found.interval.high:+.{digits}f}"
    return *sides, f"{times * found.delta:+.{digits}f}{stars(row.p):<3}", between


def _effect(effect: float | None) -> str:
    return "–" if effect is None else f"{effect:+.2f}"
