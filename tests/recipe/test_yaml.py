"""YAML is read as YAML 1.2 has it, every value knows its line, and slips are told in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from understill.errors import UserError
from understill.recipe.yaml import Places, dump_yaml, read_yaml, read_yaml_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("Y", "Y"), ("true", True), ("False", False),
        ("1e-4", 1e-4), ("2E5", 2e5), ("3.", 3.0), (".5", 0.5), ("-1.5e-3", -1.5e-3), ("12", 12), ("-3", -3),
        ("010", 10), ("0x1f", 31), ("0o17", 15), ("1:30", "1:30"), ("1_000", "1_000"), ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"), ("null", None), ("~", None), ("", None), ("1.2.3", "1.2.3"), ("e5", "e5"), ("=", "="),
    ],
)  # fmt: skip
def test_words_are_words_and_numbers_are_numbers(text: str, value: Any) -> None:
    result = read_yaml_value(text, "here")
    assert result == value
    assert type(result) is type(value)


def test_plain_yaml_keeps_its_own_rules() -> None:
    assert yaml.safe_load("[yes, 1:30]") == [True, 90]


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# first\na: 1\nb:\n  c: 2\n  d: [x,\n      y]\n1: z\n", encoding="utf-8")
    values, places = read_yaml(path)
    assert values == {"a": 1, "b": {"c": 2, "d": ["x", "y"]}, 1: "z"}
    wanted = {("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "d"): 5, ("b", "d", 1): 6, (1,): 7}
    assert {way: places.of(way) for way in wanted} == {way: f"line {line}" for way, line in wanted.items()}


def test_what_is_not_in_the_file_has_the_place_around_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\na: {b: 1}\n", encoding="utf-8")
    _, places = read_yaml(path)
    assert places.of(("a", "x", "y")) == "line 2"
    assert places.of(("x",)) == places.of(()) == str(path)


def test_a_value_of_the_command_line_has_its_place_there() -> None:
    places = Places("a.yaml", {("a",): 1, ("a", "b"): 2})
    places.overrides["a", "b"] = "--set a.b=3"
    places.overrides["x", "y"] = "--set x.y=3"
    assert places.of(("a", "b", "c")) == "--set a.b=3"
    assert places.of(("a",)) == "line 1"
    assert places.of(("x",)) == "--set x.y=3"
    assert places.of(()) == "a.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 'line 3: not valid YAML: the key "a" is written twice'),
        ("a:\n  b: 1\n  b: 2\n", 'line 3: not valid YAML: the key "b" is written twice'),
        ("a:\n\tb: 1\n", "line 2: not valid YAML: there is a tab; indent with spaces"),
        ("a: 1\nb: [1, 2\nc: 3\n", "line 2: not valid YAML: the bracket that is opened here is never closed"),
        ("a: 1\nb: 'x\nc: 3\n", "line 2: not valid YAML: the quote that is opened here is never closed"),
        ("a: b: c", "line 1: not valid YAML: a colon where none can stand"),
        ("a:\n  b: 1\n c: 2", "line 3: not valid YAML: the line does not fit in; correct the indentation"),
        ("a: @b", "line 1: not valid YAML: a value cannot begin with this sign; put it in quotes"),
        ("a: !b c", "line 1: not valid YAML: tags, such as !this, have no meaning"),
        ("? [a]\n: b", "line 1: not valid YAML: a list or mapping cannot be a key"),
        ("a: 1\n---\nb: 2", "line 2: not valid YAML: a second document begins"),
        ("a: 1\nb: \x07", "line 2: not valid YAML: there is a control character, U+0007; delete it"),
        ("a: *b", "line 1: not valid YAML: found undefined alias 'b'"),
        ("a: " + "9" * 5000, ": not valid YAML: a number has thousands of digits"),
        ("[" * 5000, ": not valid YAML: brackets inside brackets"),
    ],
)
def test_slips_are_told_with_their_line_in_words(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_yaml(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def bomb(line: str) -> str:
    """Twelve lines that stand for a trillion values: each has the one before ten times."""
    return "a0: &a0 {x: 1, y: 2}\n" + "".join(
        f"a{n}: &a{n} " + line.format(", ".join([f"*a{n - 1}"] * 10)) + "\n" for n in range(1, 12)
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (bomb("[{}]"), "line 5: not valid YAML: aliases included, there are more than 20,000 values; write fewer"),
        (bomb("{{<<: [{}]}}"), "line 5: not valid YAML: aliases included, there are more than 20,000 values"),
        (bomb("[{}]").split("a5")[0].replace("a4: &a4", "? &a4") + ": 1", "a list or mapping cannot be a key"),
        ("a: &x\n  b: *x\nc: 1\n", "line 1: not valid YAML: an alias holds itself; write its value out"),
        ("a: [" + "1, " * 20_001 + "]", "more than 20,000 values"),
        ("# " + "x" * 250_000, "more than 250,000 bytes, which no recipe has"),
        ("[" * 10_000, "brackets inside brackets, hundreds of them"),
    ],
)
def test_a_file_that_would_expand_without_end_is_refused_before_it_does(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(what)):
        read_yaml(path)


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n", encoding="utf-8")
    assert read_yaml(path)[0]["d"] == {"b": 1, "c": 3}


def test_files_that_cannot_be_read_are_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: größe".encode("latin-1"))
    for name, message in {"none.yaml": "no such file", ".": "is a folder", "latin.yaml": "not UTF-8 text"}.items():
        with pytest.raises(UserError, match=message):
            read_yaml(tmp_path / name)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(tmp_path / "a.yaml")[0] == {"a": 1}


ODD = st.sampled_from(
    ["1e5", "0o7", "1_0", "yes", "null", "~", "1:30", "2024-01-01", "<<", "=", "- a", "a: b", "", " x "]
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | ODD
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.recursive(WORDS | NUMBERS | st.booleans() | st.none(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)))  # fmt: skip
def test_what_is_written_is_read_back(value: Any) -> None:
    assert read_yaml_value(dump_yaml({"value": value}), "here") == {"value": value}


@given(WORDS)
@example("a\x85b")
@example("a\u2028 b")
def test_what_is_written_is_read_back_by_plain_yaml_too(word: str) -> None:
    assert yaml.safe_load(dump_yaml({"value": word})) == {"value": word}
