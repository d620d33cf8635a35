"""A console whose output the tests read."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from understill import terminal


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, from a console of known width."""
    text = io.StringIO()
    monkeypatch.setattr(terminal.console, "out", Console(file=text, width=200, **terminal.console.PLAIN))
    return text
