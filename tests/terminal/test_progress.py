"""Progress is a bar on a terminal, and a line now and then in a file."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from understill.events import (
    Augmenting,
    Chosen,
    Evaluated,
    Event,
    Examined,
    Fitted,
    Reading,
    Report,
    Resumed,
    Scored,
    Tokenising,
    TrainingState,
    Turn,
    Waiting,
)
from understill.terminal import console, progress


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed while something happens, into a file 40 columns wide."""
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, width=40, **console.PLAIN))
    return text


def report(step: int) -> Report:
    parts = {name: 0.5 for name in ("mood", "similar")}
    return Report(step, 100, 0.1, 0.6931, parts, 1e-4, 1234.0, 95.0, 0.125, 8)


def test_progress_in_a_file_is_a_line_now_and_then(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.LiveProgress() as watch:
        for step in range(1, 101):
            now += 0.5
            watch(report(step))
    lines = output.getvalue().splitlines()
    assert len(lines) == 3  # 50 seconds, and more than 15 between two of them
    assert all(line.startswith("training") for line in lines)


def test_what_is_over_at_once_says_nothing(output: io.StringIO) -> None:
    with progress.LiveProgress() as watch:
        watch(Reading("mood/train", 8192))
        watch(Augmenting("mood", "tagging", 10, 20))
        watch(Tokenising("mood/train", 10, 20))
        watch(report(1))
    assert output.getvalue() == ""


def test_a_long_line_of_progress_stays_one_line(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    with progress.LiveProgress() as watch:
        watch(TrainingState("[multi]", "new"))
        watch(report(7))
        watch(Reading("mood/train", 8192))
    assert output.getvalue().splitlines() == [
        "training [multi]",
        "training [multi]: 7/100 loss 0.693 mood 0.500 similar 0.500 · 1,234 rows/s · padding 12.5 % · 1 min 35 s left",
        "reading mood/train: 8,192",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TrainingState("multi", "new"), "training multi"),
        (TrainingState("multi", "done"), "already trained: multi"),
        (Waiting("multi"), "another process is making multi; waiting for it"),
        (Examined("large", "mood", 0.9123, ""), '  teacher "large" on mood: dev 91.2'),
        (Examined("large", "mood", 0.5, "no better"), '  teacher "large" on mood: dev 50.0 (weak)'),
        (Examined("file", "mood", None, ""), '  teacher "file" on mood: not scored'),
        (Chosen(("a", "b"), 6), "the best of 6 candidates teach: a, b"),
        (Evaluated(3, 0.876, {}, True), "  step 3: dev mean 87.6 (best so far)"),
        (Evaluated(3, 0.876, {}, False), "  step 3: dev mean 87.6"),
        (Fitted(6, 9, 3, [], 1.0), "  early stopping at step 6 of 9: no improvement on dev"),
    ],
)
def test_what_happens_is_told_at_once(output: io.StringIO, event: Any, line: str) -> None:
    with progress.LiveProgress() as watch:
        watch(event)
        watch(Scored("multi", {}))
    assert output.getvalue() == f"{line}\n"


def test_going_on_names_the_model_and_the_step(output: io.StringIO) -> None:
    with progress.LiveProgress() as watch:
        watch(TrainingState("student", "resumed"))
        watch(Turn("student"))
        watch(Resumed(1240, 9000))
    assert output.getvalue() == "student: resuming from step 1,240 of 9,000\n"


def test_no_time_is_given_before_it_is_known(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    with progress.LiveProgress() as watch:
        watch(replace(report(1), seconds_left=None))
    assert output.getvalue().endswith("rows/s · padding 12.5 %\n")


def test_training_to_the_end_needs_no_word(output: io.StringIO) -> None:
    with progress.LiveProgress() as watch:
        watch(Fitted(9, 9, 3, [], 1.0))
    assert output.getvalue() == ""


def test_every_event_has_its_way_of_being_shown_and_a_strange_one_is_passed_over(output: io.StringIO) -> None:
    in_full = {TrainingState, Turn, Resumed, Report, Scored}
    assert set(Event.__subclasses__()) == {*progress.BARS, *progress.LINES, *in_full}
    with progress.LiveProgress() as watch:
        watch(object())  # type: ignore[arg-type]
    assert output.getvalue() == ""


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    wide = Console(file=text, width=200, force_terminal=True, color_system=None, **console.PLAIN)
    monkeypatch.setattr(console, "err", wide)
    with progress.LiveProgress() as watch:
        watch(TrainingState("multi", "new"))
        watch(report(7))
        watch(Reading("[b]", 3))
        watch(Scored("multi", {}))
    assert "training multi\n" in text.getvalue()
    with progress.counter("predicting [a].csv") as count:
        count(5)
        count(6)
    assert "predicting [a].csv" in text.getvalue()
    assert "11 rows" in text.getvalue()


def test_time_spent_and_time_left_are_written_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    wide = Console(file=text, width=200, force_terminal=True, color_system=None, **console.PLAIN)
    monkeypatch.setattr(console, "err", wide)
    with progress.LiveProgress() as watch:
        watch(replace(report(7), seconds_left=4.2))
    assert re.search(r"· 4 s left +0 s", text.getvalue())
