"""Studies: a recipe that stands for several runs, which differ in their seeds or in some settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from understill.errors import listed

#: The keys of a recipe that make a study of it.
KEYS = ("seeds", "ablations", "factors")
#: What all runs of a study share.
COMMON = ("name", "seed", *KEYS, "output", "machine")


class Change(NamedTuple):
    """One value of the recipe that a variant changes, as `--set` would."""

    path: tuple[str, ...]
    value: Any
    written: tuple[str, ...]  # where it stands in the recipe


@dataclass(frozen=True)
class Variant:
    """The recipe with some changes; without any, the recipe as it is."""

    name: str = ""
    levels: Mapping[str, str] = field(default_factory=dict)  # of each factor
    changes: tuple[Change, ...] = ()


def variants(values: Mapping[str, Any]) -> list[Variant]:
    """Return what a recipe's plain values stand for: every combination of its factors, or itself and its ablations.

    What has not the form of a study is left out; whoever reads the values reports it.
    """
    factors = {
        str(factor): {str(level): _changes(given, ("factors", str(factor), str(level))) for level, given in levels}
        for factor, levels in ((factor, _items(given)) for factor, given in _items(values.get("factors")))
        if levels
    }
    if factors:
        return [
            _combined(dict(zip(factors, chosen, strict=True)), factors)
            for chosen in itertools.product(*factors.values())
        ]
    ablations = _items(values.get("ablations"))
    return [
        Variant(),
        *(Variant(str(name), {}, _changes(given, ("ablations", str(name)))) for name, given in ablations),
    ]


def _combined(levels: dict[str, str], factors: Mapping[str, Mapping[str, tuple[Change, ...]]]) -> Variant:
    changes = tuple(change for factor, level in levels.items() for change in factors[factor][level])
    return Variant("-".join(levels.values()), levels, changes)


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _changes(given: Any, written: tuple[str, ...]) -> tuple[Change, ...]:
    return tuple(Change(path, value, (*written, *keys)) for path, keys, value in _leaves(given))


def _leaves(given: Any) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Any]]:
    """Yield what is changed, with the way to it and the keys as written.

    A mapping is gone into, for what it changes; under a key with dots, which is what `--set` takes, it is the value.
    """
    for key, value in _items(given):
        path = tuple(str(key).split("."))
        if len(path) == 1 and isinstance(value, Mapping) and value:
            for inner, keys, leaf in _leaves(value):
                yield (*path, *inner), (str(key), *keys), leaf
        else:
            yield path, (str(key),), value


def faults(
    ablations: Mapping[str, Mapping[str, Any]], factors: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a study whose parts have the right form."""
    if ablations and factors:
        yield "factors", "a recipe has ablations or factors → make it two recipes"
    given = {**{f"ablations.{name}": changes for name, changes in ablations.items()}}
    for name, changes in given.items():
        if not changes:
            yield name, "nothing is changed → name what is different, or leave it out"
    for factor, levels in factors.items():
        if len(levels) < 2:
            yield f"factors.{factor}", "a factor has two levels or more → name another, or leave it out"
        given |= {f"factors.{factor}.{level}": changes for level, changes in levels.items()}
    for name, changes in given.items():
        for path, keys, _ in _leaves(changes):
            if path[0] in COMMON:
                fix = f"a study may change anything but {listed(COMMON, 'and')}"
                yield ".".join((name, *keys)), f"all runs have the same {path[0]} → {fix}"
    names = ["-".join(chosen) for chosen in itertools.product(*factors.values())]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "factors", f'two combinations would have the name "{name}" → rename a level'


def differences(one: Any, other: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the changes that make one recipe's plain values another's, as a study has them."""
    if one == other:
        return {}
    if one is None and isinstance(other, dict) and other:
        one = {}  # which is what a key written below it makes of it
    if isinstance(one, dict) and isinstance(other, dict) and _reachable(one, other):
        pairs: Iterable[tuple[str, Any, Any]] = ((key, one.get(key, _NOTHING), other[key]) for key in other)
    elif isinstance(one, list) and isinstance(other, list) and path and len(one) == len(other):
        pairs = ((str(place), *both) for place, both in enumerate(zip(one, other, strict=True)))
    elif len(path) == 1 and isinstance(other, dict):
        # Under a key without dots a mapping would be gone into, so the names come first.
        return {path[0]: list(other), **{f"{path[0]}.{key}": value for key, value in other.items()}}
    else:
        return {".".join(path): other}
    return {name: value for key, here, there in pairs for name, value in differences(here, there, (*path, key)).items()}


#: What stands where a key is missing; it equals no value of a recipe.
_NOTHING = object()


def _reachable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether one mapping becomes the other by writing keys, none of which has a dot in it."""
    return one.keys() <= other.keys() and not any("." in key for key in other)
