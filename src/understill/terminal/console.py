"""The console: where lines and tables go, as they are, however wide it is."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
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

#: Columns of names and numbers, which are kept whole where long texts may break.
_WHOLE = (
    "stage",
    "state",
    "task",
    "kind",
    "metric",
    "model",
    "steps",
    "about",
    "timed",
    "split",
    "run",
    "size",
    "folder",
)


def say(text: str) -> None:
    """Print a line."""
    out.print(text)


def table(title: str, *columns: str) -> Table:
    """Start a table."""
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, no_wrap=column in _WHOLE)
    return made


def typed(path: Path) -> str:
    """Write a path as it is typed in a shell."""
    return shlex.quote(str(path))
