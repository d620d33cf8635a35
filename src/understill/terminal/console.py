"""The console: where lines and tables go, as they are, however wide it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

#: Columns of a table where the output is a file, and COLUMNS does not say.
WIDTH = 120
#: Texts, labels and file names are shown as they are: no markup, no emoji codes, no wrapping.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}

_set_by_user = os.environ.get("COLUMNS", "").isdigit()
out = Console(width=None if sys.stdout.isatty() or _set_by_user else WIDTH, **PLAIN)
err = Console(stderr=True, **PLAIN)

#: Columns that are kept whole where long texts may break.
_WHOLE = {"stage", "state", "task", "kind", "metric", "steps", "about", "timed", "run", "size", "folder"}


def say(text: str) -> None:
    """Print a line."""
    out.print(text)


def show_table(
    title: str, names: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str] | None], last: str = ""
) -> None:
    """Print a table: columns of names, columns of numbers, and perhaps a last one of words; None draws a line."""
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, no_wrap=name in _WHOLE, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold", min_width=5)  # numbers are never cut
    if last:
        table.add_column(last, overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*row)
    out.print(table)
