"""What the tests of the terminal share: two tasks, and how a printed table is read."""

from __future__ import annotations

import io

from understill.tasks import Task

MOOD = Task("mood", "classification", ("message",), "label", ("calm", "upset"), metrics=("accuracy", "f1"))
SIMILAR = Task("similar", "regression", ("first", "second"), "label", range=(0.0, 5.0), metrics=("pearson",))
TASKS = {"mood": MOOD, "similar": SIMILAR}


def rows(text: io.StringIO) -> list[list[str]]:
    """The cells of every row of a table."""
    lines = [line for line in text.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
