"""A student network: words are weighed by a small attention and added up."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from understill.models.textnet import TextNetwork
from understill.plugins import NETWORKS


@NETWORKS.register("attentive")
class Attentive(TextNetwork):
    """Attention pooling over a text's words."""

    def __init__(self, size: int, hidden: int, depth: int = 1) -> None:
        super().__init__()
        self.width = hidden
        sizes = [size] + [hidden] * depth
        self.layers = nn.ModuleList(nn.Linear(one, other) for one, other in pairwise(sizes))
        self.score = nn.Linear(hidden, 1)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, hidden], of the vectors of its words, [n, words, size]."""
        for layer in self.layers:
            words = torch.tanh(layer(words))
        there = torch.arange(words.shape[1], device=words.device) < lengths.unsqueeze(1)
        weights = self.score(words).squeeze(2).exp() * there
        total = weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        return ((weights / total).unsqueeze(1) @ words).squeeze(1)
