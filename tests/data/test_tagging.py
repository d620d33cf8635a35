"""Taggers give one tag for each word, whoever they are, and say what to do where there is none."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from understill.data.tagging import _load, find_tagger, tag
from understill.errors import UserError

TEXTS = [["a", "gripping", "film", ",", "and", "it", "'s", "long"], ["[MASK]"], []]


@pytest.mark.parametrize("name", ["spacy", "textblob"])
def test_an_installed_tagger_knows_nouns_from_verbs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    tagger = find_tagger(name)
    assert tagger.name == name and tagger.version
    tags = tag(name, TEXTS)
    assert [len(each) for each in tags] == [len(words) for words in TEXTS]
    assert tags[0][2] == "NN" and tags[0][0] == "DT"
    assert find_tagger("auto").name in ("spacy", "textblob")


def test_a_function_of_ones_own_is_a_tagger() -> None:
    tagger = find_tagger("helpers:first_letters")
    assert len(tagger.version) == 64, "its file's digest: when the code changes, so may the tags"
    assert tag(tagger.name, [["ab", "cd"], ["e"]]) == [["a", "c"], ["e"]]


@pytest.fixture
def own_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that writes the module `own_tags`."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> None:
        (tmp_path / "own_tags.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()

    yield write
    sys.modules.pop("own_tags", None)
    _load.cache_clear()


def test_a_tagger_that_miscounts_is_refused() -> None:
    with pytest.raises(UserError, match=r"gives 1 tags of 1 texts for 2 words of 1 → it must give one for each word"):
        tag("helpers:too_few_tags", [["a", "b"]])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 1 / len(texts[9])", "own_tags:tag stops with IndexError: list index out of range ("),
        ("return None", "stops with TypeError: 'NoneType' object is not iterable → mend it, or write tagger: none"),
        ("return [[len(word) for word in words] for words in texts]", "gives 2 for a tag → tags are strings"),
        ("return [[None] * len(words) for words in texts]", "gives None for a tag"),
    ],
    ids=["raises", "nothing", "numbers", "nones"],
)
def test_what_a_function_of_ones_own_does_wrong_is_said(own_tags: Callable[[str], None], body: str, words: str) -> None:
    own_tags(f"def tag(texts):\n    {body}\n")
    with pytest.raises(UserError) as error:
        tag("own_tags:tag", [["ab"]])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("def tag(:", "SyntaxError: invalid syntax"), ("1 / 0", "ZeroDivisionError: division by zero (")],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_reason(
    own_tags: Callable[[str], None], text: str, words: str
) -> None:
    own_tags(text)
    with pytest.raises(UserError) as error:
        find_tagger("own_tags:tag")
    assert f"own_tags cannot be imported: {words}" in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("spaci", 'there is no tagger "spaci" → write auto, spacy, textblob, none or package.module:function'),
        ("helpers:nothing", 'helpers has no function "nothing"'),
        ("no_such_module:tag", "no_such_module cannot be imported"),
        (":tag", "cannot be imported"),
        ("sys:exit", "sys has no file of its own"),
    ],
)
def test_what_cannot_be_found_is_said(wanted: str, words: str) -> None:
    with pytest.raises(UserError, match=r"student\.augment\.tagger") as error:
        find_tagger(wanted)
    assert words in str(error.value)


@pytest.mark.parametrize(("wanted", "what"), [("auto", "no tagger is installed"), ("spacy", "spacy is not installed")])
def test_without_a_tagger_the_message_names_a_command(monkeypatch: pytest.MonkeyPatch, wanted: str, what: str) -> None:
    def absent(name: str, *rest: Any) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(UserError) as error:
        find_tagger(wanted)
    assert f'{what} → pip install "understill[augment]"' in str(error.value) and "tagger: none" in str(error.value)
