"""Whatever a recipe, a data file or a model's folder holds, it is taken, or refused by one UserError; never more."""

from __future__ import annotations

import pytest

from fuzzing import Fuzz, quiet


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    """Sound recipes, files and models, to be changed."""
    return Fuzz(tmp_path_factory.mktemp("fuzz"))


def check(fuzz: Fuzz, inputs: int) -> None:
    with quiet():
        tally = fuzz.run(inputs)
    print(f"\n{tally}")
    assert not tally.failures, str(tally)
    assert all(tally.refused[kind] for kind in fuzz.kinds if kind != "checksums"), "changes do harm"
    assert tally.taken.total() > inputs / 20, "and not all of them"


def test_a_sample_of_strange_inputs_is_taken_or_refused(fuzz: Fuzz) -> None:
    check(fuzz, 1500)


@pytest.mark.slow
def test_a_hundred_thousand_strange_inputs_are_taken_or_refused(fuzz: Fuzz) -> None:
    check(fuzz, 101_000)
