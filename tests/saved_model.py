"""A saved model with a head of every kind, untrained: its answers differ from text to text, and that is enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from understill.inference.loading import load
from understill.inference.torch_model import TorchModel
from understill.models.encoder import load_tokenizer
from understill.models.folder import save_model
from understill.models.multitask import new_model
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task

TASKS = (
    Task("mood", "classification", ("text",), "label", labels=("calm", "upset")),
    Task("topic", "classification", ("text",), "label", labels=("delivery", "money", "access")),
    Task("stars", "regression", ("text",), "label", range=(1.0, 5.0)),
    Task("follows", "classification", ("premise", "claim"), "label", labels=("yes", "no", "open")),
    Task("alike", "regression", ("premise", "claim"), "label", range=(-1.0, 1.0)),
)
LENGTHS = {"mood": 32, "topic": 16, "stars": 32, "follows": 32, "alike": 32}


@pytest.fixture(scope="session")
def make_model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that writes a model folder with these tasks."""

    def make(tasks: tuple[Task, ...] = TASKS, **heads: Any) -> Path:
        model = new_model(EncoderSpec(name=str(tiny), max_length=32), HeadsSpec(**heads), tasks, seed=0)
        generator = torch.Generator().manual_seed(0)
        for weight in model.parameters():
            if weight.dim() > 1:  # with weights as small as fresh ones are, all texts get the same answer
                torch.nn.init.normal_(weight, std=0.6, generator=generator)
        folder = tmp_path_factory.mktemp("models") / "model"
        lengths = {task.name: LENGTHS.get(task.name, 32) for task in tasks}
        save_model(folder, model, load_tokenizer(str(tiny)), lengths, "{}\n", {})
        return folder

    return make


@pytest.fixture(scope="session")
def model_folder(make_model: Callable[..., Path]) -> Path:
    """A model with five tasks: one text and two, classes and scores, and a task that reads fewer tokens."""
    return make_model()


@pytest.fixture(scope="session")
def predictor(model_folder: Path) -> TorchModel:
    """That model, loaded."""
    return load(model_folder)
