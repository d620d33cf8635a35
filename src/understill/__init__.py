"""understill: understanding, distilled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understill.errors import UserError
    from understill.evaluate.predictor import Predictor
    from understill.loading import load
    from understill.pipeline import run
    from understill.recipe import Recipe, load_recipe

__all__ = ["Predictor", "Recipe", "UserError", "load", "load_recipe", "run"]

_HOMES = {
    "Predictor": "understill.evaluate.predictor",
    "Recipe": "understill.recipe",
    "UserError": "understill.errors",
    "load": "understill.loading",
    "load_recipe": "understill.recipe",
    "run": "understill.pipeline",
}


def __dir__() -> list[str]:
    """Name what is public."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import understill` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"understill has no {name}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
