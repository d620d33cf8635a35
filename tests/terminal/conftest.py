"""A console whose output the tests read."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from understill.terminal import console


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, from a console of known width."""
    text = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=text, width=200, **console.PLAIN))
    return text
