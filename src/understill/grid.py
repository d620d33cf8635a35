"""Grids: one teacher of a recipe that stands for several, which differ in some settings."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from typing import Any

from understill.errors import listed
from understill.mistakes import shown

#: What teachers of one grid may differ in.
SECTIONS = ("encoder", "heads", "training", "finetune")


def combinations(teacher: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the teachers that one with a grid stands for, each named after the values it has of it."""
    given = teacher.get("grid")
    if not isinstance(given, dict):
        raise ValueError(f"grid: {shown(given)} is no grid → write, for instance, {{encoder: {{dropout: [0.1, 0.2]}}}}")
    axes = [(path, values) for path, values in _leaves(given) if path]
    for path, values in axes:
        if not isinstance(values, list) or not values:
            raise ValueError(f"grid: {'.'.join(path)} is {shown(values)} → list its values, as in [0.1, 0.2]")
        if path[0] not in SECTIONS:
            raise ValueError(f"grid: {'.'.join(path)} cannot vary → vary {listed(SECTIONS, 'or')}")
    made = []
    for chosen in itertools.product(*(values for _, values in axes)):
        one = copy.deepcopy({key: value for key, value in teacher.items() if key != "grid"})
        for (path, _), value in zip(axes, chosen, strict=True):
            place = one
            for key in path[:-1]:
                inner = place.get(key)
                # An encoder may stand there by its name alone.
                place[key] = {"name": inner} if isinstance(inner, str) else {} if inner is None else inner
                place = place[key]
            place[path[-1]] = value
        words = [re.sub(r"[^A-Za-z0-9._]+", "_", str(value).rstrip("/").rpartition("/")[2]) for value in chosen]
        made.append({**one, "name": "-".join([str(one.get("name") or "teacher"), *words])})
    return made


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what stands in nested mappings, with the way to it."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*path, str(key)))
