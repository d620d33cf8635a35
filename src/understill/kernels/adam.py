"""AdamW or Adamax over all parameters of a model in one kernel, with the norm of the gradient in another.

The tables hold addresses, so parameters of any number, size, rate and decay take one launch. Weights that are used in
bfloat16 have a copy in that type: its gradient is read as it is, and the copy is written together with the weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Values that one program handles.
_BLOCK = 2048


class Slot(NamedTuple):
    """One parameter: what is updated and how."""

    weight: Tensor  # float32
    first: Tensor  # the mean of its gradients
    second: Tensor  # the mean of their squares, or in Adamax their largest size
    copy: Tensor | None  # the same weight in bfloat16, from which its gradient comes
    rate: float
    decay: float


@triton.jit
def _load(address, cells, size, kind: tl.constexpr, WHOLE: tl.constexpr):
    """Load a block's values; torch aligns memory, so those of a whole block come in wide pieces."""
    pointer = tl.multiple_of(address.to(tl.pointer_type(kind)), 16)
    if WHOLE:
        return tl.load(pointer + cells).to(tl.float32)
    return tl.load(pointer + cells, mask=cells < size, other=0.0).to(tl.float32)


@triton.jit
def _store(address, cells, size, values, kind: tl.constexpr, WHOLE: tl.constexpr):
    """Store a block's values."""
    pointer = tl.multiple_of(address.to(tl.pointer_type(kind)), 16)
    if WHOLE:
        tl.store(pointer + cells, values.to(kind))
    else:
        tl.store(pointer + cells, values.to(kind), mask=cells < size)


@triton.jit
def _gradient(grad, copy, cells, size, WHOLE: tl.constexpr):
    """Load gradients of either type."""
    if copy != 0:
        values = _load(grad, cells, size, tl.bfloat16, WHOLE)
    else:
        values = _load(grad, cells, size, tl.float32, WHOLE)
    return values


@triton.jit
def _squares(grads_, copies_, sizes_, which_, offsets_, out_, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    which = tl.load(which_ + block)
    offset = tl.multiple_of(tl.load(offsets_ + block), BLOCK)
    cells = offset + tl.arange(0, BLOCK)
    grad, copy, size = tl.load(grads_ + which), tl.load(copies_ + which), tl.load(sizes_ + which)
    total = tl.full((), 0.0, tl.float32)
    if grad != 0:
        if offset + BLOCK <= size:
            values = _gradient(grad, copy, cells, size, True)
        else:
            values = _gradient(grad, copy, cells, size, False)
        total = tl.sum(values * values, 0)
    tl.store(out_ + block, total)


@triton.jit
def _change(
    weight, first, second, copy, place, cells, size, rate, decay, correction1, correction2, factor, beta1, beta2, eps,
    ADAMAX: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Update the values of one block."""
    grad = _gradient(place, copy, cells, size, WHOLE) * factor
    value = _load(weight, cells, size, tl.float32, WHOLE)
    mean = _load(first, cells, size, tl.float32, WHOLE)
    spread = beta2 * _load(second, cells, size, tl.float32, WHOLE)
    if ADAMAX:
        grad += decay * value
        spread = tl.maximum(spread, tl.abs(grad) + eps)
        divisor = spread
    else:
        value *= 1 - rate * decay
        spread += (1 - beta2) * grad * grad
        divisor = tl.sqrt(spread) / correction2 + eps
    mean += (grad - mean) * (1 - beta1)
    value -= rate / correction1 * mean / divisor
    _store(first, cells, size, mean, tl.float32, WHOLE)
    _store(second, cells, size, spread, tl.float32, WHOLE)
    _store(weight, cells, size, value, tl.float32, WHOLE)
    if copy != 0:
        _store(copy, cells, size, value, tl.bfloat16, WHOLE)


@triton.jit
def _update(
    weights_, firsts_, seconds_, copies_, grads_, sizes_, rates_, decays_, counts_, which_, offsets_,
    schedule_, step_, norm_,
    clip, beta1, beta2, eps, ADAMAX: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    which = tl.load(which_ + block)
    offset = tl.multiple_of(tl.load(offsets_ + block), BLOCK)
    cells = offset + tl.arange(0, BLOCK)
    rate = tl.load(rates_ + which) * tl.load(schedule_ + tl.load(step_) * 4)
    decay = tl.load(decays_ + which)
    # The bias of the moments goes by how often this very weight was updated.
    row = schedule_ + (tl.maximum(tl.load(counts_ + which), 1.0).to(tl.int64) - 1) * 4
    correction1, correction2 = tl.load(row + 1), tl.load(row + 2)
    weight, first, second = tl.load(weights_ + which), tl.load(firsts_ + which), tl.load(seconds_ + which)
    copy, place, size = tl.load(copies_ + which), tl.load(grads_ + which), tl.load(sizes_ + which)
    factor = 1.0
    if CLIP:
        factor = tl.minimum(clip / (tl.load(norm_) + 1e-6), 1.0)
    if place != 0:  # a weight that was not used stays as it is
        if offset + BLOCK <= size:
            _change(
                weight, first, second, copy, place, cells, size, rate, decay, correction1, correction2, factor,
                beta1, beta2, eps, ADAMAX, True,
            )  # fmt: skip
        else:
            _change(
                weight, first, second, copy, place, cells, size, rate, decay, correction1, correction2, factor,
                beta1, beta2, eps, ADAMAX, False,
            )  # fmt: skip


class Adam:
    """The update of a fixed list of parameters; a table holds the addresses of their gradients."""

    def __init__(
        self,
        slots: Sequence[Slot],
        counts: Tensor,
        schedule: Tensor,
        betas: tuple[float, float],
        eps: float,
        clip: float | None,
        adamax: bool,
    ) -> None:
        device = schedule.device
        self.slots, self.schedule, self.betas, self.eps, self.clip = tuple(slots), schedule, betas, eps, clip
        self.adamax = adamax  # else AdamW
        self.counts = counts  # float32 [slots], how often each was updated; counted up here

        def addresses(tensors: Sequence[Tensor | None]) -> Tensor:
            return torch.tensor([0 if each is None else each.data_ptr() for each in tensors], device=device)

        self.weights = addresses([slot.weight for slot in slots])
        self.firsts = addresses([slot.first for slot in slots])
        self.seconds = addresses([slot.second for slot in slots])
        self.copies = addresses([slot.copy for slot in slots])
        sizes = [slot.weight.numel() for slot in slots]
        self.sizes = torch.tensor(sizes, device=device)
        self.rates = torch.tensor([slot.rate for slot in slots], device=device)
        self.decays = torch.tensor([slot.decay for slot in slots], device=device)
        blocks = [(which, at) for which, size in enumerate(sizes) for at in range(0, size, _BLOCK)]
        self.which = torch.tensor([which for which, _ in blocks], dtype=torch.int32, device=device)
        self.offsets = torch.tensor([at for _, at in blocks], device=device)
        self.partial = torch.empty(len(blocks), device=device)

    def table(self) -> Tensor:
        """Return an empty table for the addresses of gradients; 0 stands for none."""
        return torch.zeros(len(self.slots), dtype=torch.int64, device=self.schedule.device)

    def norm(self, grads: Tensor) -> Tensor:
        """Return the norm of the whole gradient."""
        grid = (len(self.which),)
        _squares[grid](grads, self.copies, self.sizes, self.which, self.offsets, self.partial, BLOCK=_BLOCK)
        return self.partial.sum().sqrt()

    def update(self, grads: Tensor, step: Tensor, norm: Tensor) -> None:
        """Take one step; `step` says which line of the schedule holds for the rates."""
        self.counts += grads != 0
        _update[(len(self.which),)](
            self.weights,
            self.firsts,
            self.seconds,
            self.copies,
            grads,
            self.sizes,
            self.rates,
            self.decays,
            self.counts,
            self.which,
            self.offsets,
            self.schedule,
            step,
            norm,
            self.clip or 0.0,
            *self.betas,
            self.eps,
            ADAMAX=self.adamax,
            CLIP=self.clip is not None,
            BLOCK=_BLOCK,
        )


def schedule_of(factors: Sequence[float], progress: Sequence[float], betas: tuple[float, float]) -> Tensor:
    """Return a line for each step: the factor of the rates, both corrections of Adam's bias, the share done."""
    done = torch.arange(1, len(factors) + 1, dtype=torch.float64)
    columns = [
        torch.tensor(factors, dtype=torch.float64),
        1 - betas[0] ** done,
        (1 - betas[1] ** done).sqrt(),
        torch.tensor(progress, dtype=torch.float64),
    ]
    return torch.stack(columns, dim=1).float().contiguous()


def attempt() -> None:
    """Compile and run the smaller kernel once on one value."""
    value = torch.ones(1, device="cuda")
    slot = Slot(value, value, value, None, 0.0, 0.0)
    once = Adam([slot], value, torch.zeros(1, 4, device="cuda"), (0.9, 0.999), 1e-6, None, adamax=False)
    places = once.table()
    places.fill_(value.data_ptr())
    if once.norm(places).item() != 1:
        raise RuntimeError("a kernel gives wrong numbers")
