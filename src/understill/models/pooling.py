"""Pooling as an encoder's own files say it, read without its weights and without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from understill.models.manifest import MANIFEST

#: The list of what a sentence encoder (sentence-transformers) is made of, in the order of use.
MODULES = "modules.json"
#: What older files call the mean.
_OLD = "pooling_mode_"


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
        told = _read(folder / MANIFEST).get("pooling")
        return told if told in POOLED else "default"
    modules = _modules(folder)
    for module in modules:
        if _kind(module) == "Pooling" and _modes(_read(folder / str(module.get("path")) / "config.json")) == ["mean"]:
            return "normalised" if any(_kind(each) == "Normalize" for each in modules) else "mean"
    return "default"


def _modes(config: dict[str, Any]) -> list[str]:
    """Return the ways of pooling whose results stand side by side."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return [mode] if isinstance(mode, str) else list(mode)
    return [key.removeprefix(_OLD).removesuffix("_tokens") for key in config if key.startswith(_OLD) and config[key]]


def _kind(module: dict[str, Any]) -> str:
    return str(module.get("type")).rpartition(".")[2]


def _modules(folder: Path) -> list[dict[str, Any]]:
    listed = _load(folder / MODULES)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _read(path: Path) -> dict[str, Any]:
    facts = _load(path)
    return facts if isinstance(facts, dict) else {}


def _load(path: Path) -> Any:
    """Read a JSON file; what is missing or broken says nothing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
