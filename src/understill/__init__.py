"""understill: understanding, distilled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understill.engines.study import run
    from understill.errors import UserError
    from understill.inference.loading import load
    from understill.inference.predictor import Predictor
    from understill.pipeline.comparison import compare
    from understill.plugins import ANNEALING, LOSSES, NETWORKS, TAGGERS, TEACHERS
    from understill.recipe import Recipe, load_recipe
    from understill.tasks import KINDS
    from understill.tasks.metric import metric as register_metric

    register_annealing, register_kind, register_loss = ANNEALING.register, KINDS.register, LOSSES.register
    register_network, register_tagger, register_teacher = NETWORKS.register, TAGGERS.register, TEACHERS.register

__all__ = [
    "Predictor",
    "Recipe",
    "UserError",
    "compare",
    "load",
    "load_recipe",
    "register_annealing",
    "register_kind",
    "register_loss",
    "register_metric",
    "register_network",
    "register_tagger",
    "register_teacher",
    "run",
]

#: Where each public name is; those that register are decorators, with which Python code adds what a recipe may name.
_HOMES = {
    "Predictor": "understill.inference.predictor:Predictor",
    "Recipe": "understill.recipe:Recipe",
    "UserError": "understill.errors:UserError",
    "compare": "understill.pipeline.comparison:compare",
    "load": "understill.inference.loading:load",
    "load_recipe": "understill.recipe:load_recipe",
    "register_annealing": "understill.plugins:ANNEALING.register",
    "register_kind": "understill.tasks:KINDS.register",
    "register_loss": "understill.plugins:LOSSES.register",
    "register_metric": "understill.tasks.metric:metric",
    "register_network": "understill.plugins:NETWORKS.register",
    "register_tagger": "understill.plugins:TAGGERS.register",
    "register_teacher": "understill.plugins:TEACHERS.register",
    "run": "understill.engines.study:run",
}


def __dir__() -> list[str]:
    """Name what is public."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import understill` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"understill has no {name}")
    from pkgutil import resolve_name

    return resolve_name(_HOMES[name])
