"""Doubts about labelled data: texts with two labels, labels spelt in two ways, joined or seen once, headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import islice
from math import isfinite
from unicodedata import category

from understill.errors import counted, listed
from understill.tasks.cells import WHOLE

#: Rows that are looked at for texts with two labels, and for values that are the name of their column.
LOOKED_AT = 200_000
#: Formats whose first line names the columns.
HEADED = ("csv", "tsv", "excel")
#: A name of a text column of so many words or characters may well be a text.
WORDS, CHARACTERS = 3, 20
#: The longest label that a sentence shows whole.
LONGEST = 60
#: How many labels, or groups of them, a sentence names.
NAMED = 3
#: What stands between labels of one cell; within a label, a comma without a blank may be part of a name.
JOINED_BY = (";", "|", ", ")
#: Marks at the ends of labels that carry no meaning; signs such as + and # may.
_MARKS, _MEANING = ("Po", "Ps", "Pe", "Pi", "Pf"), "#%&*/@\\"


def contradictions(keys: Iterable[Hashable], labels: Iterable[str | None], pair: bool) -> str:
    """Count the texts, or pairs, that have more than one label."""
    first: dict[Hashable, str] = {}
    seconds: dict[Hashable, str] = {}
    for key, label in islice(zip(keys, labels, strict=False), LOOKED_AT):
        if label is not None and first.setdefault(key, label) != label:
            seconds.setdefault(key, label)
    if not seconds:
        return ""
    key, other = next(iter(seconds.items()))
    what = f"{counted(len(seconds), 'pair' if pair else 'text')} {'has' if len(seconds) == 1 else 'have'}"
    one = f"contradicting labels, such as {_quoted(first[key])} and {_quoted(other)}"
    return f"{what} {one} → keep one label of each, or leave these rows out"


def spellings(labels: Iterable[str]) -> str:
    """Name the labels that differ only in case, in punctuation at their ends, or as 1 and 1.0."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        bare = label.partition(".")[0] if WHOLE.fullmatch(label) else _bare(label)
        groups.setdefault(bare, []).append(label)
    alike = [listed([_quoted(label) for label in sorted(group)], "and") for group in groups.values() if len(group) > 1]
    if not alike:
        return ""
    fix = "write each label in one way, or list them under labels if they are different"
    return f"labels differ only in case or punctuation: {_some(alike, '; ')} → {fix}"


def singles(counts: Mapping[str, int]) -> str:
    """Name the labels that a single row has."""
    alone = sorted(label for label, count in counts.items() if count == 1)
    if not alone:
        return ""
    word = "label has a single row" if len(alone) == 1 else "labels have a single row each"
    return f"{len(alone):,} {word}: {_some([_quoted(label) for label in alone])} → add rows, or leave the label out"


def several_labels(labels: Collection[str]) -> str:
    """Name a cell that joins labels, most of which stand alone or in other cells as well."""
    for sign in JOINED_BY:
        parts = {label: {part.strip() for part in label.split(sign)} - {""} for label in labels}
        cells = Counter(part for each in parts.values() for part in each)  # a label alone is a part of its own
        joined = (
            label
            for label, each in sorted(parts.items())
            if len(each) > 1 and 2 * sum(cells[part] > 1 for part in each) > len(each)
        )
        if example := next(joined, None):
            fix = "keep one, or make a yes/no column, a task, of each"
            return f"cells such as {_quoted(example)} hold several labels; understill learns one a row → {fix}"
    return ""


def header_doubt(texts: Iterable[str], label: str, values: Collection[str]) -> str:
    """Say that a header looks like a row: a text's name reads like a text, and the label's like a label or a score.

    `values` are the names that are also values of their column. One sign alone is not enough: a column of questions
    may be named by its question, and one of labels by one of them.
    """
    like_text = (name for name in texts if name in values or len(name) > CHARACTERS or len(name.split()) >= WORDS)
    text = next(like_text, None)
    if text is None or not (label in values or _is_number(label)):
        return ""
    what = f"the column names {_quoted(text)} and {_quoted(label)} look like data"
    return f"{what} → the first line is taken for column names; if it is a row, put a line of names above it"


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text.replace(",", ".")))
    except ValueError:
        return False


def _bare(label: str) -> str:
    """Return a label without case and without marks at its ends; one of marks alone as it is."""
    start, end = 0, len(label)
    while start < end and _mark(label[start]):
        start += 1
    while start < end and _mark(label[end - 1]):
        end -= 1
    return label[start:end].casefold() or label


def _mark(sign: str) -> bool:
    return sign.isspace() or (category(sign) in _MARKS and sign not in _MEANING)


def _quoted(text: str) -> str:
    line = "".join(sign if sign.isprintable() else " " for sign in text)  # a cell may hold anything
    return f'"{line}"' if len(line) <= LONGEST else f'"{line[: LONGEST - 1]}…"'


def _some(parts: list[str], sign: str = ", ") -> str:
    more = [f"{len(parts) - NAMED:,} more"] if len(parts) > NAMED else []
    return sign.join([*parts[:NAMED], *more])
