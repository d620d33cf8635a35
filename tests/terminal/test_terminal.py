"""The terminal shows tables that add up, texts as they are, and progress that fits a file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from understill import terminal
from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.estimate import Estimate
from understill.events import (
    Augmenting,
    Chosen,
    Evaluated,
    Event,
    Examined,
    Fitted,
    Reading,
    Report,
    Resumed,
    Scored,
    Teaching,
    Tokenising,
    Turn,
    Waiting,
)
from understill.models.assets import AssetStatus
from understill.numbers import duration
from understill.pipeline import Run, TrainedModel, make_study, teach
from understill.recipe import Recipe
from understill.runtime.answers import Answer
from understill.tasks import GLUE, Task

MOOD = Task("mood", "classification", ("message",), "label", ("calm", "upset"), metrics=("accuracy", "f1"))
SIMILAR = Task("similar", "regression", ("first", "second"), "label", range=(0.0, 5.0), metrics=("pearson",))
TASKS = {"mood": MOOD, "similar": SIMILAR}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, from a console of known width."""
    text = io.StringIO()
    monkeypatch.setattr(terminal.console, "out", Console(file=text, width=200, **terminal.console.PLAIN))
    return text


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is told while something happens, into a file 40 columns wide."""
    text = io.StringIO()
    monkeypatch.setattr(terminal.console, "err", Console(file=text, width=40, **terminal.console.PLAIN))
    return text


def rows(text: io.StringIO) -> list[list[str]]:
    """The cells of every row of a table."""
    lines = [line for line in text.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"), (0.4, "0 s"), (89.4, "89 s"), (90, "1 min 30 s"), (125, "2 min 05 s"), (3600, "60 min 00 s"),
        (5399, "89 min 59 s"), (5400, "1 h 30 min"), (86_460, "24 h 01 min"),
    ],
)  # fmt: skip
def test_times_are_put_into_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# Scores --------------------------------------------------------------------------------------------------------------


def test_scores_have_a_row_for_each_metric_and_a_mean_of_the_first_ones(shown: io.StringIO) -> None:
    majority = {"mood/dev": {"accuracy": 0.5, "f1": 0.0}, "similar/dev": {"pearson": 0.0}}
    model = {"mood/dev": {"accuracy": 0.9, "f1": 0.8}, "similar/dev": {"pearson": 0.7}}
    terminal.show_scores({"majority": majority, "multi": model}, TASKS)
    assert rows(shown) == [
        ["mood", "accuracy", "50.0", "90.0"],
        ["mood", "f1", "0.0", "80.0"],
        ["similar", "pearson", "0.0", "70.0"],
        ["mean", "first of each", "25.0", "80.0"],
    ]


def test_the_scores_of_one_task_have_no_mean_however_many_tasks_the_recipe_has(shown: io.StringIO) -> None:
    terminal.show_scores({"mood": {"mood/dev": {"accuracy": 0.9, "f1": 0.8}}}, TASKS)
    assert [row[0] for row in rows(shown)] == ["mood", "mood"]


def test_what_a_column_lacks_is_a_dash_and_so_is_its_mean(shown: io.StringIO) -> None:
    whole = {"mood/dev": {"accuracy": 0.5, "f1": 0.4}, "similar/dev": {"pearson": 0.1}}
    terminal.show_scores({"whole": whole, "part": {"mood/dev": {"accuracy": 0.9}}}, TASKS)
    assert [row[3] for row in rows(shown)] == ["90.0", "–", "–", "–"]
    assert rows(shown)[-1][2] == "30.0"


def test_second_dev_sets_and_diagnostic_sets_are_shown_but_not_in_the_mean(shown: io.StringIO) -> None:
    tasks = {name: GLUE[name].task for name in ("mnli", "rte", "ax")}
    scores = {
        "mnli/dev": {"accuracy": 0.8},
        "mnli/dev_mismatched": {"accuracy": 0.1},
        "rte/dev": {"accuracy": 0.6},
        "ax/dev": {"matthews": 0.2, "accuracy": 0.3},
    }
    terminal.show_scores({"multi": scores}, tasks)
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
    terminal.show_run(Run(Path("runs/first"), models, {"mood/dev": {"accuracy": 0.5, "f1": 0.1}}, {}, {}, TASKS))
    assert rows(shown)[-1] == ["mean", "first of each", "–", "70.0"]
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
    terminal.show_run(Run(Path("runs/kd"), models, majority, one, {"a": one, "b": one}, TASKS))
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


# Texts as they are ---------------------------------------------------------------------------------------------------


def test_texts_and_labels_are_shown_as_they_are(shown: io.StringIO) -> None:
    odd = "[red]not markup[/] [/oops] :smile: \\[x]"
    terminal.say(odd)
    terminal.show_tasks({"own": [Task("mine", "classification", ("t",), "l", ("[/a]", ":b:"))]})
    terminal.show_answers([odd], ["[two]"], {"mine": [Answer("[/a]", {"[/a]": 0.75, ":b:": 0.25})]})
    lines = shown.getvalue().splitlines()
    assert lines[0] == odd
    assert rows(shown)[0][3] == "[/a], :b:"
    assert lines[-2:] == [f"{odd} | [two]", "  mine: [/a] (75%), :b: 25%"]


def test_long_lines_are_not_broken(shown: io.StringIO) -> None:
    terminal.say("word " * 100)
    terminal.show_yaml("a: " + "b " * 100)
    assert len(shown.getvalue().splitlines()) == 2


def test_a_score_has_two_digits(shown: io.StringIO) -> None:
    terminal.show_answers(["a"], ["b"], {"similar": [Answer(score=3.14159)]})
    assert shown.getvalue() == "a | b\n  similar: 3.14\n"


# Data and plans ------------------------------------------------------------------------------------------------------


def loaded(task: Task, **counts: int) -> LoadedTask:
    splits = {
        split: TaskData(task, split, Path("x"), "f", count, 2 if split == "train" else 0)
        for split, count in counts.items()
    }
    return LoadedTask(task, splits, {"dev": 3})


def test_data_is_shown_with_rows_and_what_is_odd_about_them(shown: io.StringIO) -> None:
    terminal.show_data({"mood": loaded(MOOD, train=1200, dev=30)}, 0)
    (row,) = rows(shown)
    assert row[:4] == ["mood", "classification", "message", "calm, upset"]
    assert row[4] == "train 1,200, dev 30"
    assert row[5] == "3 rows of dev are in train; 2 rows of train left out"


def test_many_labels_are_counted(shown: io.StringIO) -> None:
    many = Task("many", "classification", ("t",), "l", tuple(f"l{number}" for number in range(20)))
    terminal.show_tasks({"own": [many, SIMILAR]})
    assert rows(shown)[0][3] == "l0, l1, l2, l3, l4, l5, … (20)"
    assert rows(shown)[1][3] == "0 to 5"


def test_a_plan_says_what_would_run_and_how_long(make_tiny: Callable[..., Recipe], shown: io.StringIO) -> None:
    recipe = make_tiny(tasks=["mood", "similar"], models="each")
    plan = make_study(recipe).plan
    teach(plan, plan.models[:1])
    study = make_study(recipe)
    terminal.show_plan(study, {"similar": Estimate(1234, 32.0, 125.0)})
    stages = [
        ["tokenise", "mood", "", "done", "", ""],
        ["train", "mood", "mood", "done", "", ""],
        ["evaluate", "mood", "", "done", "", ""],
        ["tokenise", "similar", "", "to be made", "", ""],
        ["train", "similar", "similar", "to be trained", "1,234", "2 min 05 s"],
        ["evaluate", "similar", "", "to be scored", "", ""],
    ]
    assert rows(shown)[2:8] == stages and rows(shown)[8][0] == "probe"
    said = "recipe and data are fine; training would take about 2 min 05 s here"
    assert shown.getvalue().endswith(f"{said} (reckoned from sizes; --time takes real steps)\n")
    assert "┃ about" in shown.getvalue()
    terminal.show_plan(study, {"similar": Estimate(1234, 32.0, 125.0, timed=True)})
    assert shown.getvalue().endswith(f"{said} (timed by real steps of each model)\n")
    assert "┃ timed" in shown.getvalue()
    terminal.show_plan(study, {})
    assert shown.getvalue().endswith("nothing is left to train\n")
    terminal.show_plan(study)
    table = shown.getvalue()[shown.getvalue().rindex("stages") :]
    assert re.search(rf"│ train +│ similar +│ similar +│ to be trained +│ {plan.models[1].folder.name} ", table)
    assert table.endswith("nothing was run; 1 of 2 models are to be trained\n")


def test_a_checked_recipe_says_what_its_model_can_be_exported_to(
    make_tiny: Callable[..., Recipe], shown: io.StringIO
) -> None:
    plain = "export --to onnx: all tasks\nexport --to int8: all tasks\n"
    for changes, said in (
        ({}, "mood, follows, similar, for transformers.pipeline()"),
        ({"encoder": {"pooling": "mean"}}, "mood, follows, similar, for sentence-transformers"),
        (
            {"heads": {"pairs": "siamese"}},
            "mood, for transformers.pipeline(); not follows, which reads its texts apart, "
            "nor similar, which reads its texts apart",
        ),
        ({"encoder": {"name": "static"}}, "no task, since it has no classifier for a network over words"),
    ):
        shown.truncate(0)
        terminal.show_plan(make_study(make_tiny(**changes)), {})
        assert f"export --to huggingface: {said}\n{plain}" in shown.getvalue()


def test_counts_say_what_is_complete(shown: io.StringIO) -> None:
    terminal.show_counts([("rte", "train", 2490, 2490), ("rte", "dev", 3, 277), ("qqp", "dev", 0, 40430)])
    assert [row[2:] for row in rows(shown)] == [
        ["2,490", "2,490", "complete"],
        ["3", "277", "differs"],
        ["0", "40,430", "missing"],
    ]


def test_assets_are_shown_with_the_line_that_installs_them(shown: io.StringIO) -> None:
    here = AssetStatus("one", "an encoder", 83_400_000, True, Path("here"), "pip install one")
    away = AssetStatus("two", "another", 1_000_000, False, None, "pip install two")
    terminal.show_assets([here, away])
    assert shown.getvalue() == (
        "one: an encoder (83 MB)\n  installed: here\ntwo: another (1 MB)\n  not installed: pip install two\n"
    )


# Progress ------------------------------------------------------------------------------------------------------------


def report(step: int) -> Report:
    parts = {name: 0.5 for name in ("mood", "similar")}
    return Report(step, 100, 0.1, 0.6931, parts, 1e-4, 1234.0, 95.0, 0.125, 8)


def test_progress_in_a_file_is_a_line_now_and_then(told: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(terminal.progress.time, "monotonic", lambda: now)
    with terminal.LiveProgress() as watch:
        for step in range(1, 101):
            now += 0.5
            watch(report(step))
    lines = told.getvalue().splitlines()
    assert len(lines) == 3  # 50 seconds, and more than 15 between two of them
    assert all(line.startswith("training") for line in lines)


def test_what_is_over_at_once_says_nothing(told: io.StringIO) -> None:
    with terminal.LiveProgress() as watch:
        watch(Reading("mood/train", 8192))
        watch(Augmenting("mood", "tagging", 10, 20))
        watch(Tokenising("mood/train", 10, 20))
        watch(report(1))
    assert told.getvalue() == ""


def test_a_long_line_of_progress_stays_one_line(told: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.progress, "QUIET", -1.0)
    with terminal.LiveProgress() as watch:
        watch(Teaching("[multi]", "new"))
        watch(report(7))
        watch(Reading("mood/train", 8192))
    assert told.getvalue().splitlines() == [
        "training [multi]",
        "training [multi]: 7/100 loss 0.693 mood 0.500 similar 0.500 · 1,234 rows/s · padding 12% · 1 min 35 s left",
        "reading mood/train: 8,192",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Teaching("multi", "new"), "training multi"),
        (Teaching("multi", "done"), "already trained: multi"),
        (Waiting("multi"), "another process is making multi; waiting for it"),
        (Examined("large", "mood", 0.9123, ""), "  teacher large of mood: dev 91.2"),
        (Examined("large", "mood", 0.5, "no better"), "  teacher large of mood: dev 50.0 (weak)"),
        (Examined("file", "mood", None, ""), "  teacher file of mood: not scored"),
        (Chosen(("a", "b"), 6), "the best of 6 candidates teach: a, b"),
        (Evaluated(3, 0.876, {}, True), "  step 3: dev mean 87.6 (best so far)"),
        (Evaluated(3, 0.876, {}, False), "  step 3: dev mean 87.6"),
        (Fitted(6, 9, 3, [], 1.0), "  stopped at step 6 of 9: the dev score no longer rises"),
    ],
)
def test_what_happens_is_told_at_once(told: io.StringIO, event: Any, line: str) -> None:
    with terminal.LiveProgress() as watch:
        watch(event)
        watch(Scored("multi", {}))
    assert told.getvalue() == f"{line}\n"


def test_going_on_names_the_model_and_the_step(told: io.StringIO) -> None:
    with terminal.LiveProgress() as watch:
        watch(Teaching("student", "resumed"))
        watch(Turn("student"))
        watch(Resumed(1240, 9000))
    assert told.getvalue() == "student: going on from step 1,240 of 9,000\n"


def test_no_time_is_given_before_it_is_known(told: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.progress, "QUIET", -1.0)
    with terminal.LiveProgress() as watch:
        watch(replace(report(1), seconds_left=None))
    assert told.getvalue().endswith("rows/s · padding 12%\n")


def test_training_to_the_end_needs_no_word(told: io.StringIO) -> None:
    with terminal.LiveProgress() as watch:
        watch(Fitted(9, 9, 3, [], 1.0))
    assert told.getvalue() == ""


def test_every_event_has_its_way_of_being_shown_and_a_strange_one_is_passed_over(told: io.StringIO) -> None:
    handlers = vars(terminal.LiveProgress)["watch"].dispatcher.registry
    assert set(get_args(Event)) <= set(handlers)
    with terminal.LiveProgress() as watch:
        watch(object())  # type: ignore[arg-type]
    assert told.getvalue() == ""


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=True, color_system=None, **terminal.console.PLAIN)
    monkeypatch.setattr(terminal.console, "err", console)
    with terminal.LiveProgress() as watch:
        watch(Teaching("multi", "new"))
        watch(report(7))
        watch(Reading("[b]", 3))
        watch(Scored("multi", {}))
    assert "training multi\n" in text.getvalue()
    with terminal.counter("predicting [a].csv") as count:
        count(5)
        count(6)
    assert "predicting [a].csv" in text.getvalue()
    assert "11 rows" in text.getvalue()
