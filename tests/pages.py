"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str = "") -> list[Block]:
    """Return the blocks of a page, or those of one language."""
    text = page.read_text(encoding="utf-8")
    every = [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"], match["body"])
        for match in FENCE.finditer(text)
    ]
    return [block for block in every if language in ("", block.language)]


BLOCKS = [block for page in PAGES for block in blocks(page)]
