"""The manifest: what a model folder tells of itself, read without its weights and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.atomic import read_facts, refuse_damage
from understill.errors import UserError
from understill.inference.onnx import is_export
from understill.models.roles import MAIN, roles_in
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task
from understill.tasks.task import tasks_in

FORMAT = 2
MANIFEST = "understill.json"
#: What reading the values of a file raises that is not as it was written.
BROKEN = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Manifest:
    """What a model folder tells of itself."""

    tasks: tuple[Task, ...]
    pooling: str
    heads: HeadsSpec
    max_lengths: Mapping[str, int]  # by task
    taught: bool  # whether it, or the model that it began as, learnt from teachers


def read_manifest(folder: Path) -> Manifest:
    """Read what a model folder tells of itself."""
    values = _values(folder)
    try:
        tasks, lengths = tasks_in(values)
        heads = HeadsSpec.model_validate(values["heads"])
        return Manifest(tasks, str(values["pooling"]), heads, lengths, bool(values["taught"]))
    except BROKEN as error:
        what = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise UserError(f"{folder / MANIFEST}: broken: {what}") from error


def model_tasks(folder: Path) -> tuple[Task, ...]:
    """Return the tasks that a model folder answers."""
    return read_manifest(folder).tasks


def find_model(path: Path) -> Path:
    """Return the model folder meant by a path: the folder itself, or the main or only model of a run folder."""
    models = path / "models"
    if (path / MANIFEST).exists() or not models.is_dir():
        _values(path)
        return path
    names = sorted(entry.name for entry in models.iterdir())
    # A student is what a run is made for, and without teachers its models; others taught or followed it.
    roles = roles_in(path)
    main = [name for name in names if roles.get(name) in MAIN] or names
    if len(main) == 1:
        return models / main[0]
    if not names:
        raise UserError(f"{path} holds no model yet; run its recipe to the end")
    raise UserError(f"{path} holds several models; give one of them: {', '.join(str(models / name) for name in names)}")


def _values(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise UserError(f"{folder}: no such model folder")
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            f"{folder}: no {MANIFEST} here, so this is no understill model; give the folder that a run printed"
        )
    refuse_damage(folder, (MANIFEST,))
    if is_export(folder):
        fix = "name the model that it was made of"
        raise UserError(f"{folder} is an ONNX export, which answers (understill predict) and no more → {fix}")
    values = read_facts(path)
    if values.get("format") != FORMAT:
        raise UserError(f"{folder}: format {values.get('format')} is not known to this version of understill")
    return values
