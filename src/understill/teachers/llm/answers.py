"""Answers: from what a language model writes, and the log-probabilities beside it, to those of the choices."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from understill.teachers.llm.cache import LlmReply
from understill.teachers.predictions import DOUBT, logarithms

Floats = NDArray[np.float64]

#: Below this share of the probability on all choices together, the model is not answering the question.
HEARD = 0.02
#: Characters of a name that are not taken for the beginning of a sentence.
ENOUGH = 3

_EDGE = " \t\r\n\"'`*_([{<#:.-"
_SAYS = re.compile(r"(?:answer|option|label|choice|score)\W{0,4}(?:is|:)?\W{0,4}(\w+)", re.IGNORECASE)


def read_reply(reply: LlmReply, names: Sequence[str], choices: Sequence[str]) -> Floats | None:
    """Return the log-probability of each choice; None where the answer cannot be read."""
    if reply.tops:
        masses = option_masses(reply.tops, names)
        if masses.sum() >= HEARD:
            return logarithms(masses / masses.sum())
    place = read_text(reply.text, names, choices)
    return None if place is None else drawn([place], len(names))


def drawn(places: Sequence[int], count: int) -> Floats:
    """Return log-probabilities by how often each choice was drawn, with some doubt left for the others."""
    shares = np.bincount(places, minlength=count) / len(places)
    return logarithms((1 - DOUBT) * shares + DOUBT / count)


def calibrated(logged: Floats, empty: Floats) -> Floats:
    """Divide probabilities, [rows, choices], by those that a text without content gets, [choices]."""
    result: Floats = log_softmax(logged - empty, axis=1)
    return result


def option_masses(tops: Sequence[Sequence[tuple[str, float]]], names: Sequence[str]) -> Floats:
    """Add up the probability of each name along the tokens that were written and those that nearly were.

    `tops` has for each written token the likeliest tokens there, the written one first. What one name alone can
    begin with belongs to it; where several names go on alike, the next token decides. A token that was not written
    and may begin several names is shared among them, since nobody knows how it would have gone on.
    """
    folded = [name.casefold() for name in names]
    masses, path, weight = np.zeros(len(names)), "", 1.0
    for position in tops:
        descend = None
        ended = [place for place, name in enumerate(folded) if name == _start(path)]
        for number, (token, logarithm) in enumerate(position):
            mass, text = weight * float(np.exp(logarithm)), _start(path + token)
            if not text:
                descend = (path + token, mass) if number == 0 else descend
                continue
            fits = _fitting(folded, text)
            if not fits or (ended and fits == ended):
                masses[ended] += mass  # what follows a whole name ends it
            elif len(fits) == 1:
                masses[fits] += mass
            elif number == 0:
                descend = (path + token, mass)
            else:
                masses[fits] += mass / len(fits)
        if descend is None:
            return masses
        path, weight = descend
    open_names = _fitting(folded, _start(path)) if _start(path) else []
    if open_names:  # the answer was cut before it was decided
        whole = [place for place in open_names if folded[place] == _start(path).rstrip()] or open_names
        masses[whole] += weight / len(whole)
    return masses


def _start(text: str) -> str:
    return text.casefold().lstrip(_EDGE)


def _fitting(names: Sequence[str], text: str) -> list[int]:
    """Return the names that a text may become or, where there is none, the longest that it is with something after."""
    begun = [place for place, name in enumerate(names) if name.startswith(text)]
    whole = [place for place, name in enumerate(names) if text.startswith(name) and not text[len(name) :][:1].isalnum()]
    return begun or sorted(whole, key=lambda place: -len(names[place]))[:1]


def read_text(text: str, names: Sequence[str], choices: Sequence[str]) -> int | None:
    """Return the place of the one choice that a written answer names; None where it names none, or several."""
    folded, start = [name.casefold() for name in names], _start(text).rstrip(_EDGE + ")]}>!")
    if start in folded:
        return folded.index(start)
    begun = [place for place, name in enumerate(folded) if len(start) >= ENOUGH and name.startswith(start)]
    if len(begun) == 1:
        return begun[0]
    words = [match.casefold() for match in _SAYS.findall(text)]
    places = {folded.index(word) for word in words if word in folded}
    if len(places) != 1:
        first = re.match(r"(\w+)[.):,]", text.strip(_EDGE))
        named = first and first[1].casefold() in folded
        places = {folded.index(first[1].casefold())} if first and named else _mentioned(text, choices)
    return next(iter(places)) if len(places) == 1 else None


def _mentioned(text: str, choices: Sequence[str]) -> set[int]:
    """Return the choices that a text mentions; one that is only part of a longer one does not count."""
    left, places = text.casefold(), set()
    for place in sorted(range(len(choices)), key=lambda each: -len(choices[each])):
        pattern = rf"(?<!\w){re.escape(choices[place].casefold())}(?!\w)"
        if re.search(pattern, left):
            places.add(place)
            left = re.sub(pattern, " ", left)
    return places
