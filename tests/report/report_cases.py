"""The rows that the reports of the tests are about."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What must stay text wherever it is shown.
EVIL = "<script>document.title = 'broken'</script> & <b>\"bold\"</b> | `x`"
REGIONS = ("north", "south", "east")
STUDENT = {"encoder": {"layers": 1}}


def write(path: Path, rows: Sequence[Sequence[Any]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def notes(split: str, count: int) -> list[tuple[str, str, str]]:
    """Rows of a task of the user's own, with a column that the task does not read."""
    text = [("bad", "too long") if n % 2 else ("fine", "good") for n in range(count)]
    return [
        (f"{split} note {n:03d} {'the film was ' * (n % 4)}{words} {EVIL}", label, REGIONS[n % 3])
        for n, (label, words) in enumerate(text)
    ]
