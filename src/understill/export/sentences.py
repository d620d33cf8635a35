"""Sentences: one task of a model with mean pooling as a folder that sentence-transformers loads."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from understill.data.batch import Batch
from understill.disk import write_json
from understill.errors import UserError
from understill.models.encoder import Encoder, build_encoder, load_config
from understill.models.folder import WEIGHTS, ModelFolder
from understill.models.heads import Head
from understill.models.pooling import MODULES
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task

#: What activations are called in the config of a dense layer.
_NAMED: dict[str, type[nn.Module]] = {
    f"{each.__module__}.{each.__name__}": each for each in (nn.Identity, nn.Tanh, nn.GELU, nn.ReLU, nn.Sigmoid)
}
_ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}
#: Names that all versions of sentence-transformers know.
_PLACE = "sentence_transformers.models"


class Dense(nn.Module):
    """A linear layer and what comes after it."""

    def __init__(self, weight: Tensor, bias: Tensor, activation: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.load_state_dict({"weight": weight, "bias": bias})
        self.activation = activation()

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs, [n, outputs]."""
        return self.activation(self.linear(values))  # type: ignore[no-any-return]


def _layers(folder: ModelFolder, task: Task) -> list[Dense]:
    """Return a task's head as dense layers, whose last gives logits or scores on the task's own scale."""
    model = folder.model
    head, link = model.heads.tasks[model.number(task.name)], model.spec.regression
    assert isinstance(head, Head)
    layers = []
    if head.dense is not None:
        layers.append(Dense(head.dense.weight, head.dense.bias, _ACTIVATIONS[model.encoder.shape.activation]))
    scores = task.kind.scaled
    # Vectors of the length 1 are what the library knows; ours are longer.
    length = math.sqrt(model.encoder.width) if model.encoder.pooling == "normalised" else 1.0
    layers.append(
        Dense(head.out.weight * length, head.out.bias, nn.Sigmoid if scores and link == "sigmoid" else nn.Identity)
    )
    if scores and link != "raw" and task.range is not None:
        low, high = task.range
        layers.append(Dense(torch.tensor([[high - low]]), torch.tensor([low])))
    return layers


def write_modules(folder: ModelFolder, task: Task, target: Path) -> None:
    """Write the encoder's weights, and the modules that make logits of what it says of tokens."""
    encoder, length = folder.model.encoder, folder.max_lengths[task.name]
    assert isinstance(encoder.network, PreTrainedModel)
    save_file(
        {key: value.detach().cpu().contiguous() for key, value in encoder.network.state_dict().items()},
        target / WEIGHTS,
        metadata={"format": "pt"},
    )
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


def _write_dense(place: Path, layer: Dense, scores: bool) -> None:
    """Write a dense layer; the last one of a cross-encoder says that what it gives are scores."""
    kind = type(layer.activation)
    config = {
        "in_features": layer.linear.in_features,
        "out_features": layer.linear.out_features,
        "bias": True,
        "activation_function": f"{kind.__module__}.{kind.__name__}",
    }
    _write_module(place, {**config, **({"module_output_name": "scores"} if scores else {})})
    weights = {f"linear.{key}": value.detach().cpu().contiguous() for key, value in layer.linear.state_dict().items()}
    save_file(weights, place / WEIGHTS, metadata={"format": "pt"})


def _write_module(place: Path, config: dict[str, Any]) -> None:
    place.mkdir()
    write_json(place / "config.json", config)


class Sentences(nn.Module):
    """Such a folder as a network that reads batches; all of it is read from the files."""

    light = False

    def __init__(self, folder: Path, outputs: int) -> None:
        super().__init__()
        self.spec, self.outputs = HeadsSpec(regression="raw"), outputs  # scores are on the task's own scale
        encoder = build_encoder(load_config(str(folder), str(folder)), "mean")
        assert isinstance(encoder, Encoder)
        try:
            encoder.network.load_state_dict(load_file(folder / WEIGHTS))
            listed = json.loads((folder / MODULES).read_text(encoding="utf-8"))
            layers = [_read_dense(folder / each["path"]) for each in listed if each["type"].endswith(".Dense")]
            self.normalised = any(each["type"].endswith(".Normalize") for each in listed)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(f"{folder} cannot be loaded: {what}") from None
        self.encoder, self.layers = encoder, nn.Sequential(*layers)

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits, or the score, of every row, [n, outputs]."""
        means = self.encoder(batch)
        vectors = functional.normalize(means, dim=1) if self.normalised else means
        return self.layers(vectors)  # type: ignore[no-any-return]

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows: it does not, so that it can be compared to what the library does."""
        return False

    def columns(self, task: str) -> slice:
        """Return where the outputs stand; there is one task, whatever its name."""
        return slice(0, self.outputs)

    def number(self, task: str) -> int:
        """Return the place of its task, whatever its name."""
        return 0


def _read_dense(place: Path) -> Dense:
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    weights = load_file(place / WEIGHTS)
    return Dense(weights["linear.weight"], weights["linear.bias"], _NAMED[config["activation_function"]])


def lines_of(task: Task) -> Sequence[str]:
    """Return the program that asks such a folder without understill."""
    kind, ask = ("CrossEncoder", 'predict([("…", "…")])') if task.pair else ("SentenceTransformer", 'encode(["…"])')
    lines = [f"from sentence_transformers import {kind}", "", f'model = {kind}("path/to/this/folder")']
    if task.kind.scaled:
        return [*lines, f"scores = model.{ask}"]
    names = "labels = model[0].model.config.id2label"
    return [*lines, f"logits = model.{ask}", names, "[labels[row.argmax()] for row in logits]"]
