"""The public names: all there, and imported only when they are used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import understill
from understill.errors import UserError
from understill.plugins import ANNEALING, LOSSES, NETWORKS, TAGGERS, TEACHERS, Registry
from understill.tasks import KINDS, METRICS

HEAVY = ("accelerate", "numpy", "pyarrow", "pydantic", "scipy", "sklearn", "torch", "transformers")


def loaded_after(code: str) -> set[str]:
    """Run code in a fresh process and return which heavy libraries it has imported."""
    check = f"import sys; {code}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_these_are_the_public_names_and_each_is_where_it_is_made() -> None:
    homes = {
        "Predictor": "understill.inference.predictor",
        "Recipe": "understill.recipe",
        "UserError": "understill.errors",
        "compare": "understill.pipeline",
        "load": "understill.inference.loading",
        "load_recipe": "understill.recipe",
        "run": "understill.pipeline",
    }
    assert [name for name in understill.__all__ if not name.startswith("register_")] == sorted(homes)
    for name, home in homes.items():
        assert getattr(understill, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize(
    ("register", "registry"),
    [
        (understill.register_annealing, ANNEALING),
        (understill.register_kind, KINDS),
        (understill.register_loss, LOSSES),
        (partial(understill.register_metric, kinds=["classification"]), METRICS),
        (understill.register_network, NETWORKS),
        (understill.register_tagger, TAGGERS),
        (understill.register_teacher, TEACHERS),
    ],
)
def test_whatever_can_be_plugged_in_has_a_decorator_for_it(
    register: Callable[[str], Callable[[Any], Any]], registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_added", {})

    @register("odd")
    def odd() -> float:
        return 0.0

    assert registry["odd"] is odd and "odd" in registry


def test_a_name_that_understill_has_cannot_be_taken_whoever_comes_first() -> None:
    registry: Registry[int] = Registry("number", "understill.numbers")
    registry.own("one")(1)
    registry.register("two")(2)
    for add, name in ((registry.register, "one"), (registry.own, "two")):
        with pytest.raises(UserError, match=rf'understill has a number "{name}" of its own → choose another name'):
            add(name)(3)


def test_decorators_for_plug_ins_import_nothing_heavy() -> None:
    names = [name for name in understill.__all__ if name.startswith("register_")]
    assert len(names) == 7
    assert loaded_after(f"import understill; [getattr(understill, name) for name in {names}]") == set()


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert loaded_after("import understill") == set()
    assert loaded_after("import understill.cli, understill.tasks, understill.errors") == set()


def test_a_recipe_can_be_read_without_torch() -> None:
    assert loaded_after("import understill; understill.load_recipe; understill.Recipe") == {"pydantic"}


def test_a_star_import_gives_the_public_names() -> None:
    there: dict[str, object] = {}
    exec("from understill import *", there)
    assert set(understill.__all__) <= set(there)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="understill has no lod"):
        understill.lod  # noqa: B018
    with pytest.raises(ImportError):
        exec("from understill import lod")
    assert not hasattr(understill, "lod")
