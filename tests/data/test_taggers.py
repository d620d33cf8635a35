"""Taggers give one tag for each word, whoever they are, and say what to do where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plugins.letters
from plugins.letters import letters
from understill.atomic import file_digest
from understill.data.taggers import find_tagger, tag
from understill.errors import UserError
from understill.plugins import TAGGERS

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


def test_a_registered_function_is_a_tagger_whose_source_counts() -> None:
    TAGGERS.register("letters")(letters)
    tagger = find_tagger("letters")
    assert tagger.version == f"letters {file_digest(Path(plugins.letters.__file__))}", (
        "when its code changes, so may tags"
    )
    assert tag(tagger.name, [["ab", "cd"], ["e"]]) == [["a", "c"], ["e"]]


def test_a_tagger_of_an_installed_package_goes_by_its_version(install: Callable[..., None]) -> None:
    install(TAGGERS, "korean", "plugins.letters:letters", "0.3")
    assert find_tagger("korean") == ("korean", "korean korean-plugin 0.3")
    assert tag("korean", [["ab", "cd"]]) == [["a", "c"]]


def test_a_tagger_that_cannot_be_loaded_is_told_with_its_reason(install: Callable[..., None]) -> None:
    install(TAGGERS, "absent", "no_such_module:tag")
    with pytest.raises(UserError, match=r'tagger: the tagger "absent" of package absent-plugin .*no_such_module'):
        find_tagger("absent")
    install(TAGGERS, "number", "plugins.letters:__name__")
    with pytest.raises(UserError, match='the tagger "number" is no function'):
        find_tagger("number")


@pytest.mark.parametrize(
    ("tagging", "words"),
    [
        (lambda texts: 1 / len(texts[9]), "own stops with IndexError: list index out of range ("),
        (
            lambda texts: None,
            "stops with TypeError: 'NoneType' object is not iterable → fix it, or write tagger: none",
        ),
        (lambda texts: [[len(word) for word in words] for words in texts], "gives 2 for a tag → tags are strings"),
        (lambda texts: [[None] * len(words) for words in texts], "gives None for a tag"),
        (lambda texts: [["X"] for _ in texts], "gives 1 tags of 1 texts for 2 words of 1 → it must give one for each"),
    ],
    ids=["raises", "nothing", "numbers", "nones", "miscounts"],
)
def test_what_a_plugged_in_tagger_does_wrong_is_said(tagging: Any, words: str) -> None:
    TAGGERS.register("own")(tagging)
    with pytest.raises(UserError) as error:
        tag("own", [["ab", "cd"]])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("spaci", 'there is no tagger "spaci" → write auto, spacy, textblob, letters or none'),
        ("helpers:tag", '"helpers:tag" names code, which a recipe does not → register the function under a name'),
        (":tag", "names code"),
    ],
)
def test_what_cannot_be_found_is_said(wanted: str, words: str) -> None:
    TAGGERS.register("letters")(letters)
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
