"""A model as one plain folder: weights, tokeniser, tasks with their label names, recipe and scores."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedTokenizerFast

from understill.errors import UserError
from understill.models.encoder import build_encoder, load_tokenizer
from understill.models.multitask import MultiTaskModel
from understill.recipe import HeadsSpec
from understill.tasks import Task

FORMAT = 1
MANIFEST = "understill.json"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ModelFolder:
    """Everything a model folder holds."""

    path: Path
    model: MultiTaskModel
    tokenizer: PreTrainedTokenizerFast
    max_lengths: Mapping[str, int]  # by task
    scores: Mapping[str, Any]

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
) -> None:
    """Write a model folder; it appears under its name only when it is whole."""
    building = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    model.encoder.config.save_pretrained(building)
    tokenizer.save_pretrained(building)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, building / WEIGHTS, metadata={"format": "pt"})
    manifest = {
        "format": FORMAT,
        "tasks": [task.to_dict() for task in model.tasks],
        "pooling": model.encoder.pooling,
        "heads": model.spec.model_dump(mode="json"),
        "max_lengths": dict(max_lengths),
    }
    (building / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (building / "recipe.yaml").write_text(recipe, encoding="utf-8")
    (building / "scores.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)


def load_model(folder: Path) -> ModelFolder:
    """Read a model folder; nothing but this folder is needed."""
    manifest = _manifest(folder)
    tasks = [Task.from_dict(values) for values in manifest["tasks"]]
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    encoder = build_encoder(config, manifest["pooling"])
    model = MultiTaskModel(encoder, tasks, HeadsSpec.model_validate(manifest["heads"]))
    try:
        weights = load_file(folder / WEIGHTS)
        model.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{folder}: the weights cannot be read: {str(error).splitlines()[0]}") from error
    scores_file = folder / "scores.json"
    scores = json.loads(scores_file.read_text(encoding="utf-8")) if scores_file.exists() else {}
    return ModelFolder(folder, model.eval(), load_tokenizer(str(folder), str(folder)), manifest["max_lengths"], scores)


def _manifest(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise UserError(f"{folder}: no such model folder")
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            f"{folder}: no {MANIFEST} here, so this is no understill model; give the folder that a run printed"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: broken: {error}") from None
    if manifest.get("format") != FORMAT:
        raise UserError(f"{folder}: format {manifest.get('format')} is not known to this version of understill")
    return manifest
