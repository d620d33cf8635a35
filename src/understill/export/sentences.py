"""sentence-transformers: one task of a model with mean pooling as a folder of modules that the library loads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from understill.atomic import write_json
from understill.inference.classifier import ACTIVATIONS
from understill.models.folder import WEIGHTS, ModelFolder
from understill.models.heads import Head
from understill.models.pooling import MODULES
from understill.tasks import Task

#: The names of activations in the config of a dense layer, by those that architectures have for them.
_NAMES = {kind: name for name, kind in ACTIVATIONS.items()}
_ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}
#: Where all versions of sentence-transformers look for their modules.
_PLACE = "sentence_transformers.models"


class _Dense(NamedTuple):
    """A linear layer and its activation."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor
    activation: type[nn.Module] = nn.Identity


def _layers(folder: ModelFolder, task: Task) -> list[_Dense]:
    """Return a task's head as dense layers, whose last gives logits or scores on the task's own scale."""
    model = folder.model
    head, link = model.heads.tasks[model.number(task.name)], model.spec.regression
    assert isinstance(head, Head)
    layers = []
    if head.dense is not None:
        layers.append(_Dense(head.dense.weight, head.dense.bias, _ACTIVATIONS[model.encoder.shape.activation]))
    scores = task.kind.scaled
    # Vectors of the length 1 are what the library knows; ours are longer.
    length = math.sqrt(model.encoder.width) if model.encoder.pooling == "normalised" else 1.0
    layers.append(
        _Dense(head.out.weight * length, head.out.bias, nn.Sigmoid if scores and link == "sigmoid" else nn.Identity)
    )
    if scores and link != "raw" and task.range is not None:
        low, high = task.range
        layers.append(_Dense(torch.tensor([[high - low]]), torch.tensor([low])))
    return layers


def write_modules(folder: ModelFolder, task: Task, target: Path) -> None:
    """Write the encoder's weights, and the modules that turn its hidden states into logits."""
    encoder, length = folder.model.encoder, folder.max_lengths[task.name]
    assert isinstance(encoder.network, PreTrainedModel)
    _save(encoder.network.state_dict(), target)
    settings: dict[str, Any] = {"max_seq_length": length, "do_lower_case": False}
    if "add_pooling_layer" in inspect.signature(type(encoder.network)).parameters:
        settings["model_args"] = {"add_pooling_layer": False}  # it has no weights here
    write_json(target / "sentence_bert_config.json", settings)
    layers, between = _layers(folder, task), ["Normalize"] if encoder.pooling == "normalised" else []
    modules = ["Transformer", "Pooling", *between, *["Dense"] * len(layers)]
    paths = [f"{number}_{module}" if number else "" for number, module in enumerate(modules)]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_PLACE}.{module}"}
        for number, (path, module) in enumerate(zip(paths, modules, strict=True))
    ]
    write_json(target / MODULES, listed)
    modes = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens")
    pooling = {"word_embedding_dimension": encoder.width, **{f"pooling_mode_{each}": False for each in modes}}
    _write_module(target / paths[1], {**pooling, "pooling_mode_mean_tokens": True})
    for path in paths[2 : 2 + len(between)]:
        (target / path).mkdir()
    for path, layer in zip(paths[-len(layers) :], layers, strict=True):
        _write_dense(target / path, layer, task.pair and path == paths[-1])
    facts: dict[str, Any] = {
        # A pair is read as one row, which is what the library calls a cross-encoder.
        "model_type": "CrossEncoder" if task.pair else "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "activation_fn": "torch.nn.modules.linear.Identity",
    }
    write_json(target / "config_sentence_transformers.json", facts)


def _write_dense(place: Path, layer: _Dense, scores: bool) -> None:
    """Write a dense layer; the last one of a cross-encoder says that its outputs are scores."""
    outputs, inputs = layer.weight.shape
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": True,
        "activation_function": _NAMES[layer.activation],
    }
    _write_module(place, {**config, **({"module_output_name": "scores"} if scores else {})})
    weights = {"linear.weight": layer.weight, "linear.bias": layer.bias}
    _save(weights, place)


def _save(weights: Mapping[str, Tensor], place: Path) -> None:
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    save_file(tensors, place / WEIGHTS, metadata={"format": "pt"})


def _write_module(place: Path, config: dict[str, Any]) -> None:
    place.mkdir()
    write_json(place / "config.json", config)


def lines_of(task: Task) -> Sequence[str]:
    """Return the code that runs such a folder without understill."""
    kind, ask = ("CrossEncoder", 'predict([("…", "…")])') if task.pair else ("SentenceTransformer", 'encode(["…"])')
    lines = [f"from sentence_transformers import {kind}", "", f'model = {kind}("path/to/this/folder")']
    if task.kind.scaled:
        return [*lines, f"scores = model.{ask}"]
    names = "labels = model[0].model.config.id2label"
    return [*lines, f"logits = model.{ask}", names, "[labels[row.argmax()] for row in logits]"]
