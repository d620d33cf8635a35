"""Pace: how long steps and evaluations take, and so about how long the rest will."""

from __future__ import annotations

from collections.abc import Callable

#: Steps that do not count, since the first ones allocate, compile and record.
WARM_UP = 3
#: Steps that are taken before anything is said, these included.
FIRST = 6
#: Seconds after which a measurement counts half, so that the estimate follows the machine and not a single batch.
HALF_LIFE = 30.0


class Pace:
    """Says how long training still takes; nothing until a few steps are done."""

    def __init__(self, total: int, evaluations: Callable[[int], int]) -> None:
        self.total = total
        self.evaluations = evaluations  # how many are to come when a step has just been taken
        self.taken = 0
        self.steps = self.seconds = 0.0  # of those that count
        self.evaluation = 0.0  # seconds of the last one

    def add(self, steps: int, seconds: float) -> None:
        """Count steps that took so long, evaluations left out."""
        self.taken += steps
        if self.taken - steps < WARM_UP:
            return
        kept = 0.5 ** (seconds / HALF_LIFE)
        self.steps, self.seconds = kept * self.steps + steps, kept * self.seconds + seconds

    def left(self, step: int) -> float | None:
        """Return the seconds from this step to the end; None as long as they are not known."""
        if self.taken < FIRST or not self.steps:
            return None
        return self.seconds / self.steps * (self.total - step) + self.evaluation * self.evaluations(step)
