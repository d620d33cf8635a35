"""Plain values are walked, read, compared and written by one module, whoever asks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.recipe import Recipe
from understill.recipe.overrides import Leaf, differences, leaves, read, write
from understill.recipe.schema import TeacherSpec
from understill.recipe.sweep import grid_teachers


def test_a_mapping_is_gone_into_and_under_a_key_with_dots_it_is_the_value() -> None:
    values = {"a": {"b": 1, "c": {"d": [2]}}, "e.f": {"g": 3}, "h": {}}
    assert list(leaves(values)) == [
        Leaf(("a", "b"), 1, ("a", "b")),
        Leaf(("a", "c", "d"), [2], ("a", "c", "d")),
        Leaf(("e", "f"), {"g": 3}, ("e.f",)),
        Leaf(("h",), {}, ("h",)),
    ]


def test_what_is_no_mapping_has_no_leaves() -> None:
    assert list(leaves(None)) == list(leaves([1])) == list(leaves("a")) == []


def test_a_value_is_read_through_mappings_and_lists_or_not_at_all() -> None:
    values = {"a": [{"b": 1}]}
    assert read(values, ("a", "0", "b")) == 1
    for nowhere in (("x",), ("a", "b"), ("a", "1"), ("a", "0", "b", "c")):
        with pytest.raises(LookupError):
            read(values, nowhere)


TREES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(st.integers(), lambda inner: st.dictionaries(st.sampled_from("def"), inner, min_size=1, max_size=3)),
)


@given(TREES, TREES)
def test_the_differences_written_into_one_give_the_other(one: dict[str, Any], other: dict[str, Any]) -> None:
    other = one | other  # a key cannot be taken away
    made = copy.deepcopy(one)
    for name, value in differences(one, other).items():
        if isinstance(value, list):
            made[name] = {}  # as the schema spells out names
        else:
            write(made, tuple(name.split(".")), value, Recipe, "")
    assert made == other


def test_a_grid_takes_keys_with_dots_and_spells_out_what_is_in_short() -> None:
    grid = {"encoder.dropout": [0.1], "finetune": {"lr": [1, 2]}}
    teachers = grid_teachers({"encoder": "minilm", "finetune": True, "grid": grid}, TeacherSpec)
    assert [(teacher["name"], teacher["encoder"], teacher["finetune"]) for teacher in teachers] == [
        ("teacher-0.1-1", {"name": "minilm", "dropout": 0.1}, {"lr": 1}),
        ("teacher-0.1-2", {"name": "minilm", "dropout": 0.1}, {"lr": 2}),
    ]
