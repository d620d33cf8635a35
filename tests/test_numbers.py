"""A number is written in one way, wherever a user reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from number_cases import COUNTS, DURATIONS, PERCENTAGES
from understill import numbers
from understill.errors import counted
from understill.evaluate.significance import Interval, summarise

PAGE = """
import { count, duration, percent } from "PLACE";
const given = JSON.parse(process.argv[1]);
console.log(JSON.stringify([
  given[0].map((seconds) => duration(1000 * seconds)), given[1].map(percent),
  given[2].map((rows) => count(rows, "row")),
]));
"""


def test_times_shares_and_counts_are_written_as_the_table_says() -> None:
    assert [numbers.duration(seconds) for seconds, _ in DURATIONS] == [text for _, text in DURATIONS]
    assert [numbers.percent(share) for share, _ in PERCENTAGES] == [text for _, text in PERCENTAGES]
    assert [counted(count, "row") for count, _ in COUNTS] == [text for _, text in COUNTS]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_the_servers_page_writes_them_the_same_way() -> None:
    tables = (DURATIONS, PERCENTAGES, COUNTS)
    place = (files("understill") / "serve" / "page" / "numbers.js").as_posix()
    given = json.dumps([[value for value, _ in table] for table in tables])
    command = ["node", "--input-type=module", "--eval", PAGE.replace("PLACE", place), given]
    written = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(written.replace("\xa0", " ")) == [[text for _, text in table] for table in tables]


def test_scores_are_points_out_of_100_and_errors_are_as_they_are() -> None:
    assert [numbers.score("accuracy", 0.8768), numbers.score("mse", 0.8768)] == ["87.7", "0.877"]
    assert [numbers.score("matthews", value) for value in (-0.5, -0.0001, None)] == ["−50.0", "0.0", "–"]
    assert [numbers.delta("accuracy", value) for value in (0.0123, -0.0123, -0.0001)] == ["+1.2", "−1.2", "+0.0"]
    assert numbers.interval("accuracy", Interval(-0.01, 0.02), "+") == "−1.0 to +2.0"
    assert [numbers.interval("f1", Interval(0.1, 0.2)), numbers.interval("f1", None)] == ["10.0 to 20.0", "–"]
    assert numbers.mean_spread("f1", summarise([0.8, 0.9])) == "85.0 ± 7.1"
    assert numbers.mean_spread("mse", summarise([0.8])) == "0.800"


def test_other_quantities_are_written_for_readers() -> None:
    assert [numbers.p_value(p) for p in (None, 0.0001, 0.0421)] == ["–", "< 0.001", "0.042"]
    assert [numbers.effect_size(effect) for effect in (None, -0.321, 0.0)] == ["–", "−0.32", "+0.00"]
    counts = (12, 3400, 22_700_000, 1.5e9)
    assert [numbers.magnitude(count) for count in counts] == ["12", "3.4 k", "22.7 M", "1.5 G"]
    assert [numbers.magnitude(count) for count in (999_499, 999_500, 999.7)] == ["999 k", "1 M", "1 k"]
    factors = (0.0512, 0.95, 2.04, 41.3, 349.0)
    assert [numbers.ratio(factor) for factor in factors] == ["0.05×", "0.95×", "2.0×", "41×", "349×"]
    assert [numbers.file_size(count) for count in (83_412_345, 2.5e9)] == ["83.4 MB", "2.5 GB"]


@given(st.floats(-1, 1))
def test_nothing_is_written_as_less_than_nothing(value: float) -> None:
    assert not {numbers.score("f1", value), numbers.delta("f1", value)} & {"−0.0", "-0.0"}
