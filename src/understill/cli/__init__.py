"""The command line: parse, call, print."""

from __future__ import annotations

from importlib import import_module

from understill.cli.program import app, main

__all__ = ["app", "main"]

# The help lists verbs in the order in which they come.
for part in ("experiments", "results", "using", "housekeeping"):
    import_module(f"{__name__}.{part}")
