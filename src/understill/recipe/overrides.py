"""Overrides: the plain values of a recipe read, compared and written by path, as `--set` and studies do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from understill.recipe.messages import Schema
from understill.recipe.section import Section, as_list, shown

KeyPath = tuple[str, ...]


class Leaf(NamedTuple):
    """A value in nested mappings."""

    path: KeyPath
    value: Any
    written: KeyPath  # the keys on the way as they are written, which may have dots


def leaves(values: Any) -> Iterator[Leaf]:
    """Yield the values in nested mappings.

    Mappings are descended into, except under a key with dots, as `--set` takes it: there the mapping is the value.
    """
    for key, value in items(values):
        path = tuple(str(key).split("."))
        if len(path) == 1 and isinstance(value, Mapping) and value:
            for inner in leaves(value):
                yield Leaf((*path, *inner.path), inner.value, (str(key), *inner.written))
        else:
            yield Leaf(path, value, (str(key),))


def items(value: Any) -> list[tuple[Any, Any]]:
    """Return the items of a mapping, none of anything else."""
    return list(value.items()) if isinstance(value, Mapping) else []


def read(values: Any, path: KeyPath) -> Any:
    """Return the value that a path leads to; LookupError where it leads nowhere."""
    for part in path:
        if isinstance(values, list) and part.isdecimal():
            values = values[int(part)]
        elif isinstance(values, dict):
            values = values[part]
        else:
            raise LookupError(part)
    return values


def write(values: dict[str, Any], path: KeyPath, value: Any, root: type[Section], remedy: str) -> None:
    """Put a value where a path leads, and spell out what is written in short on the way; `root` knows short forms.

    Raises ValueError where the path leads nowhere; `remedy` says what to write instead of {}.
    """
    target: Any = values
    for depth, part in enumerate(path[:-1], 1):
        key = _key(target, part)
        target[key] = _spelled_out(target[key] if isinstance(target, list) else target.get(key), path[:depth], root)
        target = target[key]
        if not isinstance(target, (dict, list)):
            name = ".".join(path[:depth])
            raise ValueError(f"{name} is {shown(target)}, which has no keys → {remedy.format(name)}")
    target[_key(target, path[-1])] = value


def _key(target: Any, part: str) -> Any:
    """Return a mapping's key, or a place in a list, which counts from 0."""
    if not isinstance(target, list):
        return part
    if not part.isdecimal() or int(part) >= len(target):
        count = f"there are {len(target)}" if len(target) != 1 else "there is 1"
        raise ValueError(f'"{part}" is no place in the list → write 0 for the first; {count}')
    return int(part)


def _spelled_out(value: Any, path: KeyPath, root: type[Section]) -> Any:
    """Return a value of the recipe as a mapping where it has such a form."""
    if value is None:
        return {}
    if path == ("tasks",) and isinstance(value, (str, list)):
        return {name: {} for name in as_list(value)}
    if path == ("teachers",):
        return as_list(value)
    section = Schema(root).section(path)
    if section is None:
        return value
    try:
        value = section.read_as(value).short(value)
    except ValueError:  # a short form with a mistake in it; a word is about to be written over
        value = {} if isinstance(value, str) else value
    return {} if value is True else value  # as in `finetune: true`


def differences(one: Any, other: Any, path: KeyPath = ()) -> dict[str, Any]:
    """Return the values, by path with dots, that turn one recipe's plain values into another's."""
    if one == other:
        return {}
    if one is None and isinstance(other, dict) and other:
        one = {}  # which is what a key written below it makes of it
    if isinstance(one, dict) and isinstance(other, dict) and _reachable(one, other):
        pairs: Iterable[tuple[str, Any, Any]] = ((key, one.get(key, _NOTHING), other[key]) for key in other)
    elif isinstance(one, list) and isinstance(other, list) and path and len(one) == len(other):
        pairs = ((str(place), *both) for place, both in enumerate(zip(one, other, strict=True)))
    elif len(path) == 1 and isinstance(other, dict):
        # Under a key without dots a mapping would be descended into, so the names come first.
        return {path[0]: list(other), **{f"{path[0]}.{key}": value for key, value in other.items()}}
    else:
        return {".".join(path): other}
    return {name: value for key, here, there in pairs for name, value in differences(here, there, (*path, key)).items()}


#: What stands where a key is missing; it equals no value of a recipe.
_NOTHING = object()


def _reachable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether one mapping becomes the other by writing keys, none of which has a dot in it."""
    return one.keys() <= other.keys() and not any("." in key for key in other)
