"""Parsing: a recipe and its variants from a file or plain values, with all errors reported at once."""

from __future__ import annotations

import contextlib
import copy
import glob
import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

from pydantic import ValidationError

from understill.errors import Problem, RecipeError, UserError
from understill.names import matching, nfc
from understill.recipe.experiment import Changes, Recipe
from understill.recipe.messages import by_line, explain
from understill.recipe.overrides import Leaf, differences, read, write
from understill.recipe.schema import TeacherSpec
from understill.recipe.section import shown
from understill.recipe.sweep import COMMON, KEYS, Variant, origins, variants
from understill.recipe.yaml import Places, read_yaml, read_yaml_value

#: No recipe trains more models, all runs of its study together.
MOST_MODELS = 10_000


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
    try:
        values = _composed(values)
    except UnicodeEncodeError as error:
        what = f"there is half a character, \\u{ord(error.object[error.start]):x}"
        raise UserError(f"{places.file}: {what} → write the character itself") from None
    problems: list[Problem] = []
    recipe = _checked(values, places, problems)
    plain = {key: value for key, value in values.items() if key not in KEYS}
    recipes = [
        (variant, _varied(plain, variant, places, problems) if variant.changes else recipe)
        for variant in variants(values)
    ]
    if recipe is None or problems:
        raise RecipeError(places.file, by_line(problems))
    models = sum(each.model_count for _, each in recipes if each) * max(1, len(recipe.seeds))
    if models > MOST_MODELS:
        what = f"{models:,} models would be trained, more than {MOST_MODELS:,}"
        raise RecipeError(places.file, [Problem(places.file, what, "make it several recipes")])
    return _with_variants(
        _located(recipe, folder), [(variant, _located(each, folder)) for variant, each in recipes if each], places
    )


def _checked(values: dict[str, Any], places: Places, problems: list[Problem], where: str = "") -> Recipe | None:
    """Return the recipe of plain values, or None, with what is wrong added to the problems that are known."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        # What a grid stands for is reported where the grid is written.
        moved = {"teachers": origins(values.get("teachers"), TeacherSpec)}
        for problem in explain(error, Recipe, places, moved, values):
            what = f"with {where}: " if where and problem.place not in places.overrides.values() else ""
            here = replace(problem, what=what + problem.what)
            if not {problem, here} & set(problems):
                problems.append(here)
        return None


def _varied(plain: dict[str, Any], variant: Variant, places: Places, problems: list[Problem]) -> Recipe | None:
    """Return the recipe with a variant's changes; their errors are reported where they are written."""
    values, there, sound = copy.deepcopy(plain), replace(places, overrides=dict(places.overrides)), True
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
        there.overrides[change.path] = place
    return _checked(values, there, problems, variant.name) if sound else None


def _apply(values: dict[str, Any], places: Places, change: str) -> None:
    """Write one `a.b=value` into the plain values."""
    key, equals, text = change.partition("=")
    path = tuple(nfc(key).strip().split("."))
    if not equals or not all(path):
        raise UserError(f'--set "{change}": not key=value → write, for instance, --set training.lr=3e-5')
    try:
        write(values, path, read_yaml_value(text, f'--set "{change}"'), Recipe, "write --set {}=…")
    except ValueError as error:
        raise UserError(f'--set "{change}": {error}') from None
    places.overrides[path] = f"--set {change}"


def _located(recipe: Recipe, folder: Path) -> Recipe:
    """Return a recipe that knows its folder, with relative paths that only this folder has spelled out."""

    def move(name: str) -> str:
        # Some systems write file names with decomposed characters.
        spelled = dict.fromkeys((name, normalize("NFD", name)))
        places = [place for each in spelled for place in (each, str(folder / each))]
        return next((place for place in places if _exists(place)), name)

    moved = recipe.located(move)
    moved._folder = folder
    return moved


def _exists(path: str) -> bool:
    """Tell whether a path, or anything that fits a pattern, exists; one that no file can have does not."""
    path = os.path.expanduser(path)
    try:
        return os.path.exists(path) or (glob.has_magic(path) and bool(matching(path)))
    except OverflowError:
        return True  # who reads the files will say so


def _composed(value: Any) -> Any:
    """Return plain values with all their texts in one Unicode form, so that names which look the same are the same."""
    if isinstance(value, str):
        value.encode()  # which half of a character cannot be
        return nfc(value)
    if isinstance(value, Mapping):
        return {_composed(key): _composed(each) for key, each in value.items()}
    return [_composed(each) for each in value] if isinstance(value, (list, tuple)) else value


# Variants of a study -------------------------------------------------------------------------------------------------


def _with_variants(recipe: Recipe, variants: list[tuple[Variant, Recipe]], places: Places) -> Recipe:
    """Return a recipe that knows its variants, spelled out so that a copy with all defaults stands for the same."""
    first = variants[0][1]
    dumps = {variant.name: each.model_dump(mode="json", exclude=set(KEYS)) for variant, each in variants}
    base = dumps[variants[0][0].name]
    ablations = {name: differences(base, dumps[name]) for name in recipe.ablations}
    if idle := [name for name, changes in ablations.items() if not changes]:
        what, fix = "the recipe has these values already", "change others, or leave it out"
        problems = [Problem(places.of(("ablations", name)), f"ablations.{name}: {what}", fix) for name in idle]
        raise RecipeError(places.file, problems)
    factors: dict[str, dict[str, Changes]] = {}
    usual = variants[0][0].levels
    for variant, _ in variants:
        for factor, level in variant.levels.items():
            if {**usual, factor: level} == variant.levels:
                mine = [change for change in variant.changes if change.written[1:3] == (factor, level)]
                factors.setdefault(factor, {})[level] = _spelled_out(mine, base, dumps[variant.name])
    if factors and (fault := _entangled([variant for variant, _ in variants], dumps, factors)):
        raise RecipeError(places.file, [Problem(places.of(("factors",)), f"factors: {fault[0]}", fault[1])])
    seeds = {"seed": recipe.seeds[0]} if recipe.seeds else {}
    whole = first.model_copy(update={"seeds": recipe.seeds, "ablations": ablations, "factors": factors, **seeds})
    if recipe.ablations or recipe.factors:
        whole._variants = tuple(variants)
    return whole


def _spelled_out(written: list[Leaf], base: dict[str, Any], other: dict[str, Any]) -> Changes:
    """Return what a level changes: all that is written, which other factors may override, and what follows from it."""
    given: Changes = {}
    for path in (change.path for change in written if len(change.path) > 1):
        with contextlib.suppress(LookupError):  # a later factor has written over it
            given[".".join(path)] = read(other, path)
    rest = differences(_changed(base, given), other)
    return {name: value for name, value in given.items() if name not in rest} | rest


def _changed(base: dict[str, Any], *levels: Changes) -> dict[str, Any]:
    """Return a copy of plain values with changes written into it."""
    whole = copy.deepcopy(base)
    for changes in levels:
        for name, value in changes.items():
            write(whole, tuple(name.split(".")), copy.deepcopy(value), Recipe, "write {}: …")
    return whole


def _entangled(
    variants: list[Variant], dumps: dict[str, dict[str, Any]], factors: dict[str, dict[str, Changes]]
) -> tuple[str, str] | None:
    """Return what is wrong with a design in which the meaning of a level depends on the other factors."""
    for one, other in itertools.combinations(dumps, 2):
        if dumps[one] == dumps[other]:
            return f"{one} and {other} would be the same run", "let each level change what no later factor writes over"
    for variant in variants:
        changes = [factors[factor][level] for factor, level in variant.levels.items()]
        if odd := differences(_changed(dumps[variants[0].name], *changes), dumps[variant.name]):
            what = f"what a level means for {next(iter(odd))} depends on the other factors, as {variant.name} shows"
            return what, "write that value out in all levels of one factor"
    return None
