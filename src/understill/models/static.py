"""The static network: a text is the mean of its words' vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.models.textnet import TextNetwork
from understill.plugins import NETWORKS


@NETWORKS.own("static")
class Mean(TextNetwork):
    """The mean of the real words' vectors; it has no weights of its own."""

    def __init__(self, size: int, hidden: int = 0) -> None:
        super().__init__()
        self.width = size

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of its words' vectors [n, L, size]; 0 for a text without words."""
        cells = torch.arange(words.shape[1], device=words.device)
        there = (cells < lengths.unsqueeze(1)).to(words.dtype) / lengths.clamp(min=1).unsqueeze(1).to(words.dtype)
        return (there.unsqueeze(1) @ words).squeeze(1)

    @torch.no_grad()
    def read(self, channels: Sequence[nn.Embedding], ids: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of texts that lie one after the other in a line of ids."""
        # What is behind the last text is a bag of its own.
        bags = torch.cat([starts, starts[-1:] + lengths[-1:]])
        means = [functional.embedding_bag(ids, channel.weight, bags, mode="mean") for channel in channels]
        return (torch.cat(means, dim=1) if len(means) > 1 else means[0])[:-1]
