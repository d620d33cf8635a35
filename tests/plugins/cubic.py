"""An annealing shape that stays with the teacher even longer than a quadratic one."""

from typing import Any

from understill.plugins import ANNEALING


@ANNEALING.register("cubic")
def cubic(progress: Any) -> Any:
    """Return the share of the way that λ has gone when this share of the run is done."""
    return progress**3
