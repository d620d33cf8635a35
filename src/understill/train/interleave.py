"""Interleaving: several models trained at once on one GPU, each on a CUDA stream of its own.

One step of a small model leaves most of a GPU idle. Steps of several models run concurrently there, launched by one
Python thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import torch

from understill.recipe.schema import Machine
from understill.train.device import pick_device

#: Slots of a GPU, where the recipe does not say: with more, throughput hardly grows.
_DEFAULT_SLOTS = 8
#: Rows of a batch that take up one slot.
_ROWS_PER_SLOT = 32
#: Steps of one model that may be queued on the GPU; more would only make the others wait for the host.
_QUEUED = 3

T = TypeVar("T")


class Job(NamedTuple):
    """Work that is done in steps, and the slots it takes up while it lasts."""

    steps: Generator[None]
    slots: int = 1


def slots_on(machine: Machine) -> int:
    """Return how many models with small batches are trained at once."""
    if pick_device(machine) != "cuda":
        return 1  # the cores of a CPU are busy with one
    return _DEFAULT_SLOTS if machine.together == "auto" else machine.together


def slots_of(batch: int) -> int:
    """Return the slots that a model takes up, by the rows of its batch."""
    return max(1, batch // _ROWS_PER_SLOT)


def beside_others(work: Callable[[], T], machine: Machine) -> Generator[None, None, T]:
    """Do what only the CPU has to do, in a thread where others have their turns on a GPU meanwhile."""
    if slots_on(machine) == 1:
        return work()
    pool = ThreadPoolExecutor(1)
    result = pool.submit(work)
    pool.shutdown(wait=False)
    while not result.done():
        time.sleep(1e-4)  # lets the thread go on
        yield
    return result.result()


def interleave(begin: Callable[[], Job | None], slots: int) -> None:
    """Run jobs step by step in turns until `begin` returns None; it is called whenever a slot is free."""
    if slots == 1:
        while (only := begin()) is not None:
            for _ in only.steps:
                pass
        return
    running: list[_Running] = []
    idle: list[torch.cuda.Stream] = []  # torch has few streams, and memory is kept for each: they are used again
    try:
        while True:
            while (not running or (sum(each.job.slots for each in running) < slots and _roomy(len(running)))) and (
                job := begin()
            ) is not None:
                each = _Running(job, idle.pop() if idle else torch.cuda.Stream())
                if each.advance():  # its memory is taken before the next one is let in
                    running.append(each)
                else:
                    idle.append(each.stream)
            if not running:
                return
            free = [each for each in running if each.free()]
            if not free:
                time.sleep(2e-5)
            for each in free:
                if not each.advance():
                    running.remove(each)
                    idle.append(each.stream)
                    break  # a slot is free
    finally:
        for each in running:
            each.job.steps.close()


def _roomy(jobs: int) -> bool:
    """Tell whether the GPU has memory for two more models of the average size; steps take more than weights."""
    free, _ = torch.cuda.mem_get_info()
    taken = torch.cuda.memory_allocated()
    return free + torch.cuda.memory_reserved() - taken > 2 * taken / jobs


class _Running:
    """A job on a stream of its own."""

    def __init__(self, job: Job, stream: torch.cuda.Stream) -> None:
        self.job, self.stream = job, stream
        self.waiting: deque[torch.cuda.Event] = deque()

    def free(self) -> bool:
        """Tell whether the GPU has caught up with it."""
        while self.waiting and self.waiting[0].query():
            self.waiting.popleft()
        return len(self.waiting) < _QUEUED

    def advance(self) -> bool:
        """Take a step; tell whether there was one."""
        with torch.cuda.stream(self.stream):
            try:
                next(self.job.steps)
            except StopIteration:
                return False
            event = torch.cuda.Event()
            event.record(self.stream)
            self.waiting.append(event)
        return True
