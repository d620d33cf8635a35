"""A prompt says what is asked, what may be answered, and the text last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import ANSWER, MOOD, STARS, TOPIC
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.recipe import make_recipe
from understill.recipe.schema import LlmServer
from understill.tasks import Task
from understill.teachers.llm.prompts import TEMPLATE, Prompt, make_prompt

Stand = Callable[..., TaskData]


def prompt_of(task: Task, data: TaskData, template: str = TEMPLATE, **settings: Any) -> Prompt:
    return make_prompt(task, LlmServer(endpoint="http://x/v1", model="m", **settings), template, None, {}, data)


def test_labels_stand_for_themselves_or_have_letters(stand: Stand) -> None:
    data = stand(MOOD, ["x"])
    plain = prompt_of(MOOD, data)(["It came."])
    assert plain == (
        "Which option describes the text best?\n\ncalm\nupset\n\nAnswer with the option only.\n\n"
        "text: It came.\nAnswer:"
    )
    assert "A. calm\nB. upset\n\nAnswer with the letter only." in prompt_of(MOOD, data, options="letters")(["x"])
    assert "1. calm\n2. upset\n\nAnswer with the number only." in prompt_of(MOOD, data, options="numbers")(["x"])


def test_pairs_scores_and_rankings_are_asked_for_in_their_own_way(stand: Stand) -> None:
    pair = prompt_of(TOPIC, stand(TOPIC, [("a", "b")]))(["first", "second"])
    assert "describes the two texts best" in pair and "one: first\ntwo: second\nAnswer:" in pair
    stars = prompt_of(STARS, stand(STARS, ["x"]))
    assert stars.names == tuple("12345") and "1 is lowest, 5 is highest" in stars(["x"])
    ranking = prompt_of(ANSWER, stand(ANSWER, [("q", "a")]))
    assert ranking.choices == ("no", "yes") and "right answer to the first" in ranking(["q", "a"])


def test_choices_become_what_a_teacher_gives() -> None:
    half = np.log([[0.5, 0.25, 0.125, 0.0625, 0.0625]])
    assert STARS.kind.from_choices(STARS, half) == pytest.approx(np.array([[1.9375]]))
    assert ANSWER.kind.from_choices(ANSWER, np.log([[0.2, 0.8]])) == pytest.approx(np.array([[np.log(4)]]))
    odd = Task("odd", "regression", ("text",), "label", range=(-1.0, 1.0))
    assert odd.kind.choices(odd) == tuple("0123456789")
    assert odd.kind.from_choices(odd, np.log(np.full((1, 10), 0.1))) == pytest.approx(np.zeros((1, 1)), abs=1e-9)


def test_examples_are_drawn_by_a_seed_and_show_every_label(stand: Stand) -> None:
    texts, gold = [f"row {number}" for number in range(30)], ["calm" if number % 5 else "upset" for number in range(30)]
    data = stand(MOOD, texts, gold)
    examples = prompt_of(MOOD, data, examples=4, seed=1).examples
    assert sorted(place for _, place in examples) == [0, 0, 1, 1]
    assert examples == prompt_of(MOOD, data, examples=4, seed=1).examples != prompt_of(MOOD, data, examples=4).examples
    for (text,), place in examples:
        assert gold[texts.index(text)] == MOOD.labels[place]
    shown = prompt_of(MOOD, data, examples=2)(["last"])
    assert shown.count("Answer: ") == 2 and shown.endswith("text: last\nAnswer:")


def test_a_template_of_ones_own_is_filled_and_braces_of_texts_are_only_braces(stand: Stand) -> None:
    mine = prompt_of(MOOD, stand(MOOD, ["x"]), '{"json": 1} {question} -> {text}!')(["{options} {text}"])
    assert mine == '{"json": 1} Which option describes the text best? -> text: {options} {text}!'
    with pytest.raises(UserError, match=r"has no \{text\}"):
        prompt_of(MOOD, stand(MOOD, ["x"]), "What?")


@pytest.mark.parametrize(
    ("labels", "tokens"), [(("negative", "positive"), 1), (("refund", "repair", "login"), 3), (("spam", "spam!"), 5)]
)
def test_as_many_tokens_are_asked_for_as_tell_labels_apart(stand: Stand, labels: tuple[str, ...], tokens: int) -> None:
    task = Task("t", "classification", ("text",), "label", labels)
    assert prompt_of(task, stand(task, ["x"])).decisive == tokens


def test_labels_that_differ_in_case_alone_need_letters(stand: Stand) -> None:
    task = Task("t", "classification", ("text",), "label", ("US", "us"))
    with pytest.raises(UserError, match="differ in case alone → write options: letters"):
        prompt_of(task, stand(task, ["x"]))
    assert prompt_of(task, stand(task, ["x"]), options="letters").names == ("A", "B")


@pytest.mark.parametrize(
    ("llm", "message"),
    [
        ({"rounds": 3}, "rows are chosen within a budget → add budget: 2000"),
        ({"choose": "uncertainty", "budget": 10}, "write rounds: 4"),
        ({"max_cost": 1.0}, "add prices"),
        ({"endpoint": "localhost:8080"}, "this is no address → write it as in http://localhost:8080/v1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(llm: dict[str, Any], message: str) -> None:
    teacher = {"llm": {"endpoint": "http://x/v1", "model": "m", **llm}}
    with pytest.raises(UserError, match=message):
        make_recipe({"data": {"demo": True}, "tasks": ["mood"], "teachers": [teacher]})


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({}, "it does not say which there are → write labels:"),
        ({"kind": "regression"}, r"write range: \[0, 5\]"),
        ({"labels": {"a": "x", "b": "y"}, "dev": "d.csv"}, "name their column: label: label"),
        ({"labels": ["a", "b"], "descriptions": {"c": "?"}}, '"c" is no label of this task'),
    ],
)
def test_a_task_without_labelled_rows_says_what_it_lacks(task: dict[str, Any], message: str) -> None:
    values = {"text": "t", "unlabelled": "u.csv", **task}
    teachers = [{"llm": {"endpoint": "http://x/v1", "model": "m"}}]
    with pytest.raises(UserError, match=message):
        make_recipe({"tasks": {"mine": values}, "teachers": teachers})


def test_a_task_without_labelled_rows_needs_a_language_model() -> None:
    task = {"text": "t", "unlabelled": "u.csv", "labels": ["a", "b"]}
    with pytest.raises(UserError, match="no language model gives any"):
        make_recipe({"tasks": {"mine": task}, "teachers": [{"encoder": "minilm"}]})
