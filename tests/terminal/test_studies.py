"""The tables of a study add up, say how sure they are, and fit on 80 columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers import keep_predictions
from understill.evaluate.significance import holm
from understill.pipeline import Run, TrainedModel, conclude
from understill.recipe import Cell, make_recipe
from understill.tasks import Task
from understill.terminal import console, scores, studies

MOOD = Task("mood", "classification", ("message",), "label", ("calm", "upset"), metrics=("accuracy", "f1"))
SIMILAR = Task("similar", "regression", ("first", "second"), "label", range=(0.0, 5.0), metrics=("pearson",))
TASKS = {"mood": MOOD, "similar": SIMILAR}
MAJORITY = {"mood/dev": {"accuracy": 0.5, "f1": 0.0}, "similar/dev": {"pearson": 0.0}}
TEACHERS = {"mood/dev": {"accuracy": 0.95, "f1": 0.9}, "similar/dev": {"pearson": 0.85}}
RECIPE = make_recipe({"tasks": ["mood", "similar"]})


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, on 80 columns."""
    text = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=text, width=80, **console.PLAIN))
    return text


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and models have relative paths here."""
    monkeypatch.chdir(tmp_path)


def some_run(cell: Cell, number: int, baseline: float, student: float, tasks: Mapping[str, Task] = TASKS) -> Run:
    """A run whose student has an accuracy, and a correlation ten points below it."""

    def model(role: Any, score: float, name: str) -> TrainedModel:
        classes = {"accuracy": score, "f1": score - 0.2}
        scores = {"mood/dev": classes, "queue/dev": classes, "similar/dev": {"pearson": score - 0.1}}
        mine = {f"{task}/dev": scores[f"{task}/dev"] for task in tasks}
        for task in tasks.values():
            keep_predictions(Path("artifacts") / name, task, score if task.labels else score - 0.1)
        return TrainedModel(role, role, Path("artifacts") / name / "model", mine, [], 60.0)

    models = (
        model("teacher", 0.95, "teacher"),
        model("baseline", baseline, f"baseline{cell.seed}"),
        model("student", student, f"student{cell.variant}{cell.seed}"),
    )
    folder = Path("runs/st") if not number else Path("runs/st/cells") / cell.name
    return Run(folder, models, MAJORITY, TEACHERS, {}, tasks, "teachers", cell)


def runs_of(
    scores: Mapping[str, Sequence[float]], levels: Mapping[str, Mapping[str, str]] | None = None, **more: Any
) -> list[Run]:
    """The runs of variants, by the accuracies of their seeds."""
    cells = [
        (Cell(variant, (levels or {}).get(variant, {}), seed, RECIPE), score)
        for variant, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return [some_run(cell, number, 0.7 + cell.seed / 100, score, **more) for number, (cell, score) in enumerate(cells)]


def fits(text: io.StringIO) -> bool:
    return all(len(line) <= 80 for line in text.getvalue().splitlines() if line[:1] in "┏┃┡│├└")


def without_sentences(text: io.StringIO) -> str:
    return "\n".join(line for line in text.getvalue().splitlines() if line[:1] in "│├")


def test_seeds_have_their_mean_spread_median_and_interval(shown: io.StringIO) -> None:
    studies.show_study(runs_of({"": [0.80, 0.82, 0.87]}))
    assert fits(shown)
    assert (
        without_sentences(shown)
        == """\
│ mood    │ accuracy │     50.0 │     95.0 │ 71.0 ± 1.0 │ 83.0 ± 3.6 │
│ mood    │ f1       │      0.0 │     90.0 │ 51.0 ± 1.0 │ 63.0 ± 3.6 │
│ similar │ pearson  │      0.0 │     85.0 │ 61.0 ± 1.0 │ 73.0 ± 3.6 │
│ teachers │   90.0 │  90.0 │         – │             – │     1 │
│ baseline │   66.0 │  66.0 │       1.0 │  63.4 to 68.6 │     3 │
│ student  │   77.0 │  78.0 │       3.6 │  69.0 to 87.0 │     3 │"""
    )
    message = " ".join(shown.getvalue().split())
    assert "On the mean of 2 tasks the student is better than the baseline: +12.0 (95 % interval +" in message
    assert "This generalises to other seeds of the same recipes, and to other rows like these." in message
    assert message.endswith("run folder: runs/st")


def test_ablations_are_shown_by_their_distance_from_the_recipe_as_it_is(shown: io.StringIO) -> None:
    seeds = {"": [0.80, 0.82, 0.84], "lambda_0": [0.70, 0.71, 0.75], "proportional_sampling": [0.81, 0.82, 0.83]}
    studies.show_study(runs_of(seeds))
    assert fits(shown)
    assert (
        without_sentences(shown).partition("│     3 │\n│ student")[2].partition("\n")[2]
        == """\
│ mood    │ 82.0 ± 2.0 │         −10.0 │                  +0.0 │
│ similar │ 72.0 ± 2.0 │         −10.0 │                  +0.0 │
├─────────┼────────────┼───────────────┼───────────────────────┤
│ mean    │ 77.0 ± 2.0 │         −10.0 │                  +0.0 │
│ 95 %    │            │ −15.4 to −4.6 │          −4.4 to +4.4 │
│ p       │            │       < 0.001 │                 1.000 │
│ p, Holm │            │         0.001 │                 1.000 │"""
    )
    assert "intervals and p are over rows and seeds; Holm corrects for 2 variants" in shown.getvalue()


def test_many_variants_come_in_tables_of_four(shown: io.StringIO) -> None:
    names = [f"without_part_{number}" for number in range(6)]
    studies.show_study(runs_of({"": [0.8, 0.9], **{name: [0.7, 0.8] for name in names}}))
    assert fits(shown)
    assert shown.getvalue().count("student: difference from the unchanged recipe") == 2
    assert shown.getvalue().count("unchanged ┃") == 2


def test_one_seed_each_shows_the_distance_and_claims_nothing(shown: io.StringIO) -> None:
    studies.show_study(runs_of({"": [0.8], "half": [0.9]}))
    message = shown.getvalue()
    assert "one seed each: nothing can be claimed of other seeds → run it with --seeds 3 or more" in message
    assert "+10.0" in message
    assert "±" not in message and "p, Holm" not in message


LEVELS = {
    f"{labels}-{augmentation}": {"labels": labels, "augmentation": augmentation}
    for labels in ("hard", "soft")
    for augmentation in ("without", "with")
}


def test_factors_have_their_effects_and_what_they_do_together(shown: io.StringIO) -> None:
    base = {"hard-without": 0.80, "hard-with": 0.82, "soft-without": 0.84, "soft-with": 0.90}
    scores = {name: [score - 0.01, score, score + 0.01] for name, score in base.items()}
    studies.show_study(runs_of(scores, LEVELS, tasks={"mood": MOOD}))
    assert fits(shown)
    assert (
        without_sentences(shown)
        == """\
│ hard   │ without      │ 80.0 ± 1.0 │
│ hard   │ with         │ 82.0 ± 1.0 │
│ soft   │ without      │ 84.0 ± 1.0 │
│ soft   │ with         │ 90.0 ± 1.0 │
│ mood │ labels                │   +6.0 │  +4.7 to +7.3 │ < 0.001 │
│      │ augmentation          │   +4.0 │  +2.7 to +5.3 │ < 0.001 │
│      │ labels × augmentation │   +4.0 │  +1.3 to +6.7 │   0.009 │"""
    )
    message = shown.getvalue()
    assert "points of soft against hard labels; of with against without augmentation" in message
    assert "mood of others: majority 50.0, teachers 95.0, baseline 71.0 ± 1.0" in message


def test_every_level_beyond_the_first_is_set_against_it(shown: io.StringIO) -> None:
    levels = {name: {"labels": name} for name in ("hard", "soft", "both")}
    studies.show_study(runs_of({"hard": [0.8, 0.81], "soft": [0.9, 0.91], "both": [0.7, 0.71]}, levels))
    assert fits(shown)
    message = shown.getvalue()
    assert "points of soft and both against hard labels" in message
    assert [line.split("│")[2].strip() for line in message.splitlines() if "labels: " in line] == [
        "labels: soft",
        "labels: both",
    ] * 3
    assert "Mann-Whitney" not in message, "whose test is not made of factors"


def test_a_single_run_is_shown_as_ever(shown: io.StringIO) -> None:
    (run,) = runs_of({"": [0.8]})
    studies.show_study([run])
    first = shown.getvalue()
    shown.truncate(0), shown.seek(0)
    scores.show_run(run)
    assert shown.getvalue() == first


def test_tasks_that_a_variant_does_not_have_are_left_out_of_its_distance() -> None:
    runs = [*runs_of({"": [0.8, 0.9]}), *runs_of({"alone": [0.7, 0.8]}, tasks={"mood": MOOD})]
    deltas = conclude(runs).deltas["student"]["alone"]
    assert list(deltas) == ["mood"]
    assert deltas["mood"].difference.delta == pytest.approx(-0.1)


def test_a_mean_of_other_tasks_and_another_metric_are_no_distance() -> None:
    """Two of three tasks have no mean beside that of three, and accuracy is not compared with F1."""
    usual = runs_of({"": [0.8, 0.9]}, tasks={**TASKS, "queue": replace(MOOD, name="queue", head="queue")})
    turned = {**TASKS, "mood": replace(MOOD, metrics=("f1", "accuracy"))}
    fewer, other = runs_of({"fewer": [0.7, 0.8]}), runs_of({"other": [0.7, 0.8]}, tasks=turned)
    deltas = conclude([*usual, *fewer, *other]).deltas["student"]
    assert {name: list(rows) for name, rows in deltas.items()} == {"fewer": ["mood", "similar"], "other": ["similar"]}


def test_a_variant_without_teachers_is_compared_by_its_model() -> None:
    usual, other = runs_of({"": [0.8, 0.9]}), runs_of({"alone": [0.7, 0.6]})
    other = [replace(run, teachers={}, models=(replace(run.models[-1], name="multi", role="model"),)) for run in other]
    findings = conclude([*usual, *other])
    assert findings.deltas["student"]["alone"]["mean"].difference.delta == pytest.approx(-0.2)
    assert findings.summaries["alone"]["student"]["mood"].values == (0.7, 0.6)
    assert findings.summaries["alone"]["baseline"] == {}


def test_errors_are_shown_and_not_compared(shown: io.StringIO) -> None:
    task = Task("similar", "regression", ("first", "second"), "label", range=(0.0, 5.0), metrics=("mse",))
    runs = runs_of({"": [0.8, 0.9], "half": [0.7, 0.8]}, tasks={"similar": task})
    scores = [{"similar/dev": {"mse": 1.0 + number}} for number in range(len(runs))]
    runs = [
        replace(run, majority={}, teachers={}, models=(replace(run.models[-1], scores=mine),))
        for run, mine in zip(runs, scores, strict=True)
    ]
    studies.show_study(runs)
    assert "│ similar │ mse    │        – │ 1.500 ± 0.707 │" in shown.getvalue()
    assert "the first metric of every task is an error, which is not compared" in shown.getvalue()


def test_holm_counts_variants_on_the_mean_and_all_tasks_of_variants_beside_it() -> None:
    scores = {"": [0.5, 0.51, 0.53, 0.52], "a": [0.55, 0.56, 0.57, 0.58], "b": [0.56, 0.57, 0.58, 0.59]}
    deltas = conclude(runs_of(scores)).deltas["student"]
    means, tasks = ({(name, row): deltas[name][row] for name in "ab" for row in rows} for rows in (("mean",), TASKS))
    for family in (means, tasks):
        assert [each.holm for each in family.values()] == holm([each.difference.p for each in family.values()])
