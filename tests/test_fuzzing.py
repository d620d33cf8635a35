"""Whatever a recipe, a data file, a model's folder or a client's request holds, it is taken, or refused; never more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzzing import Fuzz, quiet


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzz]:
    """Sound recipes, files and models, to be changed."""
    fuzz = Fuzz(tmp_path_factory.mktemp("fuzz"))
    with fuzz.server:
        yield fuzz


def check(fuzz: Fuzz, inputs: int) -> None:
    with quiet():
        tally = fuzz.run(inputs)
    print(f"\n{tally}")
    assert not tally.failures, str(tally)
    assert fuzz.served and all("error" not in line for line in fuzz.served.lines()), "no bug in the log"
    assert all(tally.refused[kind] for kind in fuzz.kinds if kind != "checksums"), "changes do harm"
    assert tally.taken.total() > inputs / 20, "and not all of them"


def test_a_sample_of_strange_inputs_is_taken_or_refused(fuzz: Fuzz) -> None:
    check(fuzz, 1500)


@pytest.mark.slow
def test_a_hundred_thousand_strange_inputs_are_taken_or_refused(fuzz: Fuzz) -> None:
    check(fuzz, 101_000)
