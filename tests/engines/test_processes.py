"""Several processes that train a model together end with the weights of one, whatever happens to them on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from understill import pipeline
from understill.recipe import load_recipe

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "understill", "train")
TRAIN = ("-m", "understill", "train")
#: How often processes are killed at random moments.
KILLS = int(os.environ.get("UNDERSTILL_KILLS", "6"))


@pytest.fixture
def file(tiny_values: Callable[[Path], dict[str, Any]], tmp_path: Path) -> Path:
    """A recipe whose results do not depend on draws of dropout; nine rows cannot be halved."""
    values = tiny_values(tmp_path / "runs")
    values["training"] |= {"steps": 24, "batch": 9, "evaluate": "8 steps", "checkpoint": "6 steps"}
    values["encoder"]["dropout"], values["heads"] = 0.0, {"dropout": 0.0}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def start(*command: str | Path, **settings: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, *map(str, command)], text=True, **pipes, **settings)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        text, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    return process.returncode, text


def trained_alone(file: Path, folder: Path, *sets: str) -> pipeline.TrainedModel:
    """Train the recipe's model in this process."""
    recipe = load_recipe(file, (f"output.folder={folder}", *sets))
    (model,) = pipeline.train_some(pipeline.make_study(recipe), ())
    return model


def model_in(folder: Path) -> Path:
    (model,) = (folder / "artifacts").glob("model-*/model")
    return model


def distance(one: Path, two: Path) -> float:
    """Return the largest difference between any two weights."""
    weights, others = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    assert weights.keys() == others.keys()
    return max(float(np.abs(values - others[name]).max()) for name, values in weights.items())


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if ".lock" not in path.name}


def test_two_processes_of_torchrun_end_with_the_weights_scores_and_files_of_one(file: Path, tmp_path: Path) -> None:
    code, text = finish(start(*TORCHRUN, file))
    assert code == 0, text
    alone, together = trained_alone(file, tmp_path / "alone"), model_in(tmp_path / "runs")
    assert distance(alone.folder, together) < 1e-5
    assert distance(alone.folder, together) > 0, "sums of parts are rounded in another order"
    assert files_in(tmp_path / "alone" / "artifacts") == files_in(tmp_path / "runs" / "artifacts")
    again = trained_alone(file, tmp_path / "runs")  # taken as it is: the number of processes is no part of what it is
    assert again.folder == together
    for place, scores in alone.scores.items():
        assert again.scores[place] == pytest.approx(scores, abs=5e-3)  # ranks of scores that hardly differ
    assert [entry["step"] for entry in again.history] == [8, 16, 24]
    for one, two in zip(alone.history, again.history, strict=True):
        assert two["score"] == pytest.approx(one["score"], abs=5e-3), "evaluation counts each row once"
    assert text.count("training ") == 1 and "step 24" in text, "the first process alone says what happens"


def wait_for_checkpoint(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    for _ in range(1500):
        steps = [int(path.name.partition("-")[2]) for path in folder.glob("artifacts/model-*/work/checkpoint-*")]
        if any(each >= step for each in steps):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint after step {step}")


@pytest.mark.slow
def test_a_run_stopped_by_signals_goes_on_with_another_number_of_processes(file: Path, tmp_path: Path) -> None:
    long = ("--set", "training.steps=300", "--set", "training.evaluate=100 steps")
    for number, step, more in ((signal.SIGTERM, 6, ("--processes", "2")), (signal.SIGINT, 80, ())):
        process = start(*TRAIN, file, *long, *more)
        wait_for_checkpoint(tmp_path / "runs", step, process)
        process.send_signal(number)
        code, text = finish(process)
        assert code == 128 + number, text
        assert f"stopped by {signal.Signals(number).name} after step" in text and "Traceback" not in text
    code, text = finish(start(*TRAIN, file, *long, "--processes", "2"))
    assert code == 0 and "resuming from step" in text, text
    alone = trained_alone(file, tmp_path / "alone", "training.steps=300", "training.evaluate=100 steps")
    assert distance(alone.folder, model_in(tmp_path / "runs")) < 1e-5


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that one has started, the first one first."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("launcher", ["understill", "torchrun"])
def test_a_killed_process_ends_the_run_which_then_goes_on_from_its_checkpoint(
    rank: int, launcher: str, file: Path, tmp_path: Path
) -> None:
    long = ("--set", "training.steps=300", "--set", "training.evaluate=100 steps")
    command = (*TRAIN, file, *long, "--processes", "2") if launcher == "understill" else (*TORCHRUN, file, *long)
    process = start(*command)
    wait_for_checkpoint(tmp_path / "runs", 6, process)
    os.kill(children_of(process)[rank], signal.SIGKILL)
    code, text = finish(process)
    assert code != 0 and "SIGKILL" in text
    if launcher == "understill":
        assert "the same command resumes from the last checkpoint" in text and "Traceback" not in text
    code, text = finish(start(*TRAIN, file, *long))
    assert code == 0 and "resuming from step" in text, text
    alone = trained_alone(file, tmp_path / "alone", "training.steps=300", "training.evaluate=100 steps")
    assert distance(alone.folder, model_in(tmp_path / "runs")) < 1e-5


@pytest.mark.slow
def test_however_often_any_process_is_killed_at_random_moments_the_result_is_the_same(
    file: Path, tmp_path: Path
) -> None:
    long = ("--set", "training.steps=400", "--set", "training.evaluate=100 steps")
    random = np.random.default_rng(0)
    kills, code = 0, 1
    while code != 0:
        count = int(random.integers(2, 4))
        process = start(*TRAIN, file, *long, "--processes", str(count))
        if kills < KILLS:
            time.sleep(random.uniform(0.5, 15))
            if process.poll() is None:
                # The one that starts the others too: they write a checkpoint and end.
                os.kill(random.choice([process.pid, *children_of(process)]), signal.SIGKILL)
                kills += 1
        code, text = finish(process)
        assert "Traceback" not in text, text
    assert kills >= 2
    alone = trained_alone(file, tmp_path / "alone", "training.steps=400", "training.evaluate=100 steps")
    assert distance(alone.folder, model_in(tmp_path / "runs")) < 1e-5


@pytest.mark.slow
def test_a_whole_run_with_chosen_rates_and_teachers_needs_no_second_process_to_score_write_or_report(
    file: Path, tmp_path: Path
) -> None:
    values = yaml.safe_load(file.read_text()) | {
        "tasks": ["mood", "answer"],
        "teachers": [{"tasks": "each"}],
        "targets": {"weak": "keep"},
        "student": {"distil": {}, "training": {"lr": "auto", "epochs": 1}},
    }
    values["student"]["training"] |= {"start": "probe"}
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    code, text = finish(start("-m", "understill", "run", file, "--processes", "2"))
    assert code == 0, text
    assert text.count("dev scores") == 1 and text.count("report: ") == 1
    run = pipeline.run_study(load_recipe(file, (f"output.folder={tmp_path / 'alone'}",)))[0]
    assert {model.name for model in run.models} == {path.name for path in (tmp_path / "runs").glob("*/models/*")}
    (student,) = (model for model in run.models if model.role == "student")
    assert student.chosen, "its rate was chosen, by the first process for all"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("encoder.max_length=512", "can read (130)"),
        ("training.batch=1", "2 processes cannot share batches of 1 rows"),
    ],
)
def test_a_mistake_is_told_once(change: str, words: str, file: Path) -> None:
    code, text = finish(start(*TRAIN, file, "--processes", "2", "--set", change))
    assert code == 2 and words in text and text.count("error: ") == 1 and "Traceback" not in text, text


def test_another_number_of_processes_than_torchrun_has_started_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    code, text = finish(start(*TRAIN, file, "--processes", "2"))
    assert code == 2 and "--processes 2: torchrun has started 4 → leave --processes out" in text, text
