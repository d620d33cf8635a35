"""Ranking: sums over the candidates of each query of a batch, from which its losses are made."""

from __future__ import annotations

import torch
from torch import Tensor


class BatchQueries:
    """The queries of a batch, whose candidates stand side by side; each sum is given at every row of its query."""

    def __init__(self, group: Tensor) -> None:
        new = torch.ones_like(group, dtype=torch.bool)
        new[1:] = group[1:] != group[:-1]
        self.first = new  # [n], whether a row is the first of its query
        self.number = new.long().cumsum(0) - 1  # [n], of each row's query

    def sum(self, values: Tensor) -> Tensor:
        """Sum values, [n], over the candidates."""
        return torch.zeros_like(values).index_add(0, self.number, values)[self.number]

    def any(self, flags: Tensor) -> Tensor:
        """Tell whether any candidate is flagged."""
        return self.sum(flags.float()) > 0

    def best(self, values: Tensor) -> Tensor:
        """Return the highest value of any candidate, without gradient."""
        lowest = torch.full_like(values, -torch.inf)
        return lowest.scatter_reduce(0, self.number, values.detach(), "amax")[self.number]

    def log_softmax(self, values: Tensor) -> Tensor:
        """Return log-probabilities that sum to 1 over the candidates."""
        shifted = values - self.best(values)
        return shifted - self.sum(shifted.exp()).log()

    def surprise(self, scores: Tensor, right: Tensor) -> Tensor:
        """Return −log of the probability that the choice falls on a right candidate; of a query without any, 0."""
        log_p = self.log_softmax(scores).masked_fill(~right, -torch.inf)
        best = self.best(log_p)
        best = torch.where(best.isinf(), 0.0, best)
        total = self.sum((log_p - best).exp())
        return -torch.where(total == 0, 1.0, total).log() - best

    def divergence(self, scores: Tensor, log_q: Tensor) -> Tensor:
        """Return KL(Q ‖ softmax of the scores), where Q is brought to sum to 1 over the candidates that are there."""
        log_q = self.log_softmax(log_q)
        return self.sum(log_q.exp() * (log_q - self.log_softmax(scores)))
