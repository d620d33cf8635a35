"""Heads: the small networks that turn a row's vector into each task's logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.models.dropout import drop_by_row
from understill.models.san import San
from understill.models.shape import HeadShape
from understill.models.siamese import Siamese
from understill.models.transformer import TokenStates
from understill.recipe.schema import SanSpec
from understill.tasks import Task

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "relu": functional.relu,
}


class Head(nn.Module):
    """One task's head: a linear layer, after a dense one where the architecture has no pooler.

    `spread` is the standard deviation of its initial weights; without one, they are torch's own.
    """

    def __init__(self, width: int, outputs: int, shape: HeadShape, spread: float | None) -> None:
        super().__init__()
        self.dense = None if shape.pooler else nn.Linear(width, shape.dense or width)
        self.out = nn.Linear(shape.dense or width, outputs)
        for layer in (self.dense, self.out):
            if layer is not None and spread is not None:
                nn.init.normal_(layer.weight, std=spread)
                nn.init.zeros_(layer.bias)


class Heads(nn.Module):
    """All tasks' heads; each row's dropout follows its task."""

    rates: Tensor

    def __init__(
        self,
        width: int,
        tasks: Sequence[Task],
        shape: HeadShape,
        rates: Sequence[float],
        spread: float | None,
        sans: Sequence[SanSpec | None] = (),
        siamese: Sequence[bool] = (),
    ) -> None:
        super().__init__()
        self.shape = shape
        # A list, because a mapping of modules refuses names such as "type" that a user's task may well have.
        self.tasks = nn.ModuleList()
        for number, task in enumerate(tasks):
            small = 0.02 if spread is None else spread
            if siamese and siamese[number]:
                self.tasks.append(Siamese(width, task.outputs))
            elif sans and (san := sans[number]):
                self.tasks.append(San(width, task.outputs, **san.model_dump(), spread=small))
            else:
                self.tasks.append(Head(width * (shape.pair if task.pair else 1), task.outputs, shape, spread))
        self.widths = [task.outputs for task in tasks]
        self.reads_tokens, self.compares = any(sans), any(siamese)
        self.register_buffer("rates", torch.tensor(rates, dtype=torch.float32), persistent=False)

    def forward(
        self,
        pooled: Tensor,
        task: Tensor,
        tokens: TokenStates | None = None,
        only: int | None = None,
        pairs: Tensor | None = None,
    ) -> Tensor:
        """Return every head's outputs side by side, [n, columns]; the objective reads each row's own.

        Where all rows belong to one task, `only` is its number: then other heads that read tokens are skipped,
        and their outputs are 0. Siamese heads read `pairs`.
        """
        rate = self.rates[task]
        plain = [head for head in self.tasks if isinstance(head, Head)]
        outputs = self._plain(plain, pooled, rate) if plain else pooled[:, :0]
        if not self.reads_tokens and not self.compares:
            return outputs
        blocks = list(outputs.split([head.out.out_features for head in plain], dim=1))
        features = self._dropout(pairs, rate) if pairs is not None else pooled
        columns: list[Tensor] = []
        for number, head in enumerate(self.tasks):
            if isinstance(head, Head):
                columns.append(blocks.pop(0))
            elif isinstance(head, Siamese):
                columns.append(head.out(features))
            elif isinstance(head, San) and only in (None, number):
                assert tokens is not None
                columns.append(head(tokens.states, tokens.first, tokens.second, rate).to(pooled.dtype))
            else:
                columns.append(pooled.new_zeros(len(pooled), self.widths[number]))
        return torch.cat(columns, dim=1)

    def _plain(self, heads: Sequence[Head], pooled: Tensor, rate: Tensor) -> Tensor:
        """Return the outputs of the heads that read one vector per row."""
        if self.shape.pooler:
            # One product for all heads, however the tasks are mixed.
            weight = torch.cat([head.out.weight for head in heads])
            bias = torch.cat([head.out.bias for head in heads])
            return functional.linear(self._dropout(pooled, rate), weight, bias)
        activation = _ACTIVATIONS[self.shape.activation]
        features = self._dropout(pooled, rate) if self.shape.early_dropout else pooled
        return torch.cat(
            [
                head.out(self._dropout(activation(head.dense(features[:, : head.dense.in_features])), rate))
                for head in heads
                if head.dense is not None
            ],
            dim=1,
        )

    def _dropout(self, values: Tensor, rate: Tensor) -> Tensor:
        return drop_by_row(values, rate) if self.training else values


def link(outputs: Tensor, regression: str) -> Tensor:
    """Apply a regression head's last function: a sigmoid, or nothing."""
    return torch.sigmoid(outputs) if regression == "sigmoid" else outputs


def to_scores(outputs: Tensor, task: Task, regression: str) -> Tensor:
    """Turn a regression head's raw outputs into scores on the task's own scale."""
    if regression == "raw" or task.range is None:
        return link(outputs, regression)
    low, high = task.range
    return low + link(outputs, regression) * (high - low)
