"""Tables of scores add up, and say where the models are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from terminal_cases import TASKS, rows

from understill.pipeline import Run, TrainedModel
from understill.tasks import GLUE
from understill.terminal import scores


def test_scores_have_a_row_for_each_metric_and_a_mean_of_the_first_ones(shown: io.StringIO) -> None:
    majority = {"mood/dev": {"accuracy": 0.5, "f1": 0.0}, "similar/dev": {"pearson": 0.0}}
    model = {"mood/dev": {"accuracy": 0.9, "f1": 0.8}, "similar/dev": {"pearson": 0.7}}
    scores.show_scores({"majority": majority, "multi": model}, TASKS)
    assert rows(shown) == [
        ["mood", "accuracy", "50.0", "90.0"],
        ["mood", "f1", "0.0", "80.0"],
        ["similar", "pearson", "0.0", "70.0"],
        ["mean", "primary metrics", "25.0", "80.0"],
    ]


def test_the_scores_of_one_task_have_no_mean_however_many_tasks_the_recipe_has(shown: io.StringIO) -> None:
    scores.show_scores({"mood": {"mood/dev": {"accuracy": 0.9, "f1": 0.8}}}, TASKS)
    assert [row[0] for row in rows(shown)] == ["mood", "mood"]


def test_what_a_column_lacks_is_a_dash_and_so_is_its_mean(shown: io.StringIO) -> None:
    whole = {"mood/dev": {"accuracy": 0.5, "f1": 0.4}, "similar/dev": {"pearson": 0.1}}
    scores.show_scores({"whole": whole, "part": {"mood/dev": {"accuracy": 0.9}}}, TASKS)
    assert [row[3] for row in rows(shown)] == ["90.0", "–", "–", "–"]
    assert rows(shown)[-1][2] == "30.0"


def test_second_dev_sets_and_diagnostic_sets_are_shown_but_not_in_the_mean(shown: io.StringIO) -> None:
    tasks = {name: GLUE[name].task for name in ("mnli", "rte", "ax")}
    measured = {
        "mnli/dev": {"accuracy": 0.8},
        "mnli/dev_mismatched": {"accuracy": 0.1},
        "rte/dev": {"accuracy": 0.6},
        "ax/dev": {"matthews": 0.2, "accuracy": 0.3},
    }
    scores.show_scores({"multi": measured}, tasks)
    assert [(row[0], row[2]) for row in rows(shown)] == [
        ("mnli", "80.0"),
        ("mnli mismatched", "10.0"),
        ("rte", "60.0"),
        ("ax", "20.0"),
        ("ax", "30.0"),
        ("mean", "70.0"),
    ]


def trained(name: str, **scores: float) -> TrainedModel:
    return TrainedModel(name, "model", Path("runs/models") / name, {f"{name}/dev": scores}, [], 61.0)


def test_a_run_of_single_models_shows_them_in_one_column_and_where_each_is(shown: io.StringIO) -> None:
    models = (trained("mood", accuracy=0.9, f1=0.8), trained("similar", pearson=0.5))
    scores.show_run(Run(Path("runs/first"), models, {"mood/dev": {"accuracy": 0.5, "f1": 0.1}}, {}, {}, TASKS))
    assert rows(shown)[-1] == ["mean", "primary metrics", "–", "70.0"]
    assert "single-task" in shown.getvalue()
    assert "model mood: runs/models/mood  (trained in 61 s)\n" in shown.getvalue()
    assert shown.getvalue().endswith("run folder: runs/first\n")


def test_the_table_shows_members_their_ensemble_and_what_fine_tuning_makes_of_both(shown: io.StringIO) -> None:
    def model(name: str, role: Any, accuracy: float) -> TrainedModel:
        scores = {"mood/dev": {"accuracy": accuracy, "f1": 0.1}}
        return TrainedModel(name, role, Path("runs/models") / name, scores, [], 61.0)

    models = (
        model("a", "teacher", 0.99),  # before its fine-tuning: no column
        model("baseline", "baseline", 0.5),
        model("baseline-finetuned-mood", "finetuned baseline", 0.6),
        model("student", "student", 0.7),
        model("finetuned-mood", "finetuned", 0.9),
    )
    one = {"mood/dev": {"accuracy": 0.8, "f1": 0.1}}
    majority = {**one, "similar/dev": {"pearson": 0.0}}
    scores.show_run(Run(Path("runs/kd"), models, majority, one, {"a": one, "b": one}, TASKS))
    text = shown.getvalue()
    header = next(line for line in text.splitlines() if "majority" in line)
    cells = [cell.strip() for cell in header.strip("┃").split("┃")]
    assert cells[2:] == ["majority", "teachers", "baseline", "finetuned baseline", "student", "finetuned"]
    assert rows(shown)[0][2:] == ["80.0", "80.0", "50.0", "60.0", "70.0", "90.0"]
    models_of = {row[0]: row[1:] for row in rows(shown) if len(row) == 3}
    assert models_of == {
        "a": ["80.0", "80.0"], "b": ["80.0", "80.0"], "majority": ["80.0", "80.0"], "teachers": ["80.0", "80.0"],
        "baseline": ["50.0", "50.0"], "finetuned baseline": ["60.0", "60.0"], "student": ["70.0", "70.0"],
        "finetuned": ["90.0", "90.0"],
    }  # fmt: skip
    assert not any(row[0] == "similar" for row in rows(shown)), "a task that no model of the table answers"
    assert "student against the same student without teachers: +20.0 (on mood)\n" in text
    assert "both fine-tuned on each task: +30.0 (on mood)\n" in text
    assert "fine-tuned student against its teachers: +10.0 (on mood)\n" in text
    assert "baseline-finetuned-mood: runs/models" in text and "\nfinetuned-mood: runs/models" in text
