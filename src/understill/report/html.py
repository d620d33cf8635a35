"""HTML: a report as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from understill.report.blocks import ReportSection


def to_html(title: str, sections: Sequence[ReportSection]) -> str:
    """Write a report as one self-contained page; all text is escaped, pictures alone are markup."""
    pages = Environment(
        loader=PackageLoader("understill.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = pages.get_template("report.html")
    return template.render(title=title, sections=sections, form_of=lambda block: type(block).__name__)
