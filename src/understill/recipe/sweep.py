"""Sweeps: what one recipe stands for: teachers of a grid, variants of a study, and seeds."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from understill.errors import listed
from understill.recipe.overrides import KeyPath, Leaf, items, leaves, write
from understill.recipe.section import Section, as_list, repeated, shown

#: The keys of a recipe that make a study of it.
KEYS = ("seeds", "ablations", "factors")
#: What all runs of a study share.
COMMON = ("name", "seed", *KEYS, "output", "machine")
#: The most variants of a study, teachers of a recipe, and seeds of either.
MOST_VARIANTS, MOST_TEACHERS, MOST_SEEDS = 256, 256, 100
#: What teachers of one grid may differ in.
SECTIONS = ("encoder", "heads", "training", "finetune")


# Seeds ---------------------------------------------------------------------------------------------------------------


def several_seeds(value: Any, first: int = 0) -> Any:
    """Take a number of seeds, or a list of them."""
    if isinstance(value, int):
        if isinstance(value, bool) or not 1 <= value <= MOST_SEEDS:
            raise ValueError(f"{shown(value)} is no number of seeds → write 3, or list them: [0, 1, 2]")
        return tuple(range(first, first + value))
    seeds = as_list(value) or ()
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f"there are {len(seeds):,} seeds → list at most {MOST_SEEDS}")
    # However they are written: 1.0 and "1" are read as 1.
    if len({str(seed).removesuffix(".0") for seed in seeds}) < len(seeds):
        raise ValueError("a seed is listed twice → list each once")
    return seeds


# Grids of teachers ---------------------------------------------------------------------------------------------------


def grid_teachers(teacher: Any, root: type[Section]) -> list[Any]:
    """Return the teachers that one stands for: those of its grid, each named after its values, or itself.

    `root` is the schema of teachers; one of a type without a grid is left for it to refuse.
    """
    if not isinstance(teacher, dict) or not teacher.get("grid") or not _varies(teacher, root):
        return [teacher]
    axes = dict(_axes(teacher))
    if (count := math.prod(map(len, axes.values()))) > MOST_TEACHERS:
        raise ValueError(f"grid: it stands for {count:,} teachers → vary less, at most {MOST_TEACHERS} have room")
    made = []
    for chosen in itertools.product(*axes.values()):
        one = copy.deepcopy({key: value for key, value in teacher.items() if key != "grid"})
        for path, value in zip(axes, chosen, strict=True):
            try:
                write(one, path, value, root, "write a mapping")
            except ValueError as error:
                raise ValueError(f"grid: {error}") from None
        words = [re.sub(r"[^\w.]+", "_", str(value).rstrip("/").rpartition("/")[2]) for value in chosen]
        made.append({**one, "name": "-".join([str(one.get("name") or "teacher"), *words])})
    return made


def origins(teachers: Any, root: type[Section]) -> list[int]:
    """Return, for each of the teachers that a list stands for, its place in the list as it is written."""
    places = []
    for place, teacher in enumerate(as_list(teachers) or ()):
        try:
            places += [place] * len(grid_teachers(teacher, root))
        except ValueError:
            places.append(place)
    return places


def _varies(teacher: dict[str, Any], root: type[Section]) -> bool:
    with contextlib.suppress(ValueError):  # of a type that there is not
        return "grid" in root.read_as(teacher).model_fields
    return False


def _axes(teacher: dict[str, Any]) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Yield what varies, with the values it takes."""
    grid = teacher["grid"]
    if not isinstance(grid, dict):
        raise ValueError(f"grid: {shown(grid)} is no grid → write, for instance, {{encoder: {{dropout: [0.1, 0.2]}}}}")
    for path, values, _ in leaves(grid):
        name = ".".join(path)
        if path[0] not in SECTIONS:
            raise ValueError(f"grid: {name} cannot vary → vary {listed(SECTIONS, 'or')}")
        if not isinstance(values, list) or not values:
            raise ValueError(f"grid: {name} is {shown(values)} → list its values, as in [0.1, 0.2]")
        if path == ("encoder",):
            path = ("encoder", "name")
        elif len(path) == 1:
            raise ValueError(f"grid: {name} is a whole section → vary its keys, as in {name}: {{lr: [1e-4, 3e-4]}}")
        yield path, values


# Variants of a study -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """The recipe with some changes, as `--set` would make them; without any, the recipe as it is."""

    name: str = ""
    levels: Mapping[str, str] = field(default_factory=dict)  # of each factor
    changes: tuple[Leaf, ...] = ()  # each with where it stands in the recipe


def refuse_many(study: Mapping[Any, Any], key: str) -> None:
    """Refuse a study of so many variants that nobody can have meant it, before any is made."""
    counts = [len(items(levels)) or 1 for levels in study.values()]
    if (count := math.prod(counts) if key == "factors" else len(study)) > MOST_VARIANTS:
        raise ValueError(f"these are {count:,} variants → at most {MOST_VARIANTS} can be run as one study")


def variants(values: Mapping[str, Any]) -> list[Variant]:
    """Return what a recipe's plain values stand for: every combination of its factors, or itself and its ablations.

    What has not the form of a study is left out here; validation reports it.
    """
    for key in ("factors", "ablations"):
        try:
            refuse_many(dict(items(values.get(key))), key)
        except ValueError:
            return []
    factors = {
        str(factor): {str(level): _changes(given, ("factors", str(factor), str(level))) for level, given in levels}
        for factor, levels in ((factor, items(given)) for factor, given in items(values.get("factors")))
        if levels
    }
    if factors:
        return [
            _combined(dict(zip(factors, chosen, strict=True)), factors)
            for chosen in itertools.product(*factors.values())
        ]
    ablations = items(values.get("ablations"))
    return [
        Variant(),
        *(Variant(str(name), {}, _changes(given, ("ablations", str(name)))) for name, given in ablations),
    ]


def _combined(levels: dict[str, str], factors: Mapping[str, Mapping[str, tuple[Leaf, ...]]]) -> Variant:
    changes = tuple(change for factor, level in levels.items() for change in factors[factor][level])
    return Variant("-".join(levels.values()), levels, changes)


def _changes(given: Any, above: KeyPath) -> tuple[Leaf, ...]:
    return tuple(leaf._replace(written=(*above, *leaf.written)) for leaf in leaves(given))


def study_faults(
    ablations: Mapping[str, Mapping[str, Any]], factors: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a study whose parts have the right form."""
    if ablations and factors:
        yield "factors", "a recipe has ablations or factors → make it two recipes"
    given = {f"ablations.{name}": changes for name, changes in ablations.items()}
    for name, changes in given.items():
        if not changes:
            yield name, "nothing is changed → name what is different, or leave it out"
    for factor, levels in factors.items():
        if len(levels) < 2:
            yield f"factors.{factor}", "a factor has two levels or more → name another, or leave it out"
        given |= {f"factors.{factor}.{level}": changes for level, changes in levels.items()}
    for name, changes in given.items():
        for path, _, written in leaves(changes):
            if path[0] in COMMON:
                fix = f"a study may change anything but {listed(COMMON, 'and')}"
                yield ".".join((name, *written)), f"all runs have the same {path[0]} → {fix}"
    for name in repeated("-".join(chosen) for chosen in itertools.product(*factors.values())):
        yield "factors", f'two combinations would have the name "{name}" → rename a level'
