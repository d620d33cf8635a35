"""Check rows: texts, labels and scores as a task needs them, and what is wrong with those that are not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from understill.errors import DataError, Problem, UserError, nearest
from understill.tasks import Task

#: More labels than this are taken for scores or ids in the wrong column.
MOST_LABELS = 1000
#: A number with a decimal comma, and one whose comma may as well part thousands.
COMMA = re.compile(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*", re.I)
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
#: Labels that say by themselves which candidates are wrong and which are right.
WRONG_AND_RIGHT = (("0", "1"), ("false", "true"), ("no", "yes"), ("wrong", "right"))


class Fault(Exception):
    """What is wrong with one row; the remedy is worked out only when somebody will read it."""

    def __init__(self, what: str, fix: str | Callable[[], str] = "") -> None:
        super().__init__(what)
        self.what = what
        self._fix = fix

    @property
    def fix(self) -> str:
        """Say what to do about it."""
        return self._fix if isinstance(self._fix, str) else self._fix()


class BadRows:
    """Everything that is wrong with the data of a recipe: the first some hundred in words, all of it counted."""

    KEPT = 300

    def __init__(self) -> None:
        self.total = 0
        self.rows: list[Problem] = []
        self.files: list[Problem] = []

    def add(self, place: str, fault: Fault) -> None:
        """Note a bad row."""
        self.total += 1
        if len(self.rows) < self.KEPT:
            self.rows.append(Problem(place, fault.what, fault.fix))

    def raise_if_any(self) -> None:
        """Stop with all of it at once; a single trouble that is not about a row is one sentence."""
        files = list(dict.fromkeys(self.files))  # one file may serve several splits
        problems = [*files, *self.rows]
        total = len(files) + self.total
        if not problems:
            return
        if not self.rows and total == 1:
            raise UserError(str(problems[0]))
        title = f"{total:,} problems with the data"
        if self.rows:
            title = "1 row" if self.total == 1 else f"{self.total:,} rows"
            title += " cannot be used; mend them, or leave them out with data.on_bad_row: skip"
            if files:
                title = f"{total:,} problems with the data; {title}"
        raise DataError(title, problems, total)


@dataclass(frozen=True)
class Rules:
    """What the rows of one split must hold."""

    needs_gold: bool = True  # every row must have a label or score
    known: frozenset[str] | None = None  # the labels there may be; any, where they are inferred
    limits: tuple[float, float] | None = None  # the scores there may be
    empty_text: bool = False  # GLUE has a few rows with an empty text, which count
    by_text: bool = False  # rows are dealt out by their texts alone, whatever the task is called


class Checked(NamedTuple):
    """What is kept of a row."""

    name: str  # its id
    unit: str  # what may not be divided: the row's id, or the key of its texts; in a ranking, of its first text
    columns: list[str]  # its texts, and the group of a ranking task
    gold: str | float | None


class Check:
    """Turns values into what is kept of a row, and remembers the labels, scores and groups it has seen."""

    def __init__(self, task: Task, rules: Rules) -> None:
        self.task = task
        self.rules = rules
        self.labels: set[str] = set()
        self.low, self.high = math.inf, -math.inf
        self.gold = 0  # rows with a label or score
        self._id = id_maker(task.name)
        self._unit = text_key if rules.by_text else self._id
        self._count = len(task.text)
        self._read_gold = self._score if task.kind == "regression" else self._label
        self._queries: dict[str, int] = {}  # groups by name, with a hash of their first text

    def __call__(self, values: Sequence[Any]) -> Checked:
        """Return what is kept of a row, or raise its Fault."""
        texts: list[str] = []
        for index in range(self._count):
            value = values[index]
            # Plain strings are nearly all there is; they are not worth another call.
            whole = isinstance(value, str) and value and not value.isspace()
            texts.append(value if whole else self._text(value, index))
        try:
            encoded = [text.encode() for text in texts]
        except UnicodeEncodeError:
            raise Fault("the text is not valid UTF-8", "save the file as UTF-8") from None
        name, columns = self._id(encoded), texts
        if self.task.kind == "ranking":
            group = self._group(values[self._count], texts[0]) if self.task.group else texts[0]
            # A group has one first text. Going by that, the same texts in two groups stay on one side too.
            unit, columns = self._unit(encoded[:1]), [*texts, group]
        else:
            unit = self._unit(encoded) if self.rules.by_text else name
        gold = self._read_gold(values[-1])
        if gold is None:
            if self.rules.needs_gold:
                noun = "score" if self.task.kind == "regression" else "label"
                raise Fault(f'no {noun} in column "{self.task.label}"')
        else:
            self.gold += 1
        return Checked(name, unit, columns, gold)

    def _group(self, value: Any, query: str) -> str:
        group = as_label(value, self.task.group or "group")
        if group is None:
            raise Fault(f'no group in column "{self.task.group}"')
        try:
            group.encode()
        except UnicodeEncodeError:
            raise Fault("the group is not valid UTF-8", "save the file as UTF-8") from None
        # Ids that start again, in a second file for instance, would make one query out of two.
        if self._queries.setdefault(group, hash(query)) != hash(query):
            what = f'the rows of group "{group[:100]}" have different texts in column "{self.task.text[0]}"'
            raise Fault(what, "give every query a group of its own")
        return group

    def _text(self, value: Any, index: int) -> str:
        if not isinstance(value, str):
            value = plain(value, self.task.text[index])
        if value is None or not value.strip():
            if self.rules.empty_text:
                return value or ""
            raise Fault(f'no text in column "{self.task.text[index]}"')
        return value  # type: ignore[no-any-return]

    def _label(self, value: Any) -> str | None:
        if isinstance(value, str) and value in self.labels:
            return value
        label = as_label(value, self.task.label or "label")
        if label is None or label in self.labels:
            return label
        try:
            label.encode()
        except UnicodeEncodeError:
            raise Fault("the label is not valid UTF-8", "save the file as UTF-8") from None
        known = self.rules.known
        if known is not None and label not in known:
            raise Fault(f'unknown label "{label[:100]}"', lambda: _known(label, known))
        if len(self.labels) <= MOST_LABELS:
            self.labels.add(label)
        return label

    def _score(self, value: Any) -> float | None:
        score = as_score(value)
        if score is None:
            return None
        limits = self.rules.limits
        if limits and not limits[0] <= score <= limits[1]:
            raise Fault(f"the score {score:g} lies outside {limits[0]:g} to {limits[1]:g}")
        self.low, self.high = min(self.low, score), max(self.high, score)
        return score


def _known(label: str, known: frozenset[str]) -> str:
    fix = nearest(label, known)
    return fix if len(fix) < 200 else f"{len(known)} labels are known from train"


def id_maker(task: str) -> Callable[[Sequence[bytes]], str]:
    """Return the function that names a row of a task by its texts, given as UTF-8."""
    # Lengths come first, so that ("ab", "c") and ("a", "bc") differ.
    name = task.encode()
    start = len(name).to_bytes(8, "little") + name

    def make(texts: Sequence[bytes]) -> str:
        whole = start
        for text in texts:
            whole += len(text).to_bytes(8, "little") + text
        return blake2b(whole, digest_size=12).hexdigest()

    return make


_by_texts = id_maker("")


def text_key(texts: Sequence[bytes]) -> str:
    """Return a hash of the texts alone, in any order, which decides on which side of a split or fold a row falls."""
    return _by_texts(sorted(texts))


def row_id(task: str, texts: Sequence[str]) -> str:
    """Return the stable id of a row: 24 hex digits of a hash over the task's name and the texts."""
    return id_maker(task)([text.encode() for text in texts])


def plain(value: Any, column: str) -> str | None:
    """Return one value as text; lists and mappings are no text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, (list, dict, tuple, bytes)):
        raise Fault(f'column "{column}" holds a {type(value).__name__}, not text')
    return str(value)


def as_label(value: Any, column: str = "label") -> str | None:
    """Return a label's name, whatever the file's type: 1, 1.0 and "1" are the same label."""
    text = value if isinstance(value, str) else plain(value, column)
    return (text.strip() or None) if text is not None else None


def as_score(value: Any) -> float | None:
    """Return a finite number, or None where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and not value.strip():
        return None
    try:
        if isinstance(value, (bool, list, dict)) or (isinstance(value, str) and "_" in value):
            raise ValueError
        score = float(value)
    except (ValueError, TypeError, OverflowError):
        shown = str(value).encode("utf-8", "backslashreplace").decode()[:60]
        raise Fault(f'"{shown}" is not a number') from None
    if not math.isfinite(score):
        raise Fault(f"the score {score} is not finite")
    return score


def decimal_sign(values: Iterable[Any]) -> Literal[",", "."]:
    """Tell decimal commas by scores that have them, if no score has a point."""
    texts = [value for value in values if isinstance(value, str)]
    commas = any(COMMA.fullmatch(text) and not THOUSANDS.fullmatch(text) for text in texts)
    return "," if commas and not any("." in text for text in texts) else "."


def pointed(value: Any, decimal: str) -> Any:
    """Return a score as as_score reads it; a string with the other decimal sign is a Fault."""
    if not isinstance(value, str):
        return value
    if decimal == "." and COMMA.fullmatch(value):
        raise Fault(f'"{value.strip()[:60]}" is not a number', 'write decimal: "," in the task if scores have commas')
    if decimal == "," and "." in value:
        raise Fault(f'"{value.strip()[:60]}" is not a number with a decimal comma', "write the score with a comma")
    return value.replace(",", ".") if decimal == "," else value


def label_names(check: Check, rows: int) -> tuple[str, ...]:
    """Order the labels that train has shown, by number where all are numbers, and refuse what cannot be labels."""
    labels, column = check.labels, check.task.label
    many = f"more than {MOST_LABELS:,}" if len(labels) > MOST_LABELS else f"{len(labels):,}"
    if len(labels) > MOST_LABELS or (rows >= 20 and len(labels) > 0.8 * rows):
        what = f'column "{column}" has {many} different labels in {rows:,} rows; it looks like scores or ids'
        raise Fault(what, "set kind: regression, or name another label column; true labels can be listed under labels")
    if len(labels) == 1:
        (only,) = labels
        raise Fault(f'every row has the label "{only}"; there is nothing to learn', "use data with two labels or more")
    if check.task.kind == "ranking":
        return _right_last(labels, column)
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    if not all(math.isfinite(number) for number in numbers.values()):
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (numbers[label], label)))


def wrong_and_right(labels: Collection[str]) -> tuple[str, str] | None:
    """Put the label of right candidates last; None where the labels do not say which one it is."""
    spelt = {label.casefold(): label for label in labels}
    for wrong, right in WRONG_AND_RIGHT:
        if len(labels) == 2 and spelt.keys() == {wrong, right}:
            return spelt[wrong], spelt[right]
    return None


def _right_last(labels: Collection[str], column: str | None) -> tuple[str, ...]:
    if len(labels) > 2:
        what = f'column "{column}" has {len(labels):,} different labels; candidates are wrong or right'
        raise Fault(what, "name a column with two labels, or write kind: classification")
    if known := wrong_and_right(labels):
        return known
    one, two = sorted(labels)
    what = f'column "{column}" has the labels {one} and {two}, and does not say which of them is right'
    raise Fault(what, f"write labels, the right one last: [{one}, {two}] if {two} is right, else [{two}, {one}]")
