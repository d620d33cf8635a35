"""Taking turns: several models trained at once on one GPU, each on a stream of its own.

A small model's step leaves most of a GPU idle, however it is launched. Steps of several models run side by side there,
while one thread of Python hands them out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

import torch

from understill.schema import Machine
from understill.train.device import pick_device

#: Models at once on a GPU, where the recipe does not say: past these the total hardly grows.
_USUAL = 8
#: Steps of one model that may wait for the GPU; more would only make the others wait for the host.
_AHEAD = 3


def at_once(machine: Machine) -> int:
    """Return how many models are trained at once."""
    if pick_device(machine) != "cuda":
        return 1  # the cores of a CPU are busy with one
    return _USUAL if machine.together == "auto" else machine.together


def take_turns(begin: Callable[[], Iterator[None] | None], count: int) -> None:
    """Run up to `count` jobs in turns until `begin` has no more to give.

    A job gives way after each of its steps. `begin` is asked for the next one whenever a place is free.
    """
    if count == 1:
        while (only := begin()) is not None:
            for _ in only:
                pass
        return
    jobs: list[_Job] = []
    while True:
        while len(jobs) < count and (started := begin()) is not None:
            jobs.append(_Job(started))
        if not jobs:
            return
        free = [job for job in jobs if job.free()]
        if not free:
            time.sleep(2e-5)
        for job in free:
            if not job.advance():
                jobs.remove(job)
                break  # a place is free


class _Job:
    """A job on a stream of its own."""

    def __init__(self, steps: Iterator[None]) -> None:
        self.steps = steps
        self.stream = torch.cuda.Stream()
        self.waiting: deque[torch.cuda.Event] = deque()

    def free(self) -> bool:
        """Tell whether the GPU has caught up with it."""
        while self.waiting and self.waiting[0].query():
            self.waiting.popleft()
        return len(self.waiting) < _AHEAD

    def advance(self) -> bool:
        """Take a step; tell whether there was one."""
        with torch.cuda.stream(self.stream):
            try:
                next(self.steps)
            except StopIteration:
                return False
            event = torch.cuda.Event()
            event.record(self.stream)
            self.waiting.append(event)
        return True
