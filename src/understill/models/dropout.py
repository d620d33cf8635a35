"""Dropout whose draws cost little on a CPU, where torch draws one number after the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Random bits for each value; a rate is rounded to a multiple of 2^-16.
_BITS = 16


def drop(values: Tensor, rate: float) -> Tensor:
    """Set each value to 0 with a probability, and scale the others so that the expectation stays."""
    if values.device.type != "cpu":
        return functional.dropout(values, rate)
    dropped = min(round(rate * 2**_BITS), 2**_BITS - 1)
    words = torch.empty(-(-values.numel() * _BITS // 64), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: values.numel()].view(values.shape)
    kept = torch.ge(bits, dropped - 2 ** (_BITS - 1), out=torch.empty(values.shape, dtype=values.dtype))
    return values * kept.mul_(2**_BITS / (2**_BITS - dropped))


def drop_by_row(values: Tensor, rates: Tensor) -> Tensor:
    """Do the same at the rate of each row, [n]."""
    keep = (1 - rates).view(-1, *[1] * (values.dim() - 1))
    # Drawn in fp32: bf16 has too few steps between 0 and 1 for a rate such as 0.1.
    return (values * (torch.rand(values.shape, device=values.device) < keep) / keep).to(values.dtype)


class Dropout(nn.Dropout):
    """Torch's module with cheaper draws."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop values while training."""
        return drop(input, self.p) if self.training and 0 < self.p < 1 else super().forward(input)


def exchange_dropout(network: nn.Module) -> None:
    """Replace a network's dropout modules by the cheaper ones."""
    for name, part in list(network.named_modules()):
        if type(part) is nn.Dropout:
            network.set_submodule(name, Dropout(part.p).train(part.training))
