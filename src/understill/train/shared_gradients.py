"""Shared gradients: those of a recorded step in one place, where several processes can sum them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from understill.losses.objective import Loss

#: Values to a multiple of which places in memory are rounded up: the optimiser's kernel reads 16 bytes at once.
_ALIGNED = 8


class SharedGradients:
    """Gradients and losses one after the other, in a piece of memory for each type, which processes sum as a whole."""

    def __init__(self, leaves: Sequence[Tensor], losses: tuple[int, int]) -> None:
        places, ends = [], dict.fromkeys([torch.float32, *(leaf.dtype for leaf in leaves)], 0)
        for dtype, count in [(leaf.dtype, leaf.numel()) for leaf in leaves] + [(torch.float32, math.prod(losses))] * 2:
            places.append(slice(ends[dtype], ends[dtype] + count))
            ends[dtype] += -(-count // _ALIGNED) * _ALIGNED
        device = leaves[0].device
        self.memory = {dtype: torch.zeros(end, dtype=dtype, device=device) for dtype, end in ends.items()}
        parts, counts = (self.memory[torch.float32][place].view(losses) for place in places[-2:])
        self.losses = parts, counts
        pairs = zip(leaves, places[:-2], strict=True)
        self.views = [self.memory[leaf.dtype][place].view(leaf.shape) for leaf, place in pairs]

    def fill(self, grads: Sequence[Tensor | None], loss: Loss) -> Tensor:
        """Copy a step's gradients and losses; return where each gradient lies then, 0 where there is none."""
        pairs = list(zip((*self.views, *self.losses), (*grads, loss.parts, loss.counts), strict=True))
        for dtype in self.memory:  # all of a type by one kernel
            there = [(view, grad) for view, grad in pairs if grad is not None and view.dtype == dtype]
            if there:
                views, values = zip(*there, strict=True)
                torch._foreach_copy_(views, values)
        return torch.tensor(
            [0 if grad is None else view.data_ptr() for view, grad in zip(self.views, grads, strict=True)]
        )
