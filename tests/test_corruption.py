"""A flipped bit or a cut in any file of anything that is made is noticed and mended, or refused; no result changes."""

from __future__ import annotations

import pytest

from corruption import Trial, Trials, World, as_table
from tiny import save_tiny


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """A small complete run, to be damaged."""
    root = tmp_path_factory.mktemp("damage")
    world = World(root, save_tiny(root / "encoder"))
    world.build()
    return Trials(world, seed=0)


def check(trials: list[Trial]) -> None:
    print("\n" + as_table(trials))
    unnoticed = [trial for trial in trials if trial.outcome == "unnoticed"]
    assert not unnoticed, "\n".join(map(str, unnoticed))


def test_a_sample_of_damage_changes_no_result(trials: Trials) -> None:
    check(trials.run(10))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_damage_to_every_kind_of_file_changes_no_result(trials: Trials) -> None:
    check(trials.run(520))
