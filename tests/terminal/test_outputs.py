"""Texts, labels and scores are shown as they are."""

from __future__ import annotations

import io

from terminal_cases import rows

from understill.inference.predictor import Answer
from understill.tasks import Task
from understill.terminal import console, listings, outputs


def test_texts_and_labels_are_shown_as_they_are(shown: io.StringIO) -> None:
    odd = "[red]not markup[/] [/oops] :smile: \\[x]"
    console.say(odd)
    listings.show_tasks({"own": [Task("mine", "classification", ("t",), "l", ("[/a]", ":b:"))]})
    outputs.show_answers([odd], ["[two]"], {"mine": [Answer("[/a]", {"[/a]": 0.75, ":b:": 0.25})]})
    lines = shown.getvalue().splitlines()
    assert lines[0] == odd
    assert rows(shown)[0][3] == "[/a], :b:"
    assert lines[-2:] == [f"{odd} | [two]", "  mine: [/a] (75.0 %), :b: 25.0 %"]


def test_long_lines_are_not_broken(shown: io.StringIO) -> None:
    console.say("word " * 100)
    listings.show_yaml("a: " + "b " * 100)
    assert len(shown.getvalue().splitlines()) == 2


def test_a_score_has_two_digits(shown: io.StringIO) -> None:
    outputs.show_answers(["a"], ["b"], {"similar": [Answer(score=3.14159)]})
    assert shown.getvalue() == "a | b\n  similar: 3.14\n"
