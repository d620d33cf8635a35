"""Inference of columns: which hold texts, labels, scores or ids, by their names and the values of the first rows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from understill.tasks.cells import MOST_LABELS, WHOLE, Fault, as_label, as_score, decimal_sign, pointed

ColumnRole = Literal["text", "label", "score", "id", "other"]

ID_NAME = re.compile(r"(^|[_\W])(id|idx|index|uuid|guid|key|nr|no)$|^(id|idx|index|uuid)([_\W]|$)|[a-z]Id$|^Unnamed")
SCORE_NAME = re.compile(r"score|rating|similarity|stars|grade|value", re.I)
LABEL_NAME = re.compile(r"label|class|category|target|gold|intent|topic|sentiment|queue|same|duplicate|tag", re.I)
#: Its last word says what a name means: a question_type is no question.
TEXT_NAME = re.compile(
    r"(text|message|body|sentence|utterance|query|comment|review|tweet|question|content|title|내용|본문|문장|질문)"
    r"s?[-_. ]?(\d+|[ab])?$",
    re.I,
)
#: What is neither read nor learnt: dates with or without a time, times, addresses of pages and of people, phone numbers
#: and amounts of money.
NO_WORDS = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d\d))([T ,][\W\d_]*([A-Za-z]{1,4}[\W\d_]*){0,2})?"
    r"|\d{1,2}\.? [A-Z][a-z]{2,8}\.?,? \d{4}|[A-Z][a-z]{2,8}\.? \d{1,2}, \d{4}|\d{1,2}:\d\d(:\d\d)?( ?[ap]\.?m\.?)?"
    r"|\w+://\S+|www\.\S+|[^\s@]+@[^\s@]+\.\w+"
    r"|\+\d[\d ()/-]{6,}|([A-Z]{3}|[€$£¥₩]) ?\d[\d.,]*|\d[\d.,]* ?([A-Z]{3}|[€$£¥₩])"
)
#: Signs and digits with a few short words between them: what else is hardly there to be read.
HARDLY_WORDS = re.compile(r"(?=.*\d)[\W\d_]*(?:[A-Za-z]{1,3}[\W\d_]+){0,3}[A-Za-z]{0,3}")
#: The share of a column's values that have to be such for it to hold nothing else.
MOSTLY = 0.9
#: Labels of a column whose name does not say that it holds labels.
MOST_UNNAMED = 300
#: Whole numbers that may be names of classes.
MOST_INTEGERS = 300


@dataclass(frozen=True)
class ColumnProfile:
    """One column, as far as the first rows tell; values are taken without blanks at their ends."""

    name: str
    role: ColumnRole
    distinct: int
    examples: tuple[str, ...]
    length: float  # mean number of characters
    blank: int  # rows without a value
    decimal: str = "."
    keys: tuple[Hashable, ...] = ()  # of each row: its label, or a hash of its text; None where there is none
    named_so: bool = False  # its name is also one of its values
    whole: tuple[int, int] | None = None  # the lowest and the highest, where all are whole numbers
    last_resort: bool = False  # it is text only because nothing else is
    given: int = (
        0  # its place among the texts or labels that somebody named, from 1; -1 where others were named instead
    )


@dataclass(frozen=True)
class NamedColumns:
    """Columns that somebody named, so that nothing is to be inferred about what they are for."""

    text: tuple[str, ...] = ()
    label: tuple[str, ...] = ()


NONE_NAMED = NamedColumns()


def profile_columns(
    names: Sequence[str], values: Sequence[Sequence[str | None]], named: NamedColumns = NONE_NAMED
) -> tuple[ColumnProfile, ...]:
    """Say what each column of a file holds, given its values of the first rows.

    A name alone makes a column text only where no column of such a name reads like text; and where none has such a
    name, a label beside it makes text of the column with the most different values.
    """
    columns = [_column(name, column) for name, column in zip(names, values, strict=True)]
    if named.text or named.label:
        columns = [_as_named(column, own, named) for column, own in zip(columns, values, strict=True)]
    if named.text:
        return tuple(columns)
    if not any(column.role == "text" and TEXT_NAME.search(column.name) for column in columns):
        for place, column in enumerate(columns):
            if _text_by_name(column, len(values[place]) - column.blank):
                columns[place] = _column(column.name, values[place], "text")
    if not any(column.role == "text" for column in columns):
        rest = [place for place, column in enumerate(columns) if _last_resort(column)]
        place = max(rest, key=lambda each: columns[each].distinct, default=-1)
        others = [column for column in columns if column is not columns[place] and column.distinct > 1]
        labels = [column for column in others if column.role == "label"]
        scores = [column for column in others if column.role == "score" and SCORE_NAME.search(column.name)]
        if rest and (labels or scores) and all(column.distinct < columns[place].distinct for column in labels):
            columns[place] = _column(names[place], values[place], "text", last_resort=True)
    return tuple(columns)


def _as_named(column: ColumnProfile, values: Sequence[str | None], named: NamedColumns) -> ColumnProfile:
    """Give a column the role that it was named for; others of that role are then not used."""
    if column.name in named.text:
        return replace(_column(column.name, values, "text"), given=named.text.index(column.name) + 1)
    if column.name in named.label:
        role: ColumnRole = column.role if column.role in ("label", "score") else "label"
        if column.role == "id" and column.whole and column.distinct > MOST_INTEGERS:
            role = "score"
        return replace(_column(column.name, values, role), given=named.label.index(column.name) + 1)
    unused = (named.text and column.role == "text") or (named.label and column.role in ("label", "score"))
    return replace(column, role="other", given=-1) if unused else column


def _text_by_name(column: ColumnProfile, count: int) -> bool:
    """Tell whether a column's name makes it text; a label's name and a switch such as has_comment do not."""
    few = column.distinct <= 2 and column.distinct < count
    label = column.role == "label" and LABEL_NAME.search(column.name)
    return bool(TEXT_NAME.search(column.name) and _words(column) and not few and not label and not column.given)


def _last_resort(column: ColumnProfile) -> bool:
    return _words(column) and column.distinct > 1 and not LABEL_NAME.search(column.name) and not column.given


def _words(column: ColumnProfile) -> bool:
    """Tell whether a column may hold words: it is of no use as an id, and holds something else than numbers."""
    return column.role in ("label", "other") and _numbers(column.examples, column.decimal) is None


def _column(
    name: str, values: Sequence[str | None], role: ColumnRole | None = None, last_resort: bool = False
) -> ColumnProfile:
    cells = [value.strip() for value in values if value is not None and value.strip()]
    distinct = list(dict.fromkeys(cells))
    length = sum(map(len, cells)) / max(len(cells), 1)
    decimal = decimal_sign(distinct)
    numbers = _numbers(distinct, decimal) or []
    whole = [int(float(number)) for number in numbers if WHOLE.fullmatch(number)]
    limits = (min(whole), max(whole)) if whole and len(whole) == len(numbers) else None
    if role is None and numbers:
        role = _role_of_numbers(name, len(cells), len(distinct), limits is not None)
    role = role or _role(name, cells, len(distinct), length)
    blank = len(values) - len(cells)
    keys: tuple[Hashable, ...] = ()
    if role in ("label", "score"):
        keys = tuple([as_label(value, name) for value in values])
    elif role == "text":
        keys = tuple([hash(value) if value and value.strip() else None for value in values])
    examples, named_so = tuple(distinct[:50]), name in distinct
    return ColumnProfile(
        name, role, len(distinct), examples, length, blank, decimal, keys, named_so, limits, last_resort
    )


def _numbers(values: Sequence[str], decimal: str) -> list[str] | None:
    """Return values with decimal points; None where one is no number."""
    try:
        numbers = [pointed(value, decimal) for value in values]
        return numbers if all(as_score(number) is not None for number in numbers) else None
    except Fault:
        return None


def _is_id(name: str, count: int, distinct: int) -> bool:
    """Tell whether a name and its values are those of an id; the id of a class comes up again and again."""
    return bool(ID_NAME.search(name)) and (2 * distinct > count or not LABEL_NAME.search(name))


def _role_of_numbers(name: str, count: int, distinct: int, whole: bool) -> ColumnRole:
    if _is_id(name, count, distinct):
        return "id"
    if not whole or SCORE_NAME.search(name):
        return "score"
    repeated = LABEL_NAME.search(name) and distinct <= min(MOST_INTEGERS, count / 2)
    if repeated or (distinct <= 20 and distinct < max(count, 3)):
        return "label"
    return "id" if distinct == count else "score"


def _role(name: str, values: Sequence[str], distinct: int, length: float) -> ColumnRole:
    """Infer what a column of words is for; its name decides only where the values leave it open."""
    count = len(values)
    if not count:
        return "other"
    if _is_id(name, count, distinct) and not any(" " in value for value in values[:100]):
        return "id"
    named = LABEL_NAME.search(name)
    most = min(MOST_LABELS, 0.8 * count) if named else min(MOST_UNNAMED, count / 2)
    few = distinct < count and distinct <= max(2, most)
    if named and length < 40 and (few or count < 20):
        return "label"
    if _mostly(values, NO_WORDS):
        return "label" if named and few else "other"
    words = sum(len(value.split()) for value in values) / count
    if few and length < 40 and words < 4:  # the questions of a ranking come up again and again, too
        return "label"
    return "text" if (words >= 1.5 or length >= 12) and not _mostly(values, HARDLY_WORDS) else "other"


def _mostly(values: Sequence[str], pattern: re.Pattern[str]) -> bool:
    return sum(bool(pattern.fullmatch(value)) for value in values) >= MOSTLY * len(values)
