"""The report of a run: its facts, gathered once, as one page of HTML and as Markdown."""

from __future__ import annotations

from pathlib import Path

from understill.atomic import write_bytes
from understill.events import Watch, silent
from understill.recipe import Recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.markdown import to_markdown
from understill.report.sections import sections

__all__ = ["write_report"]


def write_report(
    folder: Path,
    recipe: Recipe,
    *,
    out: Path | None = None,
    by: str | None = None,
    timing: bool = True,
    watch: Watch = silent,
) -> Path:
    """Write the report of a finished run, `report.html` of its folder or another file, and beside it as Markdown."""
    facts = build(folder, recipe, by=by, timing=timing, watch=watch)
    page, parts = out or folder / "report.html", sections(facts)
    write_bytes(page.with_suffix(".md"), to_markdown(facts.name, parts).encode())
    write_bytes(page, to_html(facts.name, parts).encode())
    return page
