"""Changes: values written into the plain values of a recipe, where some stand in short forms."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from understill.recipe.mistakes import section_at, shown
from understill.recipe.section import Section, as_list


def write(values: dict[str, Any], path: tuple[str, ...], value: Any, root: type[BaseModel], spelling: str) -> None:
    """Put a value where a path leads; `spelling` is how a change of a key is written, for who has to write another.

    Raises ValueError, in words, where the path leads nowhere.
    """
    target: Any = values
    for depth, part in enumerate(path[:-1], 1):
        key = _key(target, part)
        target[key] = _spelled_out(target[key] if isinstance(target, list) else target.get(key), path[:depth], root)
        target = target[key]
        if not isinstance(target, (dict, list)):
            name = ".".join(path[:depth])
            raise ValueError(f"{name} is {shown(target)}, which has no keys → write {spelling.format(name)}")
    target[_key(target, path[-1])] = value


def _key(target: Any, part: str) -> Any:
    """Return a mapping's key, or a place in a list, which counts from 0."""
    if not isinstance(target, list):
        return part
    if not part.isdigit() or int(part) >= len(target):
        count = f"there are {len(target)}" if len(target) != 1 else "there is 1"
        raise ValueError(f'"{part}" is no place in the list → write 0 for the first; {count}')
    return int(part)


def _spelled_out(value: Any, path: tuple[str, ...], root: type[BaseModel]) -> Any:
    """Return a value of the recipe as a mapping where it has such a form."""
    if value is None:
        return {}
    if path == ("tasks",) and isinstance(value, (str, list)):
        return {name: {} for name in as_list(value)}
    if path == ("teachers",):
        return as_list(value)
    section = section_at(root, path)
    try:
        return section.short(value) if section is not None and issubclass(section, Section) else value
    except ValueError:  # a short form with a mistake in it, which is about to be written over
        return {}
