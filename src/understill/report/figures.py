"""Figures: small SVG charts, written out by hand; colours come from the page, text stays text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

#: Width of a picture in its own units; the page scales it.
WIDTH = 640.0
#: Series differ by colour, by dash and by the shape of their marks.
DASHES = ("", "7 4", "2 3", "9 3 2 3", "1 4", "12 5")
#: Up to so many points of a line are marked one by one.
FEW = 8


@dataclass(frozen=True)
class Line:
    """A line through points, with a name."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False
    sizes: Sequence[float] = ()  # of the marks, from 0 to 1; all alike where there are none


@dataclass(frozen=True)
class Bar:
    """A value with its interval, on a line of its own."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass
class _Frame:
    """A plot area with two scales, and what has been drawn into it."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 56
    right: float = 18
    top: float = 14
    bottom: float = 44
    height: float = 300
    log_x: bool = False
    parts: list[str] = field(default_factory=list)

    def across(self, value: float) -> float:
        """Return where a value stands from left to right."""
        low, high = (math.log10(each) for each in self.x) if self.log_x else self.x
        value = math.log10(value) if self.log_x else value
        return self.left + (value - low) / (high - low) * (WIDTH - self.left - self.right)

    def up(self, value: float) -> float:
        """Return where a value stands from top to bottom."""
        low, high = self.y
        return self.height - self.bottom - (value - low) / (high - low) * (self.height - self.bottom - self.top)

    def add(self, *parts: str) -> None:
        """Draw something."""
        self.parts.extend(parts)

    def svg(self, label: str) -> str:
        """Return the picture."""
        return _svg(self.height, label, self.parts)

    def points(self, points: Sequence[tuple[float, float]]) -> str:
        """Return points as the attribute of a line."""
        return " ".join(f"{self.across(x):.1f},{self.up(y):.1f}" for x, y in points)


def _svg(height: float, label: str, parts: Sequence[str], width: float = WIDTH) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" style="--width: {width:.0f}px"'
    head = f'<svg {size} role="img" aria-label="{escape(label)}"'
    return f'{head} xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start", angle: int = 0) -> str:
    turn = f' transform="rotate({angle} {x:.1f} {y:.1f})"' if angle else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{turn}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _mark(x: float, y: float, number: int, size: float = 4.5) -> str:
    """Draw a mark whose shape tells series apart: circle, square, diamond, triangle."""
    kind = f'class="fill{number}"'
    if number % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" {kind}/>'
    far = 1.3 * size
    square = ((-size, -size), (size, -size), (size, size), (-size, size))
    diamond, triangle = ((0, -far), (far, 0), (0, far), (-far, 0)), ((0, -far), (far, size), (-far, size))
    corners = (square, diamond, triangle)[number % 4 - 1]
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)}" {kind}/>'


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two ends, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _span(values: Sequence[float], room: float = 0.06) -> tuple[float, float]:
    """Return ends that hold all values with a little room."""
    low, high = min(values), max(values)
    spare = (high - low) * room or abs(high) * room or 1.0
    return low - spare, high + spare


def _short(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


def _axes(frame: _Frame, x_title: str, y_title: str, most: float = math.inf) -> None:
    """Draw both axes; the one on the left has no ticks above a number."""
    foot = frame.height - frame.bottom
    for value in (each for each in ticks(*frame.y) if each <= most):
        at = frame.up(value)
        frame.add(_line(frame.left, at, WIDTH - frame.right, at, "grid"))
        frame.add(_text(frame.left - 8, at + 4, _short(value), "tick", "end"))
    for value in _log_ticks(*frame.x) if frame.log_x else ticks(*frame.x):
        at = frame.across(value)
        frame.add(_line(at, foot, at, foot + 4, "axis"), _text(at, foot + 17, _short(value), "tick", "middle"))
    frame.add(_line(frame.left, foot, WIDTH - frame.right, foot, "axis"))
    frame.add(_text((frame.left + WIDTH - frame.right) / 2, frame.height - 8, x_title, "title", "middle"))
    frame.add(_text(13, (frame.top + foot) / 2, _cut(y_title, 34), "title", "middle", -90))


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [value for power in powers for size in (1, 2, 5) if low <= (value := size * 10.0**power) <= high]
    return inside if len(inside) <= 8 else [value for value in inside if math.log10(value) % 1 < 1e-9]


def _dash(number: int) -> str:
    dash = DASHES[number % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def legend(names: Sequence[str]) -> str:
    """Return the names of series beside their lines, as part of the page."""
    keys = []
    for number, name in enumerate(names):
        line = f'<line x1="0" y1="7" x2="28" y2="7" class="line{number}"{_dash(number)}/>'
        key = f'<svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">{line}</svg>'
        keys.append(f"<span>{key} {escape(name)}</span>")
    return f'<p class="legend">{"".join(keys)}</p>'


def lines(
    label: str, series: Sequence[Line], x_title: str, y_title: str, second: Sequence[Line] = (), second_title: str = ""
) -> str:
    """Draw lines over one axis; those of `second` have an axis of their own on the right, from 0 to 1."""
    points = [point for each in series for point in each.points]
    across = [x for each in (*series, *second) for x, _ in each.points]
    frame = _Frame((0.0, max(across)), _span([y for _, y in points]), right=54 if second else 18)
    _axes(frame, x_title, y_title)
    _draw(frame, series, 0)
    if second:
        edge = WIDTH - frame.right
        right = _Frame(frame.x, (0.0, 1.0), right=frame.right)
        frame.add(*(_text(edge + 8, right.up(value) + 4, _short(value), "tick") for value in (0, 0.25, 0.5, 0.75, 1)))
        middle = (frame.top + frame.height - frame.bottom) / 2
        frame.add(_text(WIDTH - 10, middle, second_title, "title", "middle", 90))
        _draw(right, second, len(series))
        frame.add(*right.parts)
    return frame.svg(label) + legend([each.name for each in (*series, *second)])


def _draw(frame: _Frame, series: Sequence[Line], first: int) -> None:
    for number, each in enumerate(series, first):
        path = frame.points(each.points)
        frame.add(f'<polyline points="{path}" class="line{number}" fill="none"{_dash(number)}/>')
        if each.marks or len(each.points) <= FEW:
            sizes = [2 + 5 * size for size in each.sizes] or [3.5] * len(each.points)
            for (x, y), size in zip(each.points, sizes, strict=True):
                frame.add(_mark(frame.across(x), frame.up(y), number, size))


def scatter(label: str, points: Sequence[tuple[str, float, float, float]], x_title: str, y_title: str) -> str:
    """Draw named points (name, x, y, size), x on a log scale and areas by size; the Pareto front is drawn."""
    xs, ys = [point[1] for point in points], [point[2] for point in points]
    low, high = min(xs), max(xs)
    frame = _Frame((low / 1.7, high * 1.7), _span(ys, 0.25), log_x=True)
    _axes(frame, x_title, y_title, 100 if max(ys) <= 100 else math.inf)
    both = list(zip(xs, ys, strict=True))
    front = sorted(point for point in both if not any(_dominates(other, point) for other in both))
    if len(front) > 1:
        frame.add(f'<polyline points="{frame.points(front)}" class="front" fill="none"/>')
    largest = max(point[3] for point in points)
    circles, names = [], []  # names are drawn last, so that no circle covers one
    ends: list[tuple[float, float]] = []
    for number, (name, x, y, size) in enumerate(points):
        radius = 5 + 15 * math.sqrt(size / largest)
        at, height = frame.across(x), frame.up(y)
        circles.append(f'<circle cx="{at:.1f}" cy="{height:.1f}" r="{radius:.1f}" class="fill{number}"/>')
        late = at > WIDTH * 0.72
        side = at - radius - 6 if late else at + radius + 6
        while any(abs(height - other) < 14 and abs(side - beside) < 120 for beside, other in ends):
            height += 14  # below a name that is there already
        ends.append((side, height))
        names.append(_text(side, height + 4, name, "over", "end" if late else "start"))
    frame.add(*reversed(circles), *names)  # the first, which the report is about, on top
    return frame.svg(label)


def _dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Tell whether a point is at least as cheap and as good as another, and better by one of the two."""
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def intervals(label: str, bars: Sequence[Bar], x_title: str) -> str:
    """Draw values with their intervals, one below the other, beside a line at 0."""
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
    left = min(280.0, 24 + 7.2 * max(len(bar.name) for bar in bars))
    height = 62 + 26 * len(bars)
    frame = _Frame(_span([*ends, 0.0]), (0.0, 1.0), left=left, height=height)
    foot = height - frame.bottom
    for value in ticks(*frame.x):
        at = frame.across(value)
        frame.add(_line(at, frame.top, at, foot, "grid"), _text(at, foot + 17, _short(value), "tick", "middle"))
    frame.add(_line(frame.across(0), frame.top, frame.across(0), foot, "axis"))
    frame.add(_text((left + WIDTH - frame.right) / 2, height - 8, x_title, "title", "middle"))
    for number, bar in enumerate(bars):
        at = frame.top + 16 + 26 * number
        frame.add(_text(left - 10, at + 4, _cut_inside(bar.name, 36), "name", "end"))
        if bar.low is not None and bar.high is not None:
            low, high = frame.across(bar.low), frame.across(bar.high)
            frame.add(_line(low, at, high, at, "whisker"))
            frame.add(*(_line(x, at - 5, x, at + 5, "whisker") for x in (low, high)))
        frame.add(_mark(frame.across(bar.value), at, 0))
    return frame.svg(label)


def matrix(label: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Draw a confusion matrix: gold from top to bottom, predictions from left to right, shades by share of the gold."""
    count = len(names)
    left = min(150.0, 16 + 7.0 * max(map(len, names)))
    cell = min(64.0, (WIDTH - left - 10) / count)
    turned = max(map(len, names)) * 7.0 > cell - 6
    top = min(130.0, 12 + 6.0 * max(map(len, names))) if turned else 34.0
    parts = []
    for row, (name, line) in enumerate(zip(names, counts, strict=True)):
        y = top + cell * row
        parts.append(_text(left - 8, y + cell / 2 + 4, _cut(name, 20), "name", "end"))
        whole = sum(line) or 1
        for column, value in enumerate(line):
            x, share = left + cell * column, value / whole
            kind = "hit" if row == column else "miss"
            box = f'x="{x:.1f}" y="{y:.1f}" width="{cell - 2:.1f}" height="{cell - 2:.1f}" rx="3"'
            parts.append(f'<rect {box} class="cell"/><rect {box} class="{kind}" fill-opacity="{share:.3f}"/>')
            if value:
                parts.append(_text(x + cell / 2 - 1, y + cell / 2 + 4, str(value), "count", "middle"))
    for column, name in enumerate(names):
        x = left + cell * (column + 0.5) - 1
        anchor, angle = ("start", -45) if turned else ("middle", 0)
        parts.append(_text(x, top - 8 if turned else top - 10, _cut(name, 20), "name", anchor, angle))
    width = left + cell * count + (70 if turned else 10)
    return _svg(top + cell * count + 8, label, parts, max(width, 320))


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _cut_inside(name: str, most: int) -> str:
    """Shorten a name in its middle, so that its end stays."""
    end = most * 2 // 3
    return name if len(name) <= most else f"{name[: most - end - 1]}…{name[-end:]}"


def reliability(label: str, series: Sequence[Line]) -> str:
    """Draw reliability curves, accuracy against confidence, beside the diagonal of a calibrated model."""
    frame = _Frame((0.0, 1.0), (0.0, 1.0), height=380)
    if all(x > 0.5 for each in series for x, _ in each.points):
        frame.x = (0.5, 1.0)
    _axes(frame, "confidence", "accuracy")
    frame.add(_line(frame.across(frame.x[0]), frame.up(frame.x[0]), frame.across(1), frame.up(1), "ideal"))
    _draw(frame, series, 0)
    return frame.svg(label) + legend([each.name for each in series])
