"""Grids: one teacher of a recipe that stands for several, which differ in some settings."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from typing import Any

from understill.errors import listed
from understill.recipe.mistakes import shown
from understill.recipe.section import as_list

#: What teachers of one grid may differ in.
SECTIONS = ("encoder", "heads", "training", "finetune")


def combinations(teacher: Any) -> list[Any]:
    """Return the teachers that one stands for: those of its grid, each named after its values, or itself."""
    if not isinstance(teacher, dict) or not teacher.get("grid"):
        return [teacher]
    axes = dict(_axes(teacher))
    made = []
    for chosen in itertools.product(*axes.values()):
        one = copy.deepcopy({key: value for key, value in teacher.items() if key != "grid"})
        for path, value in zip(axes, chosen, strict=True):
            _write(one, path, value)
        words = [re.sub(r"[^A-Za-z0-9._]+", "_", str(value).rstrip("/").rpartition("/")[2]) for value in chosen]
        made.append({**one, "name": "-".join([str(one.get("name") or "teacher"), *words])})
    return made


def origins(teachers: Any) -> list[int]:
    """Return, for each of the teachers that a list stands for, its place in the list as it is written."""
    found = []
    for place, teacher in enumerate(as_list(teachers) or ()):
        try:
            found += [place] * len(combinations(teacher))
        except ValueError:
            found.append(place)
    return found


def _axes(teacher: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield what varies, with the values it takes."""
    given = teacher["grid"]
    if not isinstance(given, dict):
        raise ValueError(f"grid: {shown(given)} is no grid → write, for instance, {{encoder: {{dropout: [0.1, 0.2]}}}}")
    for outside in ("checkpoint", "predictions"):
        if outside in teacher:
            raise ValueError(f"grid: a teacher with {outside} is not trained here, so nothing can vary → leave it out")
    for path, values in _leaves(given):
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


def _write(teacher: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Put a value into the sections of a teacher, which may be written in short."""
    place = teacher
    for key in path[:-1]:
        inner = place.get(key)
        if isinstance(inner, str) and key == "encoder":
            inner = {"name": inner}
        elif inner is None or inner is True:
            inner = {}
        if not isinstance(inner, dict):
            raise ValueError(f"grid: {key} is {shown(inner)} here, so {'.'.join(path)} cannot vary → write a mapping")
        place[key] = inner
        place = inner
    place[path[-1]] = value


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what stands in nested mappings, with the way to it."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*path, str(key)))
