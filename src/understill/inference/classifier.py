"""Hugging Face exports that answer: a plain sequence classifier, or sentence-transformers modules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification

from understill.atomic import read_facts, refuse_incomplete
from understill.data.batch import Batch
from understill.data.files import short
from understill.data.tokens import TextEncoder
from understill.errors import UserError
from understill.inference.torch_model import NetworkPredictor
from understill.models.encoder import build_encoder, load_config, load_tokenizer
from understill.models.folder import WEIGHTS
from understill.models.manifest import BROKEN
from understill.models.pooling import MODULES, POOLED
from understill.models.transformer import Encoder
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task
from understill.tasks.task import tasks_in
from understill.teachers.checkpoints import Classifier, output_names

#: The key of a classifier's config.json that holds its task.
KEY = "understill"
#: The name of each activation in the config of a dense layer.
ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    f"{each.__module__}.{each.__name__}": each for each in (nn.Identity, nn.Tanh, nn.GELU, nn.ReLU, nn.Sigmoid)
}


def read_export(folder: Path) -> Mapping[str, Any] | None:
    """Return the task, length and link of an exported classifier; None where a folder is none."""
    try:
        facts = read_facts(folder / "config.json").get(KEY)
    except UserError:
        return None
    return facts if isinstance(facts, dict) else None


class HuggingFaceModel(NetworkPredictor):
    """An exported classifier, ready to answer its task."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        refuse_incomplete(folder, ("config.json", "tokenizer.json", WEIGHTS))
        facts = read_export(folder)
        assert facts is not None
        self.source = folder
        try:
            task = Task.from_dict(facts["task"])
            self.tasks, self.max_lengths = tasks_in(
                {"tasks": [facts["task"]], "max_lengths": {task.name: facts["max_length"]}}
            )
            regression = HeadsSpec(regression=facts["regression"])
        except BROKEN as error:
            raise UserError(f"{folder / 'config.json'}: broken: {type(error).__name__}: {error}") from None
        tokenizer = load_tokenizer(str(folder), str(folder))
        self.encode, self.pooled = TextEncoder(tokenizer), facts.get("pooling") in POOLED
        if self.pooled:
            self.model = SentenceNetwork(folder, task.outputs).to(device).eval()
            return
        try:
            network = AutoModelForSequenceClassification.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
            )
        except Exception as error:  # whatever an architecture makes of a changed config
            raise UserError(f"{folder} cannot be loaded: {type(error).__name__}: {short(error)}") from None
        names = output_names(network.config)
        if len(names) != task.outputs or (task.kind.has_classes and names != task.labels):
            what = "its task has other labels than the classifier"
            raise UserError(f"{folder / 'config.json'}: {what} → copy the whole folder again")
        classifier = Classifier(network, tokenizer)
        classifier.spec = regression
        self.model = classifier.to(device).eval()


class SentenceNetwork(nn.Module):
    """A sentence-transformers folder as a network that reads batches: an encoder, mean pooling and dense layers."""

    light = False

    def __init__(self, folder: Path, outputs: int) -> None:
        super().__init__()
        self.spec, self.outputs = HeadsSpec(regression="raw"), outputs  # scores are on the task's own scale
        config = load_config(str(folder), str(folder))
        try:
            encoder = build_encoder(config, "mean")
            assert isinstance(encoder, Encoder)
            encoder.network.load_state_dict(load_file(folder / WEIGHTS))
            modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
            paths = [Path(each["path"]) for each in modules if each["type"].endswith(".Dense")]
            # Not one that leads out of the folder.
            layers = [_read_dense(folder / path.name) for path in paths]
            self.normalised = any(each["type"].endswith(".Normalize") for each in modules)
            widths = [
                encoder.width,
                *(size for layer in layers for size in next(layer.parameters()).shape[::-1]),
                outputs,
            ]
            if widths[::2] != widths[1::2]:
                raise ValueError("its layers do not fit together, or not its labels")
        except Exception as error:
            raise UserError(f"{folder} cannot be loaded: {type(error).__name__}: {short(error)}") from None
        self.encoder, self.layers = encoder, nn.Sequential(*layers)

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits, or the score, of every row, [n, outputs]."""
        means = self.encoder(batch)
        vectors = functional.normalize(means, dim=1) if self.normalised else means
        return self.layers(vectors)  # type: ignore[no-any-return]

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows: never, so that it computes what the library does."""
        return False

    def columns(self, task: str) -> slice:
        """Return where the outputs stand; there is one task, whatever its name."""
        return slice(0, self.outputs)

    def number(self, task: str) -> int:
        """Return the place of its task, whatever its name."""
        return 0


def _read_dense(folder: Path) -> nn.Sequential:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    activation, weights = ACTIVATIONS[config["activation_function"]](), load_file(folder / WEIGHTS)
    outputs, inputs = weights["linear.weight"].shape
    linear = nn.Linear(inputs, outputs)
    linear.load_state_dict({"weight": weights["linear.weight"], "bias": weights["linear.bias"]})
    return nn.Sequential(linear, activation)
