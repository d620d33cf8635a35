"""A teacher that is one file elsewhere is examined, labels rows, teaches a student, and is told of in the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from plugins import keywords
from understill import pipeline
from understill.cli import main
from understill.errors import RecipeError, UserError
from understill.events import Examined, TrainingState
from understill.pipeline.soft_targets import read_labels
from understill.plugins import TEACHERS
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.sections import sections
from understill.teachers import digest_teacher

TROUBLES = {"billing": "I was charged twice", "delivery": "the parcel never came", "access": "my account is locked"}
WORDS = {"billing": ["charged"], "delivery": ["parcel"], "access": ["account", "locked"]}
KEYWORDS = {"type": "keywords", "words": WORDS}


def write_rows(path: Path, count: int) -> str:
    labels = list(TROUBLES)
    rows = [(f"{number} {TROUBLES[labels[number % 3]]} {path.stem}", labels[number % 3]) for number in range(count)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("message", "queue"), *rows, (f"hello {path.stem}", "access")])
    return str(path)


@pytest.fixture
def values(recipe_values: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """A recipe whose only teacher is the plug-in, registered from Python."""
    TEACHERS.register("keywords")(keywords.Keywords)
    files = {"train": write_rows(tmp_path / "train.csv", 48), "dev": write_rows(tmp_path / "dev.csv", 30)}
    task = {**files, "text": "message", "label": "queue"}
    return {**recipe_values, "tasks": {"queue": task}, "teachers": [KEYWORDS]}


def test_it_is_examined_labels_rows_and_teaches_a_student_that_is_reported(values: dict[str, Any]) -> None:
    events: list[Any] = []
    run = pipeline.run(make_recipe(values), events.append)
    (examined,) = [event for event in events if isinstance(event, Examined)]
    assert (examined.teacher, examined.score, examined.fault) == ("teacher", 1.0, ""), (
        "its rule is right wherever it speaks"
    )
    assert [model.name for model in run.models] == ["baseline", "student"]
    assert run.teachers["queue/dev"]["accuracy"] == 1.0
    plan = pipeline.make_plan(make_recipe(values))
    (targets,) = plan.targets
    table = read_labels(plan, targets)
    gold = np.array([["billing", "delivery", "access"][number % 3] for number in range(48)])
    names = np.array(plan.loaded["queue"].task.labels)
    assert (names[table.logits[0, :48].argmax(axis=1)] == gold).all()
    assert np.isnan(table.logits[0, 48]).all(), "of a row without its words it says nothing"
    page = to_html("", sections(build(run.folder, make_recipe(values), timing=False)))
    assert "words counted for billing, delivery, access" in page


def test_a_second_run_asks_nobody_and_other_words_or_another_source_ask_again(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(values)
    pipeline.run(recipe)
    events: list[Any] = []
    pipeline.run(recipe, events.append)
    assert not any(isinstance(event, Examined) for event in events)
    assert {event.state for event in events if isinstance(event, TrainingState)} == {"done"}
    digests = [digest_teacher(recipe.teachers[0], recipe)]
    other = make_recipe({**values, "teachers": [{**KEYWORDS, "weight": 3.0}]})
    digests.append(digest_teacher(other.teachers[0], other))
    renamed = make_recipe({**values, "teachers": [{**KEYWORDS, "name": "rule", "tasks": ["queue"]}]})
    assert digest_teacher(renamed.teachers[0], renamed) == digests[0], "names decide nothing"
    copied = tmp_path / "keywords.py"
    copied.write_text(Path(keywords.__file__).read_text() + "\n# changed\n")
    monkeypatch.setattr("inspect.getsourcefile", lambda thing: str(copied))
    digests.append(digest_teacher(recipe.teachers[0], recipe))
    assert len(set(digests)) == 3


def test_it_comes_from_an_installed_package_too_whose_version_counts(
    values: dict[str, Any], install: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(TEACHERS, "counting", "plugins.keywords:Keywords", "2.1")
    values["teachers"] = [{**KEYWORDS, "type": "counting"}]
    assert TEACHERS.facts("counting") == {"plugin": "counting", "package": "counting-plugin", "version": "2.1"}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit) as done:
        main(["run", str(path)])
    folder = Path(values["output"]["folder"]) / "tiny"
    assert (done.value.code, json.loads((folder / "run.json").read_text())["state"]) == (0, "done")
    assert load_recipe(folder / "recipe.yaml").teachers[0].type == "counting"
    capsys.readouterr()


def test_a_recipe_with_it_is_written_and_read_again(values: dict[str, Any]) -> None:
    recipe = make_recipe(values)
    again = make_recipe(yaml.safe_load(recipe.to_yaml()))
    assert again == recipe and isinstance(again.teachers[0], keywords.Keywords.Spec)


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        ({"type": "keyword", "words": WORDS}, 'teachers.0.type: there is no type of teacher "keyword" → did you mean'),
        ({"type": "keywords"}, "teachers.0.words is missing"),
        (
            {"type": "keywords", "wrods": {}, "words": {}},
            'teachers.0.wrods: there is no such key → did you mean "words"?',
        ),
        ({"type": "keywords", "words": WORDS, "folds": 3}, "teachers.0.folds: there is no such key"),
        ({"type": "keywords", "words": WORDS, "grid": {"a": [1]}}, "teachers.0.grid: there is no such key"),
        ({"type": "keywords", "words": WORDS, "tasks": ["queu"]}, 'there is no task "queu" → did you mean "queue"?'),
        ({"type": ["keywords"]}, "teachers.0.type: a list is no type of teacher"),
        ({"type": "checkpoint"}, "teachers.0.checkpoint is missing"),
    ],
)
def test_what_is_wrong_with_its_part_of_the_recipe_is_said_as_of_any_other(
    values: dict[str, Any], teacher: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError) as error:
        make_recipe({**values, "teachers": [teacher]})
    assert words in str(error.value)


def test_a_plug_in_that_is_broken_harms_only_who_names_it(values: dict[str, Any], install: Callable[..., None]) -> None:
    install(TEACHERS, "broken", "no_such_module:Teacher")
    install(TEACHERS, "empty", "plugins.letters:letters")
    assert make_recipe({**values, "teachers": [{"tasks": "each"}]}).teachers[0].trained
    for name, words in (("broken", "No module named 'no_such_module'"), ("empty", "has no Spec that is a TeacherSpec")):
        with pytest.raises(RecipeError) as error:
            make_recipe({**values, "teachers": [{"type": name}]})
        assert f'teacher "{name}"' in str(error.value) and words in str(error.value)


def test_what_understill_brings_cannot_be_replaced() -> None:
    for name in ("trained", "checkpoint", "predictions"):
        with pytest.raises(UserError, match=f'understill has a type of teacher "{name}" of its own'):
            TEACHERS.register(name)(keywords.Keywords)


def test_types_are_told_by_type_or_by_their_keys(make_tiny: Callable[..., Recipe]) -> None:
    written = [
        {"type": "trained", "tasks": "each", "checkpoint": None, "predictions": [], "values": "auto"},
        {"checkpoint": "./there", "seeds": [], "models": "each"},
        {"type": "predictions", "predictions": "said.csv"},
    ]
    recipe = make_tiny(teachers=written)
    assert [teacher.type for teacher in recipe.teachers] == ["trained", "checkpoint", "predictions"]
    again = make_recipe(yaml.safe_load(recipe.to_yaml()))
    assert again == recipe
    changed = yaml.safe_load(recipe.to_yaml())
    changed["teachers"][0]["checkpoint"] = "./other"  # a copy is changed into another type by its key
    assert make_recipe(changed).teachers[0].type == "checkpoint"
