"""Answers become probabilities of labels, whatever tokens they are made of, and prose is read or left alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.teachers.llm.answers import calibrated, drawn, logarithms, option_masses, read_reply, read_text
from understill.teachers.llm.cache import LlmReply

Tops = tuple[tuple[tuple[str, float], ...], ...]


def tops(*positions: dict[str, float]) -> Tops:
    return tuple(tuple((token, math.log(value)) for token, value in each.items()) for each in positions)


def test_first_tokens_of_different_labels_decide_at_once() -> None:
    masses = option_masses(tops({"pos": 0.7, " neg": 0.2, "The": 0.1}), ["negative", "positive"])
    assert masses == pytest.approx([0.2, 0.7])


def test_case_spaces_and_quotes_do_not_matter() -> None:
    masses = option_masses(tops({" A": 0.5, "a": 0.2, '"B': 0.1, "**b": 0.05}), ["A", "B"])
    assert masses == pytest.approx([0.7, 0.15])


def test_a_word_that_begins_with_a_letter_is_not_that_letter() -> None:
    assert option_masses(tops({"Answer": 0.6, "A": 0.3, "B": 0.1}), ["A", "B"]) == pytest.approx([0.3, 0.1])


def test_labels_that_begin_with_the_same_token_are_told_apart_by_the_next() -> None:
    names = ["account closed", "account open", "other"]
    masses = option_masses(tops({"account": 0.9, "other": 0.1}, {" open": 0.75, " closed": 0.25}), names)
    assert masses == pytest.approx([0.225, 0.675, 0.1])


def test_a_label_that_begins_another_is_the_answer_where_nothing_follows() -> None:
    names = ["refund", "refund late"]
    assert option_masses(tops({"refund": 1.0}, {"<|end|>": 0.8, " late": 0.2}), names) == pytest.approx([0.8, 0.2])
    assert option_masses(tops({"refund": 1.0}), names) == pytest.approx([1.0, 0.0])


def test_an_unwritten_token_that_several_labels_share_is_shared() -> None:
    masses = option_masses(tops({"billing": 0.6, "re": 0.4}), ["billing", "refund", "repair"])
    assert masses == pytest.approx([0.6, 0.2, 0.2])


def test_a_token_without_content_is_passed_over() -> None:
    assert option_masses(tops({"\n": 0.9, "B": 0.1}, {"A": 0.5, "B": 0.5}), ["A", "B"]) == pytest.approx([0.45, 0.55])


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=26))
def test_masses_of_distinct_tokens_are_their_probabilities(values: list[float]) -> None:
    names = [chr(65 + place) for place in range(len(values))]
    masses = option_masses(tops({name: value / 26 for name, value in zip(names, values, strict=True)}), names)
    assert masses == pytest.approx(np.array(values) / 26)


@given(st.lists(st.text("abc ", min_size=1, max_size=6), min_size=2, max_size=5, unique=True), st.data())
def test_no_more_mass_is_given_than_there_is(names: Sequence[str], data: st.DataObject) -> None:
    tokens = st.dictionaries(st.text("abc ", min_size=1, max_size=3), st.floats(0.01, 1.0), min_size=1, max_size=6)
    positions = data.draw(st.lists(tokens, min_size=1, max_size=4))
    shares = [{token: value / sum(each.values()) for token, value in each.items()} for each in positions]
    masses = option_masses(tops(*shares), names)
    assert (masses >= 0).all() and masses.sum() <= 1 + 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9).filter(lambda values: sum(values) > 0))
def test_logarithms_are_finite_and_sum_to_one(values: list[float]) -> None:
    logged = logarithms(np.array(values) / sum(values))
    assert np.isfinite(logged).all() and np.exp(logged).sum() == pytest.approx(1)


def test_calibration_takes_out_what_an_empty_text_gets() -> None:
    biased = np.log([[0.9, 0.1], [0.6, 0.4]])
    level = np.exp(calibrated(biased, np.log([0.75, 0.25])))
    assert level[0] == pytest.approx([0.75, 0.25])
    assert level[1] == pytest.approx([1 / 3, 2 / 3])


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3))
def test_calibration_by_an_even_answer_changes_nothing(values: list[float]) -> None:
    logged = np.log(np.array([values]) / sum(values))
    assert calibrated(logged, np.log(np.full(3, 1 / 3))) == pytest.approx(logged)


def test_draws_become_shares_with_some_doubt() -> None:
    shares = np.exp(drawn([0, 0, 0, 1], 2))
    assert shares == pytest.approx([0.7375, 0.2625])


LABELS = ("negative", "positive", "très négatif")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("positive", 1),
        ("POSITIVE.", 1),
        ("**Positive**", 1),
        ("posit", 1),
        ("The sentiment is positive", 1),
        ("Answer: negative", 0),
        ("Très Négatif", 2),
        ("It could be positive or negative", None),
        ("I cannot help with that.", None),
        ("", None),
        ("po", None),
        ("positively not sure", None),
    ],
)
def test_written_labels_are_read_in_any_case_and_in_prose(text: str, place: int | None) -> None:
    assert read_text(text, LABELS, LABELS) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [("B", 1), ("b)", 1), ("B. positive", 1), ("The answer is B.", 1), ("(B)", 1), ("it is positive", 1), ("AB", None)],
)
def test_written_letters_are_read_too(text: str, place: int | None) -> None:
    assert read_text(text, ("A", "B", "C"), LABELS) == place


def test_a_label_within_a_longer_one_is_not_mentioned_by_it() -> None:
    assert read_text("I think: not spam", ("spam", "not spam"), ("spam", "not spam")) == 1


def test_an_answer_about_something_else_is_not_read() -> None:
    reply = LlmReply("Sure", tops({"Sure": 0.99, "A": 0.005, "B": 0.005}))
    assert read_reply(reply, ("A", "B"), ("no", "yes")) is None
    answer = read_reply(LlmReply("A", tops({"A": 0.9, "B": 0.1})), ("A", "B"), ("no", "yes"))
    assert answer is not None and np.exp(answer) == pytest.approx([0.9, 0.1])
