"""Errors say where, what, and what to write instead, and several come as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from understill.errors import Collector, DataError, Problem, RecipeError, UserError, listed, nearest, no_panic


def test_a_problem_says_where_what_and_what_to_write() -> None:
    assert str(Problem("line 3", "lrr: there is no such key", "lr")) == "line 3: lrr: there is no such key → lr"
    assert str(Problem("a.csv:2", "no text")) == "a.csv:2: no text"


def test_only_the_first_bad_rows_are_shown_and_all_are_counted() -> None:
    problems = [Problem(f"a.csv:{number}", "no text") for number in range(30)]
    lines = str(DataError("1,000 rows cannot be used", problems, 1000)).splitlines()
    assert lines[0] == "1,000 rows cannot be used"
    assert lines[1] == "  a.csv:0: no text"
    assert lines[-1] == "  … and 980 more"
    assert len(lines) == 22


def test_a_recipe_shows_all_of_its_problems() -> None:
    problems = [Problem(f"line {number}", "wrong") for number in range(60)]
    error = RecipeError("my.yaml", problems)
    assert str(error).splitlines()[0] == "my.yaml has 60 problems"
    assert len(str(error).splitlines()) == 61


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("line 3", "my.yaml, line 3: wrong → right"),
        ("my.yaml", "my.yaml: wrong → right"),
        ("--set a=b", "--set a=b: wrong → right"),
    ],
)
def test_a_single_problem_of_a_recipe_is_one_line(place: str, message: str) -> None:
    assert str(RecipeError("my.yaml", [Problem(place, "wrong", "right")])) == message


def test_a_collector_lets_one_error_through_as_it_is() -> None:
    result = Collector()
    only = DataError("2 rows cannot be used", [Problem("a.csv:1", "no text"), Problem("a.csv:2", "no text")])
    with result:
        raise only
    with result:
        pass
    with pytest.raises(DataError) as error:
        result.raise_if_any()
    assert error.value is only


def test_a_collector_puts_several_errors_together() -> None:
    result = Collector()
    with result:
        raise UserError("no such device")
    with result:
        raise DataError("title", [Problem("a", "is a folder"), Problem("b", "no such file")])
    with result:
        raise UserError("minilm is not installed; install it with\n  pip install minilm")
    with pytest.raises(UserError) as error:
        result.raise_if_any()
    assert str(error.value).splitlines() == [
        "4 problems",
        "  no such device",
        "  a: is a folder",
        "  b: no such file",
        "  minilm is not installed; install it with",
        "    pip install minilm",
    ]


def test_a_collector_does_not_swallow_bugs_and_raises_nothing_where_nothing_is_wrong() -> None:
    result = Collector()
    with pytest.raises(ZeroDivisionError), result:
        _ = 1 // 0
    result.raise_if_any()


def test_the_nearest_name_is_suggested_or_all_are_listed() -> None:
    assert nearest("optimiser", ["optimizer", "lr"]) == 'did you mean "optimizer"?'
    assert nearest("colour", ["lr", "batch"]) == "known: batch, lr"
    assert nearest("anything", []) == ""


@given(st.sampled_from(["training", "evaluation", "encoder", "tasks"]), st.data())
def test_one_lost_letter_never_hides_a_name(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(name) - 1))
    typed = name[:place] + name[place + 1 :]
    assert nearest(typed, ["training", "evaluation", "encoder", "tasks"]) == f'did you mean "{name}"?'


def test_words_are_listed_as_in_a_sentence() -> None:
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "and")] == ["a", "a or b", "a, b and c"]
    assert listed([]) == ""


def test_what_a_tokeniser_raises_is_one_sentence_and_all_else_goes_on() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    with pytest.raises(UserError, match=r"here: the tokeniser fails: .*Missing \[UNK\] token"), no_panic("here"):
        backend.encode("b")
    for other in (KeyboardInterrupt, ValueError, UserError):
        with pytest.raises(other), no_panic("here"):
            raise other
