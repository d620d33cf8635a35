"""The static network: a text is the mean of its words' vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mean(nn.Module):
    """The mean of the real words' vectors; it has no weights of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.width = size

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of its words' vectors [n, L, size]; 0 for a text without words."""
        cells = torch.arange(words.shape[1], device=words.device)
        there = (cells < lengths.unsqueeze(1)).to(words.dtype) / lengths.clamp(min=1).unsqueeze(1).to(words.dtype)
        return (there.unsqueeze(1) @ words).squeeze(1)
