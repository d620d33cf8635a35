"""Numbers as text: one way to write each quantity in the terminal and in reports, and by numbers.js on the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from understill.tasks.metric import is_error

if TYPE_CHECKING:
    from understill.evaluate.significance import Interval, Summary

#: What stands where there is no number.
NONE = "–"


def fixed(value: float, digits: int, sign: str = "") -> str:
    """Write a number with so many decimals; what rounds to 0 has no minus."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}".replace("-", "−")


def plain_name(place: str, split: str = "dev") -> str:
    """Write "task/split" briefly: the task alone for its dev set."""
    return place.removesuffix(f"/{split}").replace(f"/{split}_", " ")


# Scores ---------------------------------------------------------------------------------------------------------------


def score(metric: str, value: float | None, sign: str = "") -> str:
    """Write a score, ×100 unless it is an error."""
    if value is None:
        return NONE
    return fixed(value, 3, sign) if is_error(metric) else fixed(100 * value, 1, sign)


def delta(metric: str, value: float) -> str:
    """Write a difference of scores with its sign."""
    return score(metric, value, "+")


def interval(metric: str, ends: Interval | None, sign: str = "") -> str:
    """Write an interval of scores, or with the sign "+" of differences."""
    return f"{score(metric, ends.low, sign)} to {score(metric, ends.high, sign)}" if ends else NONE


def mean_spread(metric: str, summary: Summary | None) -> str:
    """Write a mean with its standard deviation over seeds; of one seed, its score."""
    if summary is None:
        return NONE
    mean = score(metric, summary.mean)
    return f"{mean} ± {score(metric, summary.spread)}" if len(summary.values) > 1 else mean


def p_value(p: float | None) -> str:
    """Write a p-value."""
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def effect_size(effect: float | None) -> str:
    """Write an effect size."""
    return NONE if effect is None else fixed(effect, 2, "+")


# Quantities -----------------------------------------------------------------------------------------------------------


def percent(share: float | None) -> str:
    """Write a share in percent."""
    return NONE if share is None else f"{fixed(100 * share, 1)} %"


def percents(interval: Interval | None) -> str:
    """Write an interval of shares in percent."""
    return f"{percent(interval.low)} to {percent(interval.high)}" if interval else NONE


def magnitude(count: float) -> str:
    """Write a large number with k, M, G or T."""
    for power, unit in ((12, " T"), (9, " G"), (6, " M"), (3, " k")):
        if count >= 0.9995 * 10**power:  # which is written as 1 of this unit
            return f"{count / 10**power:.3g}{unit}"
    return f"{count:.3g}"


def ratio(factor: float) -> str:
    """Write how many times as much something is."""
    digits = max(0, 1 - math.floor(math.log10(factor))) if factor > 0 else 0
    return f"{factor:.{min(digits, 2)}f}×"


def duration(seconds: float, *, whole: bool = False) -> str:
    """Write a time in the unit that people would use, from milliseconds to hours; `whole`: no part of a second."""
    seconds = round(seconds) if whole else seconds
    if seconds <= 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.{0 if whole else 1}f} s"
    rounded = round(seconds)
    if rounded < 90:
        return f"{rounded} s"
    if rounded < 5400:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600:,} h {rounded % 3600 // 60:02d} min"


def file_size(count: float) -> str:
    """Write a number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
