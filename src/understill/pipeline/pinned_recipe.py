"""The pinned recipe: that of a run with everything written out that was chosen for the rows at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understill.atomic import write_bytes
from understill.models.roles import MAIN
from understill.pipeline.model_training import TrainedModel
from understill.recipe import Recipe
from understill.recipe.yaml import dump_yaml

#: The file of a run folder that holds it.
PINNED = "pinned.yaml"
#: The sections that decide a model.
_SECTIONS = ("encoder", "heads", "training")


def write_pinned(folder: Path, recipe: Recipe, models: Sequence[TrainedModel]) -> None:
    """Write the recipe with its choices into a run folder; nothing where nothing was left open."""
    (folder / PINNED).unlink(missing_ok=True)
    if any(model.chosen for model in models):
        write_bytes(folder / PINNED, pinned(recipe, models).encode())


def pinned(recipe: Recipe, models: Sequence[TrainedModel]) -> str:
    """Return a recipe that asks for what was chosen, with the reasons as comments.

    A part whose models were given different settings, such as one teacher for each task, stays open.
    """
    values = recipe.model_dump(mode="json")
    _pin(values["student"] if recipe.teachers else values, [each for each in models if each.role in MAIN])
    taught = [(_teacher(recipe, each.name), each) for each in models if each.role == "teacher"]
    for teacher in values["teachers"]:
        _pin(teacher, [each for name, each in taught if name == teacher["name"]])
    lines = ["# What the recipe left open, as it was chosen:"]
    for model in models:
        if model.chosen and model.role != "baseline":
            lines += [f"#   {model.name}: {reason}" for reason in model.chosen["reasons"]]
    return "\n".join([*lines, dump_yaml(values)])


def _teacher(recipe: Recipe, model: str) -> str:
    """Return the teacher that a model is of, with whose name its own begins: of `large` and `large-2`, the longer."""
    return max((str(each.name) for each in recipe.trained if f"{model}-".startswith(f"{each.name}-")), key=len)


def _pin(part: dict[str, Any], models: Sequence[TrainedModel]) -> None:
    """Write the settings of models into their part of the recipe, where they have the same."""
    choices: list[Mapping[str, Any]] = [each.chosen["settings"] for each in models if each.chosen]
    if choices and len(choices) == len(models) and all(each == choices[0] for each in choices):
        part.update({section: choices[0][section] for section in _SECTIONS})
