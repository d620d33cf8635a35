"""The seeds: numbers that decide what is drawn."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from understill.recipe.mistakes import shown
from understill.recipe.section import as_list

Seed = Annotated[int, Field(ge=0, lt=2**63)]


def several_seeds(value: Any, first: int = 0) -> Any:
    """Take a number of seeds, or a list of them."""
    if isinstance(value, int):
        if isinstance(value, bool) or not 1 <= value <= 100:
            raise ValueError(f"{shown(value)} is no number of seeds → write 3, or list them: [0, 1, 2]")
        return tuple(range(first, first + value))
    seeds = as_list(value) or ()
    # However they are written: 1.0 and "1" are read as 1.
    if isinstance(seeds, (list, tuple)) and len({str(seed).removesuffix(".0") for seed in seeds}) < len(seeds):
        raise ValueError("a seed is listed twice → list each once")
    return seeds
