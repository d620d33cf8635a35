"""Shortfalls: what is below what it should beat is said with what to try, and nothing else is."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers import keep_predictions
from understill.pipeline import Run, TrainedModel
from understill.pipeline.shortfalls import marks_of, shortfalls
from understill.recipe import Cell, Recipe, make_recipe
from understill.tasks import Task
from understill.terminal import console, scores, studies

MOOD = Task("mood", "classification", ("message",), "label", ("calm", "upset"), metrics=("accuracy", "f1"))


def recipe_of(**changes: Any) -> Recipe:
    return make_recipe({"tasks": ["mood"], **changes})


def sentences(firsts: dict[str, dict[str, float]], **changes: Any) -> list[str]:
    return [each.sentence for each in shortfalls(firsts, recipe_of(**changes))]


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, "give it more rows"),
        (
            {"training": {"lr": 1e-3}},
            "leave out `training` so that the learning rate is chosen or give it more rows",
        ),
        (
            {"training": {"epochs": 2}},
            "leave out `epochs` and `steps` so that they are chosen, or train it longer or give it more rows",
        ),
        ({"encoder": {"layers": 2}}, "keep more layers or give it more rows"),
        ({"encoder": "static"}, "take a pretrained encoder in place of static or give it more rows"),
    ],
    ids=str,
)
def test_a_model_below_the_linear_probe_is_told_with_what_fits_its_recipe(changes: Any, advice: str) -> None:
    what = "mood: the model (71.0) is below a linear head on the frozen encoder (74.2)"
    assert sentences({"linear probe": {"mood": 74.2}, "multi": {"mood": 71.0}}, **changes) == [f"{what} → {advice}"]


@pytest.mark.parametrize("value", [73.7, 74.2, 90.0])
def test_half_a_point_below_is_not_worth_a_word(value: float) -> None:
    assert sentences({"majority": {"mood": 99.0}, "linear probe": {"mood": 74.2}, "multi": {"mood": value}}) == []


def test_there_is_no_word_without_a_probe_or_of_columns_beside_the_main_one() -> None:
    assert sentences({"majority": {"mood": 50.0}, "multi": {"mood": 20.0}}) == []
    beside = {name: {"mood": 20.0} for name in ("baseline", "finetuned", "finetuned baseline")}
    assert sentences({"linear probe": {"mood": 74.2}, **beside, "student": {"mood": 80.0}}) == []


@pytest.mark.parametrize(
    ("baseline", "student", "who"),
    [
        (90.0, 87.0, "the baseline (90.0)"),
        (87.0, 91.0, "the student (91.0)"),
        (90.0, 91.0, "the baseline (90.0) and the student (91.0)"),
    ],
)
def test_teachers_below_those_they_should_teach_are_told(baseline: float, student: float, who: str) -> None:
    firsts = {"teachers": {"mood": 88.0}, "baseline": {"mood": baseline}, "student": {"mood": student}}
    helped = baseline < 88 < student
    so = "which gained from them" if helped else "so they have little to teach"
    what = f"mood: the teachers (88.0) are below {who}, {so}"
    trained = "train them longer or use a larger encoder"
    if not helped:
        trained = "train them longer, use a larger encoder or leave the task out of `teachers`"
    assert sentences(firsts, teachers=[{"tasks": "each"}]) == [f"{what} → {trained}"]
    files = [{"name": "llm", "predictions": "said.csv", "tasks": ["mood"]}]
    better = "take better ones" + ("" if helped else " or leave the task out of `teachers`")
    assert sentences(firsts, teachers=files) == [f"{what} → {better}"]


def test_good_teachers_and_tasks_without_teachers_get_no_word() -> None:
    firsts = {"teachers": {"mood": 95.0}, "baseline": {"mood": 95.5, "queue": 1.0}, "student": {"mood": 94.0}}
    assert sentences(firsts, teachers=[{"tasks": "each"}]) == []


def test_marks_stand_at_the_first_metric_of_the_dev_set() -> None:
    below = shortfalls({"linear probe": {"mood": 80.0}, "student": {"mood": 70.0}}, recipe_of())
    assert marks_of(below, {"mood": MOOD}) == {("mood/dev", "accuracy", "student"): " ↓"}


# Where they are shown -------------------------------------------------------------------------------------------------

SENTENCE = "mood: the model (70.0) is below a linear head on the frozen encoder (80.0) → give it more rows"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, on 80 columns."""
    text = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=text, width=80, **console.PLAIN))
    return text


def run_of(accuracy: float, seed: int = 0) -> Run:
    """A run of one model beside a probe of 80."""
    result = {"mood/dev": {"accuracy": accuracy, "f1": 0.1}}
    model = TrainedModel("multi", "model", Path("artifacts") / f"multi{seed}" / "model", result, [], 1.0)
    floors = ({"mood/dev": {"accuracy": value, "f1": 0.9}} for value in (0.5, 0.8))
    cell = Cell("", {}, seed, recipe_of())
    run = Run(Path("runs/one"), (model,), next(floors), {}, {}, {"mood": MOOD}, cell=cell)
    return replace(run, probe=next(floors))


def test_the_terminal_marks_the_score_and_says_it_below_the_table(shown: io.StringIO) -> None:
    scores.show_run(run_of(0.7))
    text = shown.getvalue()
    assert [cell.strip() for cell in text.splitlines()[2].strip("┃").split("┃")][2:4] == ["majority", "linear probe"]
    assert "│     50.0 │         80.0 │ 70.0 ↓ │" in text and "(↓ below its reference model)" in text
    assert text.index("└") < text.index(f"\n{SENTENCE}\n") < text.index("run folder")
    assert text.count("↓") == 2, "in its first metric only, and in the legend"


def test_a_run_without_shortfalls_has_no_marks(shown: io.StringIO) -> None:
    scores.show_run(run_of(0.81))
    assert "↓" not in shown.getvalue() and "frozen" not in shown.getvalue()


def test_of_several_seeds_the_mean_counts(shown: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, accuracy in enumerate((0.66, 0.74)):
        keep_predictions(Path("artifacts") / f"multi{seed}", MOOD, accuracy)
    studies.show_study([run_of(0.66, 0), run_of(0.74, 1)])
    text = shown.getvalue()
    assert f"\n{SENTENCE}\n" in text and "70.0 ± 5.7 ↓" in text
    assert "│ linear probe" not in text, "seeds are counted of models alone"
    shown.seek(0), shown.truncate(0)
    for seed, accuracy in enumerate((0.76, 0.84)):
        keep_predictions(Path("artifacts") / f"multi{seed}", MOOD, accuracy)
    studies.show_study([run_of(0.76, 0), run_of(0.84, 1)])
    assert "↓" not in shown.getvalue() and "frozen" not in shown.getvalue()
