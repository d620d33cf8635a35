"""Small runs of every kind, made once, whose reports the tests look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_cases import STUDENT, notes, write

from understill import pipeline
from understill.recipe import Recipe, make_recipe
from understill.report.build import build
from understill.report.facts import Facts


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Callable[..., Recipe]:
    """A function that makes a recipe that trains in a second."""
    root = tmp_path_factory.mktemp("report")
    columns = ("message", "label", "region")
    train = write(root / "train.csv", [columns, *notes("train", 60)])
    dev = write(root / "dev.csv", [columns, *notes("dev", 48)])
    turned = [
        (text, "fine" if label == "bad" or n % 3 else "bad") for n, (text, label, _) in enumerate(notes("dev", 48))
    ]
    message = [(text, label) for text, label, _ in notes("train", 60)]
    write(root / "said.csv", [("message", "label"), *message, *turned])
    own = {"train": train, "dev": dev, "text": "message", "label": "label"}

    def make(name: str, **changes: Any) -> Recipe:
        usual = {
            "name": name,
            "data": {"demo": {"rows": 48}},
            "tasks": {"note": own},
            "encoder": {"name": str(tiny), "max_length": 32},
            "training": {"steps": 4, "batch": 8, "lr": 1e-3, "evaluate": "2 steps"},
            "output": {"folder": str(root / "runs")},
            "machine": {"device": "cpu", "threads": 1},
        }
        given = {key: value for key, value in changes.items() if key != "teachers" or value}
        if changes.get("teachers") == "file":
            given["teachers"] = [{"name": "llm", "predictions": str(root / "said.csv"), "tasks": ["note"]}]
        return make_recipe(
            {**usual, "targets": {"weak": "keep"}, **given} if given.get("teachers") else {**usual, **given}
        )

    return make


@pytest.fixture(scope="session")
def taught(made: Callable[..., Recipe]) -> pipeline.Run:
    """A run with a file as the teacher, which a student differs from on some rows."""
    return pipeline.run(made("taught", teachers="file", student=STUDENT))


@pytest.fixture(scope="session")
def recipe(made: Callable[..., Recipe]) -> Recipe:
    """The recipe of that run."""
    return made("taught", teachers="file", student=STUDENT)


@pytest.fixture(scope="session")
def facts(taught: pipeline.Run, recipe: Recipe) -> Facts:
    """What is told of that run."""
    return build(taught.folder, recipe, timing=False, by="region")
