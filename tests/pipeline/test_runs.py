"""What is kept: no cleaning beside a run at work, killed runs are completed, and damaged files are made again."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from test_resume import FORKS, PATIENCE

from helpers import joint_targets
from understill import pipeline
from understill.atomic import write_record
from understill.cli import main
from understill.code_digest import code_digest
from understill.data import demo
from understill.errors import UserError
from understill.events import Event, Examined, Labelling, Timed, TrainingState
from understill.pipeline.locks import in_use
from understill.pipeline.run_folder import code_change
from understill.recipe import Recipe, make_recipe

KEEP = {"weak": "keep"}


@pytest.fixture
def distil_values(recipe_values: dict[str, Any]) -> dict[str, Any]:
    """The plain values of a distillation recipe that runs in a second."""
    return {
        **recipe_values,
        "tasks": ["mood", "similar"],
        "training": {"steps": 5, "batch": 8, "lr": 1e-3, "evaluate": "never"},
        "teachers": [{"name": "large", "tasks": "each"}],
        "targets": KEEP,
        "student": {"training": {"steps": 9}, "baseline": False},
    }


@pytest.fixture
def distil(distil_values: dict[str, Any]) -> Recipe:
    """The same as a recipe."""
    return make_recipe(distil_values)


def say_run(recipe: str, reported: str) -> None:
    """Do what `understill run RECIPE` does, and write what it says to a file."""
    with Path(reported).open("w", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        main(["run", recipe])


def ended(process: BaseProcess) -> int | None:
    """Wait for a process, and return how it ended."""
    process.join(PATIENCE)
    process.kill()
    return process.exitcode


def artifacts(recipe: Recipe) -> set[str]:
    return {path.name for path in (recipe.output.path / "artifacts").iterdir() if path.is_dir()}


def student_of(recipe: Recipe) -> Path:
    (student,) = pipeline.pick_models(pipeline.make_plan(recipe), ("student",))
    return student.folder


def weights(recipe: Recipe) -> bytes:
    return (student_of(recipe) / "model" / "model.safetensors").read_bytes()


# Clean, and who is at work --------------------------------------------------------------------------------------------


def stay_at_work(folder: str, begun: Any) -> None:
    """Be at work in an output folder until the end of days."""
    with in_use(Path(folder)):
        begun.set()
        signal.pause()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_nothing_is_cleaned_beside_a_process_at_work_until_it_is_dead(tmp_path: Path) -> None:
    idle = tmp_path / "artifacts" / "model-mood-0123456789abcdef"
    idle.mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    begun = FORKS.Event()
    process = FORKS.Process(target=stay_at_work, args=(str(tmp_path), begun))
    process.start()
    try:
        assert begun.wait(PATIENCE)
        for remove in (True, False):
            with pytest.raises(UserError) as reported:
                pipeline.clean(tmp_path, cache=True, remove=remove)
            assert str(reported.value) == f"{tmp_path}: a run is at work in this folder; wait until it has finished"
        assert idle.is_dir() and (tmp_path / "cache").is_dir()
    finally:
        process.kill()
        process.join()
    assert list((tmp_path / ".at-work").glob("*.lock")), "what a dead process leaves"
    assert [waste.path for waste in pipeline.clean(tmp_path)] == [idle]
    assert not idle.exists() and not list((tmp_path / ".at-work").glob("*.lock"))


def test_a_run_is_at_work_from_its_first_stage_to_its_last(distil: Recipe) -> None:
    refused: list[Event] = []

    def try_to_clean(event: Event) -> None:
        if isinstance(event, (TrainingState, Labelling, Examined)):
            with pytest.raises(UserError, match="a run is at work"):
                pipeline.clean(distil.output.path)
            refused.append(event)

    pipeline.run(distil, try_to_clean)
    assert {type(event) for event in refused} == {TrainingState, Labelling, Examined}
    assert pipeline.clean(distil.output.path) == []
    study = pipeline.make_study(distil)
    before = len(refused)
    pipeline.train_some(study, (), try_to_clean)
    assert len(refused) > before, "teach is at work too"


# Several, and killed ones ---------------------------------------------------------------------------------------------


def test_a_finished_record_stays_readable_while_the_same_recipe_runs_again(distil: Recipe) -> None:
    """Another process may be writing its report from it; a record of other artefacts is written anew at once."""
    record = distil.output.path / distil.name / "run.json"
    states: list[str] = []

    def look(event: Event) -> None:
        if not isinstance(event, Timed):  # which comes when all is done
            states.append(json.loads(record.read_text(encoding="utf-8"))["state"] if record.exists() else "")

    pipeline.run(distil)
    pipeline.run(distil, look)
    assert set(states) == {"done"}
    states.clear()
    pipeline.run(distil.model_copy(update={"seed": 1}), look)
    assert states[-1] == "running"


def test_two_runs_of_one_recipe_at_once_make_everything_once(distil_values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump({**distil_values, "student": {}}), encoding="utf-8")
    output = [tmp_path / "one.txt", tmp_path / "two.txt"]
    both = [FORKS.Process(target=say_run, args=(str(file), str(reported))) for reported in output]
    for process in both:
        process.start()
    texts = [
        (ended(process), reported.read_text(encoding="utf-8")) for process, reported in zip(both, output, strict=True)
    ]
    assert [code for code, _ in texts] == [0, 0], texts
    lines = [line for _, text in texts for line in text.splitlines()]
    for model in ("large-mood", "large-similar", "baseline", "student"):
        assert lines.count(f"training {model}") == 1, "one process trains it, the other takes it"
    assert len([line for line in lines if line.startswith('  teacher "large" on mood')]) == 1, "it is examined once"
    one, two = (text[text.index("dev scores") :] for _, text in texts)
    assert one == two
    recipe = make_recipe({**distil_values, "student": {}})
    (kept,) = pipeline.list_runs(recipe.output.path)
    assert (kept.state, set(kept.facts["uses"])) == ("done", artifacts(recipe)), "and nothing half-made is left"
    alone = make_recipe({**distil_values, "student": {}, "output": {"folder": str(tmp_path / "alone")}})
    pipeline.run(alone)
    assert weights(alone) == weights(recipe)


def kill_at_call(number: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that kills this process when it is called for so many times."""
    count = 0

    def killing(*args: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **settings)

    return killing


def die_at(moment: str, recipe: str, reported: str) -> None:
    """Do what `understill run RECIPE` does, and be killed in the middle of something."""
    from understill.losses.fused import FusedObjective
    from understill.pipeline import teacher_selection
    from understill.targets import store

    if moment == "examining":  # the answers are there, what they are worth is not written yet
        teacher_selection.write_json = kill_at_call(2, teacher_selection.write_json)  # type: ignore[attr-defined]
    elif moment == "labelling":  # the first table is whole, the second has no manifest yet
        store.write_json = kill_at_call(2, store.write_json)  # type: ignore[attr-defined]
    else:
        usual = FusedObjective.forward
        dying = kill_at_call(7, usual)

        def forward(self: FusedObjective, *args: Any, **settings: Any) -> Any:
            return (dying if self.distil else usual)(self, *args, **settings)

        FusedObjective.forward = forward  # type: ignore[method-assign]
    say_run(recipe, reported)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_while_examining_labelling_and_training_its_student_a_run_ends_with_the_same_bits(
    distil_values: dict[str, Any], tmp_path: Path
) -> None:
    values = {**distil_values, "training": {**distil_values["training"], "checkpoint": "2 steps"}}
    recipe = make_recipe(values)
    file, reported = tmp_path / "recipe.yaml", tmp_path / "told.txt"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    seen = []
    for moment in ("examining", "labelling", "training"):
        process = FORKS.Process(target=die_at, args=(moment, str(file), str(reported)))
        process.start()
        assert ended(process) == -signal.SIGKILL, reported.read_text(encoding="utf-8")
        plan = pipeline.make_plan(recipe)
        student = plan.models[-1]
        verdicts = len(list((recipe.output.path / "artifacts").glob("verdict-*/verdict.json")))
        seen.append((verdicts, sum(targets.done for targets in plan.targets), student.started, student.done))
        waste = [each.path.suffix for each in pipeline.clean(recipe.output.path, remove=False)]
        assert set(waste) == {".part"}, "only what was being written"
    assert seen == [(1, 0, False, False), (2, 1, False, False), (2, 2, True, False)]
    process = FORKS.Process(target=say_run, args=(str(file), str(reported)))
    process.start()
    assert ended(process) == 0
    assert "student: resuming from step " in reported.read_text(encoding="utf-8")
    undisturbed = make_recipe({**values, "output": {"folder": str(tmp_path / "undisturbed")}})
    pipeline.run(undisturbed)
    assert weights(recipe) == weights(undisturbed)
    pipeline.clean(recipe.output.path)
    assert artifacts(recipe) == artifacts(undisturbed)
    assert [run.state for run in pipeline.list_runs(recipe.output.path)] == ["done"]


# Damaged files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["changed", "cut", "no manifest", "no table"])
def test_a_damaged_table_is_made_again_as_it_was(distil: Recipe, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.run(distil)
    plan = pipeline.make_plan(distil)
    whole, tables = weights(distil), {targets.folder: _files(targets.folder) for targets in plan.targets}
    table = plan.targets[0].folder / "targets.parquet"
    if damage == "changed":
        content = bytearray(table.read_bytes())
        content[len(content) // 2] ^= 1
        table.write_bytes(content)
    elif damage == "cut":
        table.write_bytes(table.read_bytes()[:-9])
    else:
        (table if damage == "no table" else table.with_name("manifest.json")).unlink()
    (student_of(distil) / "done.json").unlink()  # a student that has its lessons behind it does not ask again
    events: list[Event] = []
    pipeline.run(distil, events.append)
    assert {event.what for event in events if isinstance(event, Labelling)} == {"mood/train"}, "the other is sound"
    assert {folder: _files(folder) for folder in tables} == tables
    assert weights(distil) == whole
    assert f"{table.parent} does not match its checksums" in caplog.text


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("damage", ["broken verdict", "other verdict", "no verdict", "no answers", "broken answers"])
def test_a_verdict_that_is_not_whole_is_made_again(distil: Recipe, damage: str) -> None:
    run = pipeline.run(distil)
    lessons = pipeline.make_plan(distil).distillations[0]
    teacher = next(teacher for teacher in lessons.teachers if teacher.task == "mood")
    before = _files(teacher.verdict.folder)
    verdict, answers = (teacher.verdict.folder / name for name in ("verdict.json", "mood.dev.parquet"))
    if damage in ("broken verdict", "other verdict"):
        verdict.write_text('{"score": 0.' if damage == "broken verdict" else "[]", encoding="utf-8")
    elif damage == "broken answers":
        answers.write_bytes(answers.read_bytes()[:-20])
    else:
        (verdict if damage == "no verdict" else answers).unlink()
    events: list[Event] = []
    assert pipeline.run(distil, events.append).teachers == run.teachers
    assert [event.task for event in events if isinstance(event, Examined)] == ["mood"]
    assert _files(teacher.verdict.folder) == before


# Predictions ----------------------------------------------------------------------------------------------------------


class PredictionsRun(NamedTuple):
    """A recipe that is taught by a file of predictions, and the file."""

    recipe: Recipe
    file: Path


def mood_rows(split: str) -> list[tuple[str, str]]:
    (batch,) = demo.batches("mood", split, 64, 0)
    return list(zip(batch.column("message").to_pylist(), batch.column("label").to_pylist(), strict=True))


def write_said(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("message", "label"), *rows])


@pytest.fixture
def output(distil_values: dict[str, Any], tmp_path: Path) -> PredictionsRun:
    file = tmp_path / "said.csv"
    write_said(file, [*mood_rows("train"), *mood_rows("dev")])
    taught = {"tasks": ["mood"], "teachers": [{"name": "llm", "predictions": str(file)}], "targets": {}, "student": {}}
    return PredictionsRun(make_recipe({**distil_values, **taught}), file)


def test_predictions_that_change_after_the_plan_are_refused_and_nothing_is_written(output: PredictionsRun) -> None:
    plan = pipeline.make_plan(output.recipe)
    (teacher,) = plan.external
    pipeline.open_teacher(plan, teacher)
    write_said(output.file, mood_rows("train")[:-1])
    words = "teacher llm: its files have changed since the run began; run the recipe again"
    with pytest.raises(UserError) as reported:
        pipeline.open_teacher(plan, teacher)
    assert str(reported.value) == words
    with pytest.raises(UserError, match="have changed since"):
        joint_targets(plan, plan.distillations[0])
    assert not any(targets.done for targets in plan.targets)
    assert not (teacher.verdict.folder / "verdict.json").exists()
    again = pipeline.make_plan(output.recipe)
    assert list(joint_targets(again, again.distillations[0])) == [("mood", "train")], (
        "run again, they are taken as they are"
    )


def test_predictions_about_dev_alone_teach_nothing(output: PredictionsRun) -> None:
    write_said(output.file, mood_rows("dev"))
    with pytest.raises(UserError) as reported:
        pipeline.run(output.recipe)
    assert "is about a row of mood to learn from" in str(reported.value)
    assert not any(model.folder.exists() for model in pipeline.make_plan(output.recipe).models), "it stops at once"


def test_predictions_that_are_silent_on_dev_are_examined_on_train(output: PredictionsRun) -> None:
    turned = {"calm": "upset", "upset": "calm"}
    write_said(output.file, [(text, turned[label]) for text, label in mood_rows("train")])
    with pytest.raises(UserError) as reported:
        pipeline.run(output.recipe)
    first, line = str(reported.value).splitlines()
    assert first.startswith("1 of 1 teachers should not teach")
    assert line.startswith("  llm of mood: accuracy 0.0 on train, where the best constant answer has ")
    assert "its labels seem to be permuted; with the mapping below it would score 100.0" in line
    assert not any(model.folder.exists() for model in pipeline.make_plan(output.recipe).models), "it stops at once"

    write_said(output.file, mood_rows("train"))
    run = pipeline.run(output.recipe)
    assert [model.name for model in run.models] == ["baseline", "student"]
    assert run.teachers == {}, "it has no score on dev"
    (teacher,) = pipeline.make_plan(output.recipe).external
    assert json.loads((teacher.verdict.folder / "verdict.json").read_text())["score"] == 1.0


# Studies and verbs that only look -------------------------------------------------------------------------------------


def record(folder: Path, **scores: Sequence[float]) -> None:
    """Write the record of a finished study: by variant, the score of each seed's student."""
    cells = [
        {
            "variant": variant,
            "seed": seed,
            "models": {
                "large": {"role": "teacher", "scores": {"mood/dev": {"accuracy": 0.99}}},
                "baseline": {"role": "baseline", "scores": {"mood/dev": {"accuracy": 0.5}}},
                "student": {
                    "role": "student",
                    "scores": {"mood/dev": {"accuracy": score}, "mood/test": {"accuracy": 0}, "stars/dev": {"mse": 9}},
                },
            },
        }
        for variant, values in scores.items()
        for seed, score in enumerate(values)
    ]
    facts = {"state": "done", "started": 0, "uses": [], "cells": cells, "models": cells[0]["models"]}
    folder.mkdir(parents=True)
    write_record(folder / "run.json", facts)


def test_a_study_is_listed_with_the_mean_of_its_seeds_in_the_recipe_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "study", usual=[0.6, 0.7, 0.83], other=[0.1, 0.1, 0.1])
    record(tmp_path / "plain", usual=[0.6])
    means = {run.name: run.means for run in pipeline.list_runs(tmp_path)}
    assert means["study"] == {"baseline": 0.5, "student": pytest.approx(0.71)}
    assert means["plain"] == {"baseline": 0.5, "student": 0.6}
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        main(["runs", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    (study,), (plain,) = ([line for line in lines if name in line] for name in ("study", "plain"))
    assert "baseline 50.0, student 71.0, mean of 3 seeds" in study and "done, 6 runs" in study
    assert "baseline 50.0, student 60.0 " in plain and "seeds" not in plain


HEAVY = ("torch", "transformers", "sklearn", "scipy", "datasets")
ALONE = f"""
import sys
from understill.cli import main
from understill.code_digest import code_digest
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("heavy:", [name for name in {HEAVY} if name in sys.modules])
"""


@pytest.mark.parametrize("verb", ["runs .", "data", "data recipe.yaml", "assets", "clean .", "clean . --yes --cache"])
def test_verbs_that_only_look_after_things_import_nothing_heavy(tmp_path: Path, verb: str) -> None:
    record(tmp_path / "study", usual=[0.6, 0.7])
    (tmp_path / "recipe.yaml").write_text("data: {demo: 50}\ntasks: [mood, similar, answer]\n")
    command = [sys.executable, "-c", ALONE, *verb.split()]
    reported = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (reported.returncode, reported.stderr) == (0, "")
    assert reported.stdout.splitlines()[-1] == "heavy: []"


def test_every_public_name_of_the_pipeline_is_there() -> None:
    assert all(hasattr(pipeline, name) for name in pipeline.__all__)
    with pytest.raises(AttributeError, match="has no nothing"):
        _ = pipeline.nothing


# The code -------------------------------------------------------------------------------------------------------------


def test_after_a_change_of_the_code_that_trains_models_are_trained_again_and_one_sentence_says_so(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = make_tiny(tasks=["mood"])
    first = pipeline.run(recipe)
    assert code_change(recipe) == "" and pipeline.run(recipe).models[0].folder == first.models[0].folder
    assert "the code" not in caplog.text
    for module in ("understill.artifact", "understill.pipeline.run_folder"):
        monkeypatch.setattr(f"{module}.code_digest", lambda kind: {"model": "scaled"}.get(kind, code_digest(kind)))
    (planned,) = pipeline.make_plan(recipe).models
    assert not planned.done
    pipeline.run(recipe)
    sentence = "the code that trains models has changed since tiny was last run"
    assert [sentence in record.message for record in caplog.records if "the code" in record.message] == [True]
    assert planned.done and code_change(recipe) == ""
