"""Pooling: how an encoder's own files say that it pools, read without its weights and without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from understill.models.manifest import MANIFEST

#: The list of what a sentence encoder (sentence-transformers) is made of, in the order of use.
MODULES = "modules.json"
#: What older files call the mean.
_OLD = "pooling_mode_"


Json = TypeVar("Json", list[Any], dict[str, Any])
Pooling = Literal["default", "mean", "normalised"]
#: Those that take the mean of a row's tokens.
POOLED = ("mean", "normalised")


def own_pooling(place: str) -> Pooling:
    """Return how an encoder's folder says that texts are pooled: default where it says nothing else.

    A model trained here tells in its manifest, a sentence encoder in the config of its pooling module and by whether
    there is one that normalises.
    """
    folder = Path(place)
    if (folder / MANIFEST).is_file():
        pooling = _load(folder / MANIFEST, dict).get("pooling")
        return pooling if pooling in POOLED else "default"
    listed = _load(folder / MODULES, list)
    modules = {str(each.get("type")).rpartition(".")[2]: each for each in listed if isinstance(each, dict)}
    if "Pooling" in modules:
        config = _load(folder / str(modules["Pooling"].get("path")) / "config.json", dict)
        if _modes(config) == ["mean"]:
            return "normalised" if "Normalize" in modules else "mean"
    return "default"


def _modes(config: dict[str, Any]) -> list[str]:
    """Return the ways of pooling whose results stand side by side."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return [mode] if isinstance(mode, str) else list(mode)
    return [key.removeprefix(_OLD).removesuffix("_tokens") for key in config if key.startswith(_OLD) and config[key]]


def _load(path: Path, kind: type[Json]) -> Json:
    """Read a JSON file; one that is missing, broken or of another type is taken for empty."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return kind()
    return value if isinstance(value, kind) else kind()
