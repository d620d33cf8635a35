"""Parsing: a recipe from its file or from plain values, with everything that is wrong told at once."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from understill.errors import Problem, RecipeError, UserError
from understill.recipe.experiment import Recipe
from understill.recipe.location import located
from understill.recipe.mistakes import by_line, explain, shown
from understill.recipe.paths import write
from understill.recipe.schema import TeacherSpec
from understill.recipe.study import with_variants
from understill.recipe.sweep import COMMON, KEYS, Variant, origins, variants
from understill.recipe.yamlfile import Places, read_yaml, read_yaml_value


def load_recipe(path: str | Path, sets: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe file, apply `key=value` changes, and report everything that is wrong at once."""
    path = Path(path)
    values, places = read_yaml(path)
    if not isinstance(values, dict):
        what = "the file is empty" if values is None else f"the file holds {shown(values)}"
        raise UserError(f"{path}: {what} → a recipe has keys and values, for instance tasks: [mood, queue]")
    for change in sets:
        _apply(values, places, change)
    return make_recipe(values, places, path.parent)


def make_recipe(values: dict[str, Any], places: Places | None = None, folder: Path = Path()) -> Recipe:
    """Check plain values, in every variant that they stand for, and build the recipe."""
    places = places or Places("recipe")
    problems: list[Problem] = []
    recipe = _checked(values, places, problems)
    plain = {key: value for key, value in values.items() if key not in KEYS}
    found = []
    for variant in variants(values):
        if variant.changes:
            found.append((variant, _varied(plain, variant, places, problems)))
        else:
            found.append((variant, recipe))
    if recipe is None or problems:
        raise RecipeError(places.file, by_line(problems))
    made = [(variant, located(each, folder)) for variant, each in found if each]
    return with_variants(located(recipe, folder), made, places)


def _checked(values: dict[str, Any], places: Places, problems: list[Problem], where: str = "") -> Recipe | None:
    """Return the recipe of plain values, or None, with what is wrong added to the problems that are known."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        # What a grid stands for is reported where the grid is written.
        moved = {"teachers": origins(values.get("teachers"), TeacherSpec)}
        for problem in explain(error, Recipe, places, moved, values):
            if where and not places.overridden(problem.place):
                here = replace(problem, what=f"with {where}: {problem.what}")
            else:
                here = problem
            if not {problem, here} & set(problems):
                problems.append(here)
        return None


def _varied(plain: dict[str, Any], variant: Variant, places: Places, problems: list[Problem]) -> Recipe | None:
    """Return the recipe with a variant's changes; what is wrong with them is reported where they are written."""
    values, there, sound = copy.deepcopy(plain), places.copy(), True
    for change in variant.changes:
        if change.path[0] in COMMON:
            continue  # which is a fault of the study
        name = ".".join(change.written)
        place = places.of(change.written)
        place = name if place == places.file else place
        try:
            write(values, change.path, copy.deepcopy(change.value), Recipe, "write {}: …")
        except ValueError as error:
            what, _, fix = str(error).partition(" → ")
            problem, sound = Problem(place, f"{'.'.join(change.path)}: {what}", fix), False
            problems += [problem] if problem not in problems else []
        there.override(change.path, place)
    return _checked(values, there, problems, variant.name) if sound else None


def _apply(values: dict[str, Any], places: Places, change: str) -> None:
    """Write one `a.b=value` into the plain values."""
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise UserError(f'--set "{change}": not key=value → write, for instance, --set training.lr=3e-5')
    try:
        write(values, path, read_yaml_value(text, f'--set "{change}"'), Recipe, "write --set {}=…")
    except ValueError as error:
        raise UserError(f'--set "{change}": {error}') from None
    places.override(path, f"--set {change}")
