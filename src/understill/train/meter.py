"""The meter: losses and speed between two reports, and the time that training still takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from understill.data.batches import Batches
from understill.events import Report
from understill.losses.objective import PARTS
from understill.train.loop import Step

#: Seconds between two readings of the loss; reading makes a GPU wait.
REPORT_SECONDS = 1.0
#: Steps left out of the estimate, since the first ones allocate, compile and record.
WARM_UP = 3
#: Steps before the first estimate, those of the warm-up included.
FIRST = 6
#: Seconds after which a measurement counts half, so that the estimate follows the machine and not a single batch.
HALF_LIFE = 30.0


class Pace:
    """Estimates how long training still takes, once a few steps are done."""

    def __init__(self, total: int, evaluations: Callable[[int], int]) -> None:
        self.total = total
        self.evaluations = evaluations  # how many are to come when a step has just been taken
        self.taken = 0
        self.steps = self.seconds = 0.0  # of those that count
        self.evaluation = 0.0  # seconds of the last one

    def add(self, steps: int, seconds: float) -> None:
        """Count steps that took so long, evaluations left out."""
        self.taken += steps
        if self.taken - steps >= WARM_UP:
            kept = 0.5 ** (seconds / HALF_LIFE)
            self.steps, self.seconds = kept * self.steps + steps, kept * self.seconds + seconds

    def left(self, step: int) -> float | None:
        """Return the seconds from this step to the end; None as long as they are not known."""
        if self.taken < FIRST or not self.steps:
            return None
        return self.seconds / self.steps * (self.total - step) + self.evaluation * self.evaluations(step)


class Meter:
    """Adds up the losses and rows of the steps between two reports."""

    def __init__(self, tasks: list[str], pace: Pace, parts: Sequence[str] = PARTS) -> None:
        self.tasks, self.pace, self.names = tasks, pace, parts
        self._clear()

    def _clear(self) -> None:
        self.since = time.monotonic()
        self.rows = self.steps = 0
        self.sums: torch.Tensor | None = None  # [2, parts, tasks]: losses, and the rows that have them

    def add(self, step: Step) -> None:
        """Count one step."""
        self.rows += step.rows
        self.steps += 1
        sums = torch.stack([step.parts, step.counts])  # a copy: a step's tensors only hold until the next one
        self.sums = sums if self.sums is None else self.sums.add_(sums)

    def rest(self, seconds: float) -> None:
        """Leave time that was not spent on training out of the speed."""
        self.since += seconds

    def due(self) -> bool:
        """Tell whether it is time to report."""
        return time.monotonic() - self.since >= REPORT_SECONDS

    def report(self, step: Step, batches: Batches) -> Report:
        """Read the sums, which waits for the device, and start anew."""
        assert self.sums is not None
        sums, counts = self.sums.tolist()
        seconds = time.monotonic() - self.since
        self.pace.add(self.steps, seconds)
        report = Report(
            step.number,
            step.total,
            step.epoch,
            sum(sums[0]) / max(1.0, sum(counts[0])),
            self._means(sums, counts),
            step.rate,
            self.rows / max(1e-9, seconds),
            self.pace.left(step.number),
            batches.padding_share(step.number - self.steps, step.number),
            step.micro_batch,
            step.mix,
        )
        self._clear()
        return report

    def _means(self, sums: list[list[float]], counts: list[list[float]]) -> dict[str, float]:
        """Return the mean losses by name."""
        means = {}
        for index, task in enumerate(self.tasks):
            # Without a teacher the hard part is all there is.
            taught = any(count[index] for count in counts[2:])
            for part, name in enumerate(self.names if taught else self.names[:1]):
                if count := counts[part][index]:
                    means[f"{task}/{name}" if part else task] = sums[part][index] / count
        return means
