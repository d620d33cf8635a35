"""Whatever goes wrong while a recipe is run, it comes to what it does without the fault, at once or at the next try."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import KINDS, Trial, as_table

TESTS = Path(__file__).parents[1]


def trials_of(folder: Path, seed: int, count: int) -> list[Trial]:
    """Run the tiny recipe so many times with a fault each, in a process that can be forked, and print the counts."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, str(TESTS / "faults" / "harness.py"), str(folder), str(seed), str(count)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    trials = [Trial(**json.loads(line)) for line in done.stdout.splitlines()]
    print("\n" + as_table(trials))
    return trials


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """A run with each kind of fault."""
    return {trial.kind: trial for trial in trials_of(tmp_path_factory.mktemp("faults"), 0, len(KINDS))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_a_fault_comes_to_the_same_at_once_or_at_the_next_try(
    one_of_each: dict[str, Trial], kind: str
) -> None:
    trial = one_of_each[kind]
    if trial.outcome == "skipped":
        pytest.skip(trial.detail)
    assert trial.outcome != "failed", f"{trial.what}: {trial.detail}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundreds_of_runs_with_a_fault_each_come_to_the_same(tmp_path: Path) -> None:
    failed = [trial for trial in trials_of(tmp_path, 1, 24 * len(KINDS)) if trial.outcome == "failed"]
    assert not failed, "\n".join(map(str, failed))
