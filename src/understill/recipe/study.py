"""Studies: a recipe that knows its variants, each written as what it changes of the whole recipe."""

from __future__ import annotations

import contextlib
import copy
import itertools
from typing import Any

from understill.errors import Problem, RecipeError
from understill.recipe.experiment import Changes, Recipe
from understill.recipe.paths import Leaf, differences, read, write
from understill.recipe.sweep import KEYS, Variant
from understill.recipe.yamlfile import Places


def with_variants(recipe: Recipe, variants: list[tuple[Variant, Recipe]], places: Places) -> Recipe:
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
    """Return what a level changes: all that is written, so that other factors can be laid over it, and what follows."""
    given: Changes = {}
    for path in (change.path for change in written if len(change.path) > 1):
        with contextlib.suppress(LookupError):  # a later factor has written over it
            given[".".join(path)] = read(other, path)
    rest = differences(_changed(base, given), other)
    return {name: value for name, value in given.items() if name not in rest} | rest


def _changed(base: dict[str, Any], *levels: Changes) -> dict[str, Any]:
    whole = copy.deepcopy(base)
    for changes in levels:
        for name, value in changes.items():
            write(whole, tuple(name.split(".")), copy.deepcopy(value), Recipe, "write {}: …")
    return whole


def _entangled(
    variants: list[Variant], dumps: dict[str, dict[str, Any]], factors: dict[str, dict[str, Changes]]
) -> tuple[str, str] | None:
    """Return what is wrong with a design in which a level is not the same whatever the others are."""
    for one, other in itertools.combinations(dumps, 2):
        if dumps[one] == dumps[other]:
            return f"{one} and {other} would be the same run", "let each level change what no later factor writes over"
    for variant in variants:
        changes = [factors[factor][level] for factor, level in variant.levels.items()]
        if odd := differences(_changed(dumps[variants[0].name], *changes), dumps[variant.name]):
            what = f"what a level means for {next(iter(odd))} hangs on the other factors, as {variant.name} shows"
            return what, "write that value out in all levels of one factor"
    return None
