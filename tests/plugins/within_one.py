"""A metric: how many scores lie within one point of gold."""

from typing import Any

from understill.tasks import metric


@metric("within_one", kinds=["regression"])
def within_one(gold: Any, predicted: Any) -> float:
    """Return the share of rows, of arrays [rows] that hold no row without gold."""
    return float((abs(gold - predicted) <= 1).mean())
