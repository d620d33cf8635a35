"""Networks over words: the vectors of a text's words in, one vector for the text out; the mean is the simplest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.plugins import NETWORKS

#: Texts that are padded and read at once where they lie in a line.
_ROWS = 1024


class TextNetwork(nn.Module):
    """A network over words to derive from: built of the size of a word's vector and of `hidden`, then its options.

    It sets `width`, the size of a text's vector, and has `forward`.
    """

    width: int

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of its words' vectors [n, L, size]; 0 for a text without words.

        A text's vector must not depend on the padding behind its words.
        """
        raise NotImplementedError

    @torch.no_grad()
    def read(self, channels: Sequence[nn.Embedding], ids: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of texts that lie within a line of ids; the same, padded here."""
        texts = []
        for first in range(0, len(starts), _ROWS):
            here, long = starts[first : first + _ROWS], lengths[first : first + _ROWS]
            cells = torch.arange(max(1, int(long.max())), device=ids.device)
            places = (here.unsqueeze(1) + cells).clamp(max=max(0, len(ids) - 1))
            words = torch.cat([channel(ids[places].long()) for channel in channels], dim=2)
            texts.append(self(words, long))
        return torch.cat(texts) if texts else channels[0].weight.new_zeros(0, self.width)


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
