"""ONNX: a model of any kind as one graph, which answers all of its tasks from one pass of the encoder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from understill.atomic import seal, write_json
from understill.data.batch import EVERY, Batch
from understill.data.tokens import TextEncoder
from understill.inference.onnx import FORMAT, GRAPH, INPUTS, MANIFEST, TOKENIZER, output_name
from understill.models.folder import ModelFolder
from understill.models.heads import to_scores
from understill.models.multitask import MultiTaskModel
from understill.tasks import Task

#: Of ONNX's operators; the first that has layer normalisation as one of them is 17.
OPSET = 18


class Graph(nn.Module):
    """A model as a graph has it: rows come as plain tensors, and each task's answer leaves by itself."""

    def __init__(self, model: MultiTaskModel, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.model, self.tasks = model, tasks

    def forward(self, ids: Tensor, lengths: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of each task for the rows: raw logits of classes, or scores on the task's scale."""
        task, gold = torch.full_like(lengths, EVERY), torch.zeros_like(lengths)
        logits = self.model(Batch(ids, lengths, second, task, gold, gold, task, task))
        return tuple(self._answer(logits[:, self.model.columns(each.name)], each) for each in self.tasks)

    def _answer(self, own: Tensor, task: Task) -> Tensor:
        return to_scores(own, task, self.model.spec.regression) if task.kind.scaled else own


def write_onnx(folder: ModelFolder, tasks: Sequence[Task], target: Path) -> None:
    """Write a graph of these tasks, the tokeniser, and all that the runtime has to know, into a folder."""
    write_graph(folder.model, tasks, target / GRAPH)
    encode = TextEncoder(folder.tokenizer)
    encode.backend.save(str(target / TOKENIZER))
    facts = {
        "format": FORMAT,
        "weights": "float32",
        "tasks": [task.to_dict() for task in tasks],
        "max_lengths": {task.name: folder.max_lengths[task.name] for task in tasks},
        "pad": encode.pad,
        "truncation_side": encode.row_tokenizer.side,
        "split_special_tokens": encode.backend.encode_special_tokens,
    }
    write_json(target / MANIFEST, facts)
    seal(target)


def write_graph(model: MultiTaskModel, tasks: Sequence[Task], path: Path) -> None:
    """Write a model as a graph for rows of any number and length.

    By torch's older exporter: of an LSTM the newer one writes every step out, for one length, and of the encoders that
    were tried it took some twenty times as long.
    """
    axes = {"ids": {0: "rows", 1: "length"}, **{name: {0: "rows"} for name in INPUTS[1:]}}
    names = [output_name(task.name) for task in tasks]
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            Graph(model.cpu(), tasks).eval(),
            _example(),
            str(path),
            input_names=list(INPUTS),
            output_names=names,
            opset_version=OPSET,
            dynamo=False,
            dynamic_axes={**axes, **{name: {0: "rows"} for name in names}},
        )


def _example() -> tuple[Tensor, Tensor, Tensor]:
    """Return three rows of unequal lengths, so that nothing in the graph takes all cells for tokens."""
    ids = torch.ones(3, 11, dtype=torch.int64)
    return ids, torch.tensor([11, 7, 5]), torch.tensor([6, 4, 5])
