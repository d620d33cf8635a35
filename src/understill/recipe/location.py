"""Location: paths of a recipe that only its own folder has, spelled out so that a copy finds them too."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understill.recipe.experiment import Recipe


def located(recipe: Recipe, folder: Path) -> Recipe:
    """Return a recipe that knows its folder, with paths that only this folder has spelled out."""

    def move(name: str) -> str:
        here, there = Path(name).expanduser(), folder / name
        return str(there) if not _exists(here) and _exists(there) else name

    tasks = {}
    for name, spec in recipe.tasks.items():
        changes: dict[str, Any] = {}
        if spec.hub:
            changes["hub"] = spec.hub.model_copy(update={"dataset": move(spec.hub.dataset)})
            given: dict[str, Any] = {"unlabelled": spec.unlabelled}
        else:
            given = {"train": spec.train, "dev": spec.dev, "test": spec.test, "unlabelled": spec.unlabelled}
        changes |= {key: tuple(map(move, value)) for key, value in given.items() if isinstance(value, tuple)}
        tasks[name] = spec.model_copy(update=changes)
    data = recipe.data.model_copy(update={"glue": move(recipe.data.glue)}) if recipe.data.glue else recipe.data

    encoder = recipe.student.encoder and recipe.student.encoder.located(move)
    student = recipe.student.model_copy(update={"encoder": encoder})
    teachers = tuple(teacher.located(move) for teacher in recipe.teachers)
    changed = {"tasks": tasks, "data": data, "teachers": teachers, "student": student}
    whole = recipe.model_copy(update={**changed, "encoder": recipe.encoder.located(move)})
    whole._folder = folder
    return whole


def _exists(path: Path) -> bool:
    """Tell whether a path, or anything that fits a pattern, exists."""
    return path.exists() or (
        glob.has_magic(str(path)) and next(glob.iglob(str(path), recursive=True), None) is not None
    )
