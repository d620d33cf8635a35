"""The proof that a run survives anything: killed with SIGKILL again and again, it ends with the very same bits."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import yaml

from understill import pipeline
from understill.cli import main

STEPS = 160
#: Steps after which the run is killed, a random moment later; the last leaves time for that.
KILLS = sorted(random.Random(3).sample(range(3, 125), 5))
PATIENCE = 200.0  # seconds that anything may take on a busy machine

# Processes are forked from one that has done the imports, since these would take up most of the test. What is killed
# is a whole process with the command line's own work all the same.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["understill.pipeline", "understill.terminal.studies", "transformers.models.bert.modeling_bert"]
)


def understill_run(recipe: str) -> None:
    """Do what `understill run RECIPE` does."""
    main(["run", recipe, "--no-report"])


class Runner:
    """Starts `understill run` on a recipe, and kills it."""

    def __init__(self, folder: Path, values: dict[str, Any]) -> None:
        self.output = folder / "runs"
        self.recipe = folder / "recipe.yaml"
        folder.mkdir()
        self.recipe.write_text(yaml.safe_dump({**values, "output": {"folder": str(self.output)}}), encoding="utf-8")

    def start(self) -> BaseProcess:
        """Start from what is there."""
        process = FORKS.Process(target=understill_run, args=(str(self.recipe),))
        process.start()
        return process

    def kill_when(self, ready: Callable[[], bool], delay: float) -> None:
        """Start, wait for the moment and a little longer, and kill."""
        process = self.start()
        end = time.monotonic() + PATIENCE
        try:
            while not ready():
                assert process.is_alive() and time.monotonic() < end, "there was nothing to kill"
                time.sleep(0.002)
            time.sleep(delay)
        finally:
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL, "it was too quick to be killed"

    def finish(self) -> str:
        """Run to the end in a process of its own, and return what it said."""
        command = [sys.executable, "-m", "understill", "run", str(self.recipe), "--no-report"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def step(self) -> int:
        """The step of the newest checkpoint."""
        result = self.output.glob("artifacts/model-*/work/checkpoint-*")
        return max((int(path.name.partition("-")[2]) for path in result), default=0)

    @property
    def weights(self) -> bytes:
        """The weights of the finished model."""
        (path,) = self.output.glob("artifacts/model-*/model/model.safetensors")
        return path.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_at_any_moment_a_run_ends_with_the_same_bits(
    recipe_values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    monkeypatch.setitem(os.environ, "TOKENIZERS_PARALLELISM", "false")  # threads do not survive a fork
    settings = {"steps": STEPS, "batch": 8, "lr": 1e-3, "evaluate": "40 steps", "checkpoint": "3 steps"}
    values = {**recipe_values, "data": {"demo": {"rows": 500}}, "training": settings}
    undisturbed, disturbed = Runner(tmp_path / "undisturbed", values), Runner(tmp_path / "disturbed", values)
    alongside = undisturbed.start()
    try:
        # While the data are read and tokenised: some tokens are there, and training has not begun.
        disturbed.kill_when(lambda: any((disturbed.output / "cache").glob("*tokens-*")), 0)
        assert not list(disturbed.output.glob("artifacts/*/work/*"))

        last, chance = 0, random.Random(0)
        for step in KILLS:
            wanted = max(step, last + 1)
            disturbed.kill_when(lambda wanted=wanted: disturbed.step >= wanted, chance.uniform(0, 0.1))
            assert last < disturbed.step < STEPS
            last = disturbed.step
        assert f"multi: resuming from step {last} of {STEPS}" in disturbed.finish()
        alongside.join(PATIENCE)
        assert alongside.exitcode == 0
    finally:
        alongside.kill()
    assert disturbed.weights == undisturbed.weights
    assert not list(disturbed.output.glob("artifacts/model-*/work")), "checkpoints are cleared away at the end"


def test_the_weights_depend_on_every_step_and_on_nothing_else(make_tiny: Callable[..., Any], tmp_path: Path) -> None:
    weights = []
    for steps in (6, 6, 7):
        output = tmp_path / f"{len(weights)}"
        recipe = make_tiny(training={"steps": steps, "evaluate": "never"}, output={"folder": str(output)})
        (model,) = pipeline.run(recipe).models
        weights.append((model.folder / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
