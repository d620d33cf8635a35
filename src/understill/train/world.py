"""The processes that train one model together: each takes its share of every batch, and gradients are added up.

With one process nothing here does anything. The gradients of several are summed in one piece, by NCCL where each
process has a GPU to itself and by gloo elsewhere. All else that processes tell each other goes through gloo.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from understill.errors import ProcessLost, UserError
from understill.recipe.schema import Machine
from understill.train.device import pick_device
from understill.train.signals import SIGNALS

T = TypeVar("T")

#: How long processes wait for each other: the first one may be labelling for days. A process that dies closes its
#: connections, which the others see at once.
_PATIENCE = timedelta(days=30)
#: What torchrun tells a process about itself.
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class World:
    """A process's place among those that train a model together."""

    rank: int = 0
    size: int = 1
    sums: Any = field(default=None, repr=False)  # the group of processes that gradients are summed in

    @property
    def leads(self) -> bool:
        """Whether it is the process that writes, reports and decides."""
        return self.rank == 0

    def refuse_small(self, batch: int) -> None:
        """Refuse a batch that has no row for each process."""
        if batch < self.size:
            fix = f"use at most {batch}, or raise training.batch"
            raise UserError(f"{self.size} processes cannot share batches of {batch} rows → {fix}")

    def share(self, value: T) -> T:
        """Return the first process's value."""
        if self.size == 1:
            return value
        values = [value if self.leads else None]
        with _together():
            distributed.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _together():
            distributed.all_gather_object(values, value)
        return values

    def copy_weights(self, model: nn.Module) -> None:
        """Give every process the first one's weights."""
        for tensor in model.state_dict().values() if self.size > 1 else ():
            held = tensor.detach().cpu().contiguous()
            with _together():
                distributed.broadcast(held, src=0)
            tensor.copy_(held)

    def add_up(self, parameters: Iterable[nn.Parameter], *more: Tensor) -> int:
        """Sum gradients and further tensors over all processes, in place; return the signal that any of them got.

        A weight that no process has a gradient for has none afterwards.
        """
        if self.size == 1:
            return SIGNALS.number
        weights = [weight for weight in parameters if weight.requires_grad]
        known = torch.tensor([SIGNALS.number, *(weight.grad is not None for weight in weights)], dtype=torch.uint8)
        with _together():
            distributed.all_reduce(known, distributed.ReduceOp.MAX)
        signal, *flags = known.tolist()
        some = [weight for weight, flag in zip(weights, flags, strict=True) if flag]
        for weight in some:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        self._sum_all([weight.grad for weight in some if weight.grad is not None] + list(more))
        return int(signal)

    def _sum_all(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        self.sum(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def sum(self, values: Tensor) -> None:
        """Sum a tensor over all processes, in place."""
        held = values if self.sums is not None else values.float().cpu()
        with _together():
            distributed.all_reduce(held, group=self.sums)
        values.copy_(held)

    def agree(self, failed: bool) -> tuple[int, bool]:
        """Return the signal that any process got, and whether any has failed."""
        if self.size == 1:
            return SIGNALS.number, failed
        known = torch.tensor([SIGNALS.number, failed], dtype=torch.uint8)
        with _together():
            distributed.all_reduce(known, distributed.ReduceOp.MAX)
        return int(known[0]), bool(known[1])


#: A process by itself.
ALONE = World()
_joined = ALONE


def world() -> World:
    """Return this process's place among those that it has joined."""
    return _joined


@contextmanager
def joining(machine: Machine) -> Iterator[World]:
    """Join the processes that this one was started with, and use a GPU of its own where there are enough."""
    global _joined
    settings = {name: int(os.environ.get(name, "0")) for name in _ENVIRONMENT}
    try:
        distributed.init_process_group("gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        what = f"the {settings['WORLD_SIZE']} processes of this run cannot reach each other: {error}"
        raise UserError(f"{what} → start them with --processes, or with torchrun") from None
    for name in _ENVIRONMENT:
        os.environ.pop(name, None)  # accelerate would wrap models and wait for the others in its own way
    try:
        sums = _group_of_gpus(settings["LOCAL_RANK"]) if pick_device(machine) == "cuda" else None
        _joined = World(settings["RANK"], settings["WORLD_SIZE"], sums)
        yield _joined
    finally:
        leave()


def leave() -> None:
    """Part from the other processes; once all are done they do so together."""
    global _joined
    _joined = ALONE
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _group_of_gpus(local: int) -> Any:
    """Take a GPU, and return the NCCL group of all processes; None where two have to share a GPU."""
    count = torch.cuda.device_count()
    torch.cuda.set_device(local % count)
    places: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(places, local < count and distributed.is_nccl_available())
    return distributed.new_group(backend="nccl", timeout=_PATIENCE) if all(places) else None


@contextmanager
def _together() -> Iterator[None]:
    """Word the end of another process, which torch reports as a fault of the connection to it."""
    try:
        yield
    except (RuntimeError, distributed.DistError) as error:
        what = "another process of this run has ended, so this one stops"
        raise ProcessLost(f"{what} → the same command resumes from the last checkpoint") from error
