"""The report of a run: its facts, gathered once, as one page of HTML and as Markdown."""

from __future__ import annotations

from pathlib import Path

from understill.atomic import fingerprint, write_bytes
from understill.events import Watch, silent
from understill.pipeline.record import read_record
from understill.recipe import Recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.markdown import to_markdown
from understill.report.sections import sections

__all__ = ["is_current", "write_report"]

#: The page of a run folder.
PAGE = "report.html"
#: What a run that makes nothing new writes into its record all the same.
PASSING = {"started", "finished", "seconds", "checksum"}


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
    page, parts = out or folder / PAGE, sections(facts)
    write_bytes(page.with_suffix(".md"), to_markdown(facts.name, parts).encode())
    write_bytes(page, f"{to_html(facts.name, parts)}{_stamp(folder, by, timing)}".encode())
    return page


def is_current(folder: Path) -> bool:
    """Tell whether a run folder has the whole report of the very results of its record, made by the same versions."""
    page = folder / PAGE
    try:
        return page.with_suffix(".md").is_file() and page.read_bytes().endswith(_stamp(folder).encode())
    except OSError:
        return False


def _stamp(folder: Path, by: str | None = None, timing: bool = True) -> str:
    """Return the last line of a page: a comment that changes with the results of the run and what is shown of them."""
    shown = {} if by is None and timing else {"by": by, "timing": timing}
    lasting = {key: value for key, value in read_record(folder).items() if key not in PASSING}
    return f"<!-- {fingerprint({**lasting, **shown})} -->\n"
