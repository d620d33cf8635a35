"""A model as one plain folder: weights, tokeniser, tasks with their label names, recipe and scores."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from understill.atomic import CHECKSUMS, read_facts, read_record, refuse_incomplete, replacing, seal, write_json
from understill.errors import UserError
from understill.models.encoder import build_encoder, load_config, load_tokenizer
from understill.models.manifest import FORMAT, MANIFEST, read_manifest
from understill.models.multitask import MultiTaskModel
from understill.models.transformer import max_tokens
from understill.tasks import Task

WEIGHTS = "model.safetensors"
SCORES = "scores.json"


@dataclass(frozen=True)
class ModelFolder:
    """Everything a model folder holds."""

    path: Path
    model: MultiTaskModel
    tokenizer: PreTrainedTokenizerFast
    max_lengths: Mapping[str, int]  # by task
    scores: Mapping[str, Any]
    taught: bool  # whether it, or the model that it began as, learnt from teachers
    scored_on: Mapping[str, str] = field(default_factory=dict)  # the fingerprint of the rows of each dev set

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks this model answers."""
        return self.model.tasks


def save_model(
    folder: Path,
    model: MultiTaskModel,
    tokenizer: PreTrainedTokenizerFast,
    max_lengths: Mapping[str, int],
    recipe: str,
    scores: Mapping[str, Any],
    taught: bool = False,
) -> None:
    """Write a model folder; it appears under its name only when it is whole."""
    with replacing(folder) as part:
        model.encoder.config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, part / WEIGHTS, metadata={"format": "pt"})
        # safetensors writes for its owner alone; a model is there to be copied and served.
        shutil.copymode(part / "config.json", part / WEIGHTS)
        manifest = {
            "format": FORMAT,
            "tasks": [task.to_dict() for task in model.tasks],
            "pooling": model.encoder.pooling,
            "heads": model.spec.model_dump(mode="json"),
            "max_lengths": dict(max_lengths),
            "taught": taught,
        }
        (part / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (part / "recipe.yaml").write_text(recipe, encoding="utf-8")
        (part / SCORES).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")


def save_scores(folder: Path, scores: Mapping[str, Any], scored_on: Mapping[str, str]) -> None:
    """Write the scores of a model into its folder, with the fingerprints of the dev sets."""
    write_json(folder / SCORES, scores)
    seal(folder, {"scored_on": dict(scored_on)})


def load_model(folder: Path) -> ModelFolder:
    """Read a model folder; nothing but this folder is needed."""
    manifest = read_manifest(folder)
    refuse_incomplete(folder, ("config.json", "tokenizer.json", WEIGHTS, MANIFEST))
    config = load_config(str(folder), str(folder))
    if max(manifest.max_lengths.values()) > (max_tokens(config) or math.inf):
        raise UserError(f"{folder}: {MANIFEST} names more tokens than config.json has room for")
    try:
        weights = load_file(folder / WEIGHTS)
        model = MultiTaskModel(build_encoder(config, manifest.pooling), manifest.tasks, manifest.heads)
        model.load_state_dict(weights)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder}: the weights cannot be read: {str(error).splitlines()[0]}") from error
    except UserError:  # a plug-in that is not installed
        raise
    except Exception as error:  # whatever an architecture makes of a changed config
        raise UserError(f"{folder}: the weights do not fit {MANIFEST} and config.json") from error
    # Attention on a CPU may turn a weight that is no number into a number, so that no answer tells of it.
    if bad := [name for name, value in weights.items() if value.numel() and not _finite(value)]:
        fix = "train it again, or copy the whole folder again"
        raise UserError(f"{folder}: some weights are no numbers (NaN or Inf), in {bad[0]} for one → {fix}")
    scores = read_facts(folder / SCORES) if (folder / SCORES).exists() else {}
    tokenizer = load_tokenizer(str(folder), str(folder))
    scored_on = read_record(folder / CHECKSUMS).get("scored_on", {})
    return ModelFolder(folder, model.eval(), tokenizer, manifest.max_lengths, scores, manifest.taught, scored_on)


def _finite(values: Tensor) -> bool:
    low, high = torch.aminmax(values)  # in one pass; NaN is both where there is any
    return bool(torch.isfinite(low) and torch.isfinite(high))
