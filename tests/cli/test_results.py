"""Evaluate gives the scores of the run, on its own data or on those of another recipe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_cases import Desk, School, done, model_folder, read_answers, understill, write_texts


@pytest.mark.parametrize("place", ["run folder", "model folder"])
def test_evaluate_gives_the_scores_of_the_run(at: Desk, tmp_path: Path, place: str) -> None:
    model = Path("runs/my-tasks") if place == "run folder" else model_folder()
    output = done("evaluate", model, "--out", tmp_path / "kept")
    of_run = re.findall(r"│ (\w+) +│ (\w+) +│ +[\d.]+ │ +[\d.]+ │ +([\d.]+)(?: ↓)? +│", at.run.out)
    assert len(of_run) == 3
    assert re.findall(r"│ (\w+) +│ (\w+) +│ +([\d.]+) │", output.out) == of_run
    assert f"predictions: {tmp_path / 'kept'}" in output.out
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        f"{task}.dev.parquet" for task in ("tickets", "films", "pairs")
    }


def test_evaluate_takes_another_recipe(at: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "tasks: {films: {train: films.csv, dev: films.csv, text: review, label: liked}}\n"
        f"output: {{folder: {tmp_path / 'runs'}}}\n",
        encoding="utf-8",
    )
    output = done("evaluate", "runs/my-tasks", "--recipe", other, "--set", "machine.device=cpu")
    assert re.search(r"│ films +│ accuracy", output.out)
    assert "tickets" not in output.out and "mean" not in output.out
    wrong = understill("evaluate", "runs/my-tasks", "--recipe", other, "--set", "tasks=[sst2]", "--set", "data.glue=.")
    assert wrong.code == 2


def test_evaluate_and_predict_take_the_student_of_a_run(pupil: School, tmp_path: Path) -> None:
    scores = json.loads(Path("runs/small/run.json").read_text())["models"]["student"]["scores"]
    output = done("evaluate", "runs/small", "--out", tmp_path)
    (shown,) = re.findall(r"│ mood +│ accuracy +│ +([\d.]+) │", output.out)
    assert shown == f"{100 * scores['mood/dev']['accuracy']:.1f}"
    rows = {
        name: pq.read_table(Path("runs/small/models", name).resolve().parent / "predictions" / "mood.dev.parquet")
        for name in ("student", "baseline")
    }
    assert pq.read_table(tmp_path / "mood.dev.parquet").equals(rows["student"])
    assert not rows["student"].equals(rows["baseline"])
    file = write_texts(tmp_path / "in.csv")
    asked = {}
    for name, model in {"run": "runs/small", **{name: f"runs/small/models/{name}" for name in rows}}.items():
        place = tmp_path / f"{name}.jsonl"
        done("predict", model, "--file", file, "--columns", "review", "--task", "mood", "--out", place)
        asked[name] = read_answers(place)
    assert asked["run"] == asked["student"] != asked["baseline"]
    output = done("predict", "runs/small", "--text", "The parcel never came")
    assert re.fullmatch(
        r"The parcel never came\n  mood: (calm|upset) \([\d.]+ %\), (calm|upset) [\d.]+ %\n", output.out
    )
