"""The words of the demo data, from `phrases.yaml`: what each task's texts are made of, and what several talk about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Phrases:
    """Ways to say one thing; the rare ones never occur in train, so dev needs knowledge from elsewhere."""

    common: tuple[str, ...]
    rare: tuple[str, ...] = ()

    @classmethod
    def of(cls, lines: str) -> Phrases:
        """Read one entry per line; those under a line of dashes are rare."""
        common, _, rare = lines.partition("---")
        return cls(*(tuple(line.strip() for line in part.splitlines() if line.strip()) for part in (common, rare)))

    @property
    def all(self) -> tuple[str, ...]:
        """Every entry, common ones first."""
        return self.common + self.rare

    def known(self, split: str) -> int:
        """How many entries, from the first, may occur in a split."""
        return len(self.common) if split == "train" else len(self.all)


def per_category(split: str) -> int:
    """How many products of a category, from the first, may occur in a split."""
    return _COMMON if split == "train" else PER_CATEGORY


def _phrases(node: Any) -> Any:
    """Turn every list of lines into phrases; mappings stay, sequences become tuples."""
    if isinstance(node, str):
        return Phrases.of(node)
    if isinstance(node, list):
        return tuple(map(_phrases, node))
    return {key: _phrases(value) for key, value in node.items()}


_FILE: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
#: Category → products, as usual name → other name. The last two of a category are rare.
CATALOGUE: dict[str, dict[str, str]] = _FILE.pop("products")
CATEGORIES = tuple(CATALOGUE)
_COMMON, PER_CATEGORY = 4, 6
#: The phrases of each task.
PHRASES: dict[str, Any] = _phrases(_FILE)

PRODUCTS = Phrases(
    tuple(name for names in CATALOGUE.values() for name in [*names][:_COMMON]),
    tuple(name for names in CATALOGUE.values() for name in [*names][_COMMON:]),
)
DAYS = Phrases(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"))

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
DATES = Phrases(tuple(f"{day} {month}" for month in _MONTHS for day in range(1, 29)))
