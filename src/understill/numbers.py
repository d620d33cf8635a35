"""Numbers as a reader wants them, the same on every page and in the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from understill.tasks.metric import is_error

if TYPE_CHECKING:
    from understill.evaluate.significance import Interval


def plain_name(place: str) -> str:
    """Name a dev set as briefly as it can be."""
    return place.removesuffix("/dev").replace("/dev_", " ")


def figure(metric: str, value: float) -> str:
    """Write a score, ×100 unless it is an error."""
    return (f"{value:.3f}" if is_error(metric) else f"{100 * value:.1f}").replace("-", "−")


def change(metric: str, value: float) -> str:
    """Write a difference of scores with its sign."""
    scaled, digits = (value, 3) if is_error(metric) else (100 * value, 1)
    return f"{round(scaled, digits) + 0.0:+.{digits}f}".replace("-", "−")  # added, so that nothing is not below nothing


def between(metric: str, interval: Interval | None) -> str:
    """Write an interval of scores."""
    return f"{figure(metric, interval.low)} to {figure(metric, interval.high)}" if interval else "–"


def change_between(metric: str, interval: Interval | None) -> str:
    """Write an interval of differences."""
    return f"{change(metric, interval.low)} to {change(metric, interval.high)}" if interval else "–"


def chance(p: float | None) -> str:
    """Write a p-value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def size(effect: float | None) -> str:
    """Write an effect size."""
    return "–" if effect is None else f"{effect:+.2f}".replace("-", "−")


def share(value: float | None) -> str:
    """Write a share in percent."""
    return "–" if value is None else f"{100 * value:.1f} %"


def milliseconds(seconds: float) -> str:
    """Write a short time."""
    return f"{1000 * seconds:.3g} ms"


def large(count: float) -> str:
    """Write a large number with its unit of a thousand, a million or more."""
    for power, unit in ((12, " T"), (9, " G"), (6, " M"), (3, " k")):
        if count >= 10**power:
            return f"{count / 10**power:.3g}{unit}"
    return f"{count:.3g}"


def times(factor: float) -> str:
    """Write how many times as much something is."""
    digits = max(0, 1 - math.floor(math.log10(factor))) if factor > 0 else 0
    return f"{factor:.{min(digits, 2)}f}×"


def duration(seconds: float) -> str:
    """Write a time, however long."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def megabytes(count: int) -> str:
    """Write the size of files."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
