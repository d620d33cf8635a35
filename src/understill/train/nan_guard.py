"""The NaN guard: losses and gradients that are NaN or infinite, noticed without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from understill.errors import TrainingError
from understill.recipe.schema import Training


class NanGuard:
    """Keeps the first step whose loss was NaN or infinite, and its tasks, on the device."""

    def __init__(self, tasks: int, device: torch.device) -> None:
        self.step = torch.full((), -1, dtype=torch.long, device=device)
        self.tasks = torch.zeros(tasks, dtype=torch.bool, device=device)

    def observe(self, number: int | Tensor, parts: Tensor, norm: Tensor | None = None) -> None:
        """Note a step's loss parts and, where it was worked out, the norm of its gradient."""
        bad = ~torch.isfinite(parts)
        if norm is not None:
            # Finite losses can have infinite gradients; then every task of the batch may be the cause.
            bad = torch.where(bad.any(), bad, ~torch.isfinite(norm) & (parts != 0))
        first = bad.any() & (self.step < 0)
        # In place: a recorded step writes to the same memory each time.
        self.tasks.copy_(torch.where(first, bad, self.tasks))
        self.step.copy_(torch.where(first, number, self.step))

    def check(self, names: list[str], training: Training) -> None:
        """Stop with the first such step and its tasks, where there was one; this waits for the device."""
        step = int(self.step)
        if step >= 0:
            where = ", ".join(name for name, bad in zip(names, self.tasks.tolist(), strict=True) if bad)
            raise TrainingError(
                f"step {step}: the loss of {where} is no longer a number (NaN or Inf). "
                f"Lower the learning rate, training.lr (now {training.rate:g}), raise training.warmup, "
                "or use precision: fp32"
            )
