"""Markdown: the same report for wherever HTML does not go; pictures are their tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from understill.report.blocks import (
    Block,
    Code,
    Heading,
    Paragraph,
    Picture,
    ReportSection,
    SearchableRows,
    Table,
    Tiles,
)

#: Rows on which two differ that are shown of each dev set.
SHOWN = 20


def to_markdown(title: str, sections: Sequence[ReportSection]) -> str:
    """Write a report as Markdown."""
    parts = [f"# {_plain(title)}"]
    for section in sections:
        parts.append(f"## {_plain(section.title)}")
        for block in section.blocks:
            parts.extend(_block(block))
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text, strong):
            yield f"**{_plain(text)}**" if strong else _plain(text)
        case Tiles(tiles):
            yield "\n".join(f"- **{_plain(value)}** {_plain(what)}" for value, what in tiles)
        case Heading(text):
            yield f"### {_plain(text)}"
        case Table():
            yield _table(block)
        case Picture(_, about, table):
            yield _plain(about)
            yield _table(table)
        case Code(text):
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            yield f"{fence}\n{text.rstrip()}\n{fence}"
        case SearchableRows(name, columns, examples):
            rows = [(*each.texts, each.gold, *each.answers) for each in examples.shown[:SHOWN]]
            yield _table(Table(f"{name}: the first {len(rows)}", columns, tuple(rows), len(columns)))


def _table(table: Table) -> str:
    rule = ["---:" if place >= table.numbers else "---" for place in range(len(table.head))]
    lines = [table.head, rule, *table.rows]
    cells = "\n".join(f"| {' | '.join(_plain(cell) if row is not rule else cell for cell in row)} |" for row in lines)
    return f"{_plain(table.caption)}\n\n{cells}"


def _plain(text: str) -> str:
    """Return text that Markdown leaves as it is, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split()))
