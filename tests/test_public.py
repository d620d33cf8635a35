"""The public names: all there, and imported only when they are used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import understill

HEAVY = ("accelerate", "numpy", "pyarrow", "pydantic", "scipy", "sklearn", "torch", "transformers")


def loaded_after(code: str) -> set[str]:
    """Run code in a fresh process and return which heavy libraries it has imported."""
    check = f"import sys; {code}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


def test_these_are_the_public_names_and_each_is_where_it_is_made() -> None:
    homes = {
        "Predictor": "understill.evaluate.predictor",
        "Recipe": "understill.recipe",
        "UserError": "understill.errors",
        "load": "understill.loading",
        "load_recipe": "understill.recipe",
        "run": "understill.pipeline",
    }
    assert sorted(understill.__all__) == sorted(homes)
    for name, home in homes.items():
        assert getattr(understill, name) is getattr(importlib.import_module(home), name)


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
