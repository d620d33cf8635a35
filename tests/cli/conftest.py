"""Two users' folders, made once: one with three CSV files, one with a recipe that distils."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import Desk, School, done, inside, write


@pytest.fixture(scope="session")
def desk(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A user with three CSV files types init, check and run."""
    folder = tmp_path_factory.mktemp("desk")
    tickets = [(f"The parcel of order {n} never came, please!" if n % 2 else f"I was charged {n} times for one order",
                "delivery" if n % 2 else "billing") for n in range(60)]  # fmt: skip
    films = [(f"{n}: the film was {'good' if n % 3 else 'far too long'}", "yes" if n % 3 else "no") for n in range(60)]
    pairs = [(f"The password of account {n}", f"Reset password {n}, {n % 4} times", str(n % 2)) for n in range(60)]
    write(folder / "tickets.csv", ["message", "queue"], tickets)
    write(folder / "films.csv", ["review", "liked"], films)
    write(folder / "pairs.csv", ["question", "candidate", "same"], pairs)
    changes = {"encoder.name": tiny, "encoder.max_length": 32, "training.steps": 6, "training.batch": 8,
               "machine.device": "cpu", "machine.threads": 1}  # fmt: skip
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with inside(folder):
        init = done("init", "tickets.csv", "films.csv", "pairs.csv")
        check = done("check", "recipe.yaml", *sets)
        run = done("run", "recipe.yaml", *sets)
    return Desk(folder, sets, init, check, run)


@pytest.fixture
def at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The user's desk, with the user at it."""
    monkeypatch.chdir(desk.folder)
    return desk


@pytest.fixture(scope="session")
def school(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> School:
    """A user shows what a small distillation recipe would do, and runs it."""
    folder = tmp_path_factory.mktemp("school")
    (folder / "small.yaml").write_text(
        f"""
name: small
data: {{demo: {{rows: 40}}}}
tasks: [mood, similar]
encoder: {{name: {tiny}, max_length: 32}}
training: {{steps: 4, batch: 8, lr: 1e-3, evaluate: never}}
teachers: [{{name: large, tasks: each}}]
targets: {{weak: keep}}
student: {{encoder: {{layers: 1}}}}
machine: {{device: cpu, threads: 1}}
""",
        encoding="utf-8",
    )
    with inside(folder):
        before = done("run", "small.yaml", "--dry-run")
        assert sorted(path.name for path in Path("runs").iterdir()) == ["cache"], "data are read, and nothing is begun"
        run = done("run", "small.yaml")
    return School(folder, before, run)


@pytest.fixture
def pupil(school: School, monkeypatch: pytest.MonkeyPatch) -> School:
    """The school, with the user in it."""
    monkeypatch.chdir(school.folder)
    return school
