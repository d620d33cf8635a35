"""Blocks: what a report is made of, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass

from understill.report.facts import Examples


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; one that weighs more than others stands out."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table; columns from `numbers` on hold numbers."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int = 1


@dataclass(frozen=True)
class Picture:
    """A drawing, what it shows in a sentence, and its numbers."""

    svg: str
    about: str
    table: Table


@dataclass(frozen=True)
class SearchableRows:
    """Rows to be searched."""

    name: str
    columns: tuple[str, ...]
    examples: Examples


@dataclass(frozen=True)
class Code:
    """Text that is shown as it is."""

    text: str


@dataclass(frozen=True)
class Tiles:
    """A few figures that are seen first, each with what it is."""

    tiles: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


Block = Paragraph | Table | Picture | SearchableRows | Code | Tiles | Heading


@dataclass(frozen=True)
class ReportSection:
    """A part of a report, with its anchor and its heading."""

    key: str
    title: str
    blocks: tuple[Block, ...]
