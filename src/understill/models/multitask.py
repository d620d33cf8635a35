"""The model: one shared encoder with a head for each task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from understill.data.batch import Batch
from understill.models.encoder import Encoder, load_encoder
from understill.models.heads import Heads
from understill.recipe import EncoderSpec, HeadsSpec
from understill.tasks import Task


class MultiTaskModel(nn.Module):
    """An encoder and one head per task; the outputs of all heads stand side by side."""

    def __init__(self, encoder: Encoder, tasks: Sequence[Task], spec: HeadsSpec) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.spec = spec
        self.encoder = encoder
        rates = [spec.dropout_of(task.name) for task in tasks]
        spread = getattr(encoder.config, "initializer_range", 0.02)
        self.heads = Heads(encoder.width, tasks, encoder.shape, rates, spread)

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of every head for every row, [n, columns]."""
        logits: Tensor = self.heads(self.encoder(batch), batch.task)
        return logits

    def columns(self, task: str) -> slice:
        """Return where a task's outputs stand."""
        start = 0
        for each in self.tasks:
            if each.name == task:
                return slice(start, start + each.outputs)
            start += each.outputs
        raise KeyError(task)


def new_model(
    encoder: EncoderSpec, heads: HeadsSpec, tasks: Sequence[Task], seed: int, source: str | None = None
) -> MultiTaskModel:
    """Load the pretrained encoder and put fresh heads on it; the seed decides their first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MultiTaskModel(load_encoder(encoder, source), tasks, heads)
