"""Pictures hold what they are given: round ticks, marks where values are, names as text."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from understill.report import figures
from understill.report.figures import Bar, Line

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)
NAME = "<b>&\"'"


def drawn(svg: str) -> ElementTree.Element:
    """Read a picture as XML, without the legend that stands below it."""
    return ElementTree.fromstring(svg.split("</svg>")[0] + "</svg>")


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in drawn(svg).iter("{http://www.w3.org/2000/svg}text")]


@given(NUMBERS, NUMBERS)
def test_ticks_are_few_even_and_inside(one: float, other: float) -> None:
    low, high = sorted((one, other))
    result = figures.ticks(low, high)
    if high - low > 1e-6 * max(abs(low), abs(high)):
        reach = (high - low) * 1e-6
        assert 2 <= len(result) <= 7
        assert low - reach <= min(result) and max(result) <= high + reach
        steps = {round((after - before) / (high - low), 6) for before, after in itertools.pairwise(result)}
        assert len(steps) == 1


def test_names_stay_text() -> None:
    points = [(0.1, 0.5), (0.9, 0.8)]
    for svg in (
        figures.lines(NAME, [Line(NAME, points)], NAME, NAME, [Line(NAME, points)], NAME),
        figures.scatter(NAME, [(NAME, 1.0, 2.0, 3.0), ("b", 10.0, 1.0, 3.0)], NAME, NAME),
        figures.intervals(NAME, [Bar(NAME, 1.0, 0.5, 2.0), Bar("b", -1.0, None, None)], NAME),
        figures.matrix(NAME, [NAME, "b"], [[3, 1], [0, 2]]),
        figures.reliability(NAME, [Line(NAME, points, True, [1.0, 0.2])]),
    ):
        assert drawn(svg).get("aria-label") == NAME
        assert "<b>" not in svg


def test_the_pareto_front_is_drawn() -> None:
    fast, slow, bad = ("fast", 1.0, 80.0, 1.0), ("slow", 10.0, 90.0, 9.0), ("bad", 11.0, 70.0, 9.0)
    front = re.search(r'points="([^"]+)" class="front"', figures.scatter("x", [slow, bad, fast], "ms", "score"))
    assert front and len(front.group(1).split()) == 2
    assert 'class="front"' not in figures.scatter("x", [fast, bad], "ms", "score"), (
        "one alone has nothing to be joined to"
    )


def test_a_long_name_keeps_its_end_and_fits() -> None:
    bars = [
        Bar(f"{'a_task_with_a_long_name_' * 3}, student − {other}", 1.0, 0.5, 2.0) for other in ("baseline", "teachers")
    ]
    result = [text for text in texts(figures.intervals("x", bars, "points")) if text.startswith("a_task")]
    assert [text.rpartition(" ")[2] for text in result] == ["baseline", "teachers"]
    assert max(map(len, result)) <= 36


def test_no_circle_covers_a_name() -> None:
    svg = figures.scatter("x", [("one", 1.0, 80.0, 1.0), ("other", 1.1, 80.0, 9.0)], "ms", "score")
    assert svg.rindex("<circle") < svg.index(">one<") < svg.index(">other<")


def test_points_on_one_place_keep_their_names_apart_and_the_first_stays_in_sight() -> None:
    svg = figures.scatter("x", [("student", 1.0, 98.0, 4.0), ("baseline", 1.0, 98.0, 4.0)], "ms", "score")
    assert svg.rindex('class="fill0"') > svg.rindex('class="fill1"'), "the first is drawn last"
    places = [float(y) for y, name in re.findall(r'y="([0-9.]+)"[^>]*>(student|baseline)<', svg)]
    assert places[1] - places[0] >= 14
    assert not [text for text in texts(svg) if text.isdigit() and int(text) > 100], "no score is above 100"


def test_a_matrix_shows_every_count_but_none_of_nothing() -> None:
    result = texts(figures.matrix("x", ["calm", "upset"], [[30, 1], [0, 20]]))
    assert [text for text in result if text.isdigit()] == ["30", "1", "20"]


def test_a_line_of_one_point_is_seen() -> None:
    svg = figures.lines("x", [Line("a", [(100.0, 0.5)])], "steps", "loss")
    assert len(list(drawn(svg).iter("{http://www.w3.org/2000/svg}circle"))) == 1
