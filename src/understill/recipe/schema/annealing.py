"""Annealing: how λ goes from its first value to its last, by the share of the run that is done."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator

from understill.plugins import ANNEALING
from understill.recipe.mistakes import shown
from understill.recipe.section import Section, Share, one_of


@ANNEALING.own("linear")
def linear(progress: Any) -> Any:
    """Go evenly."""
    return progress


@ANNEALING.own("cosine")
def cosine(progress: Any) -> Any:
    """Begin and end slowly."""
    angle = progress * math.pi
    return (1 - (math.cos(angle) if isinstance(angle, float | int) else angle.cos())) / 2


@ANNEALING.own("quadratic")
def quadratic(progress: Any) -> Any:
    """Begin slowly."""
    return progress**2


class Anneal(Section):
    """Teacher annealing: λ, the weight of the gold label, over the run; the teacher has 1 − λ."""

    start: Share = 0.0
    end: Share = 1.0
    shape: Annotated[str, BeforeValidator(lambda value: one_of(value, ANNEALING))] = "linear"

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `linear` or another shape, or one λ for the whole run."""
        if isinstance(value, str):
            return {"shape": value}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value}
        if not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write linear, one λ such as 0.5, or none")
        return value

    def at(self, progress: float) -> float:
        """Return λ after this share of the run."""
        return self.start + (self.end - self.start) * float(ANNEALING[self.shape](progress))
