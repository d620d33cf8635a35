"""Cells: labels and scores as files write them, read one by one, and what is wrong with those that are none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, Protocol

from understill.errors import nearest
from understill.names import nfc

#: More labels than this are taken for scores or ids in the wrong column.
MOST_LABELS = 1000
#: A number with a decimal comma, and one whose comma may as well part thousands.
COMMA = re.compile(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*", re.I)
#: A whole number, which pandas writes with a decimal point where others of its column are missing.
WHOLE = re.compile(r"[+-]?\d+(\.0+)?")
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")


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


class GoldReader(Protocol):
    """Reads the gold cells of one split, and remembers what they show of the task."""

    def __call__(self, value: Any) -> Any:
        """Return what is kept of a cell; None where it is empty; a Fault where it holds something else."""

    def facts(self, rows: int) -> dict[str, Any]:
        """Return what so many rows with gold have shown, `labels` or `range`; a Fault where nothing can be learnt."""

    def seen(self) -> dict[str, Any]:
        """Return what was seen so far, where rows were bad: enough to check other splits against."""


class LabelReader:
    """Reads names of labels."""

    def __init__(
        self,
        column: str | None,
        known: frozenset[str] | None,
        order: Callable[[Collection[str], str | None], tuple[str, ...]],
    ) -> None:
        self.column = column
        self.known = known  # the labels there may be; any, where they are inferred
        self.order = order  # puts inferred labels into the order of the outputs
        self.labels: set[str] = set()
        # Train may have 1 where another file has 1.0, or the other way round.
        self.whole = {label.partition(".")[0]: label for label in sorted(known or ()) if WHOLE.fullmatch(label)}

    def __call__(self, value: Any) -> str | None:
        """Return the label's name."""
        if isinstance(value, str) and value in self.labels:
            return value
        label = as_label(value, self.column or "label")
        if label is None or label in self.labels:
            return label
        utf8(label, "label")
        known = self.known
        if known is not None and label not in known:
            if WHOLE.fullmatch(label) and (same := self.whole.get(label.partition(".")[0])):
                return same
            raise Fault(f'unknown label "{label[:100]}"', lambda: _known(label, known))
        if len(self.labels) <= MOST_LABELS:
            self.labels.add(label)
        return label

    def facts(self, rows: int) -> dict[str, Any]:
        """Return the labels in their order, and refuse what cannot be labels."""
        labels, column = self.labels, self.column
        many = f"more than {MOST_LABELS:,}" if len(labels) > MOST_LABELS else f"{len(labels):,}"
        if len(labels) > MOST_LABELS or (rows >= 20 and len(labels) > 0.8 * rows):
            what = f'column "{column}" has {many} different labels in {rows:,} rows; it looks like scores or ids'
            fix = "set kind: regression, or name another label column; true labels can be listed under labels"
            raise Fault(what, fix)
        if len(labels) == 1:
            (only,) = labels
            what = f'every row has the label "{only}"; there is nothing to learn'
            raise Fault(what, "use data with two labels or more")
        return {"labels": list(self.order(labels, column))}

    def seen(self) -> dict[str, Any]:
        """Return the labels seen so far."""
        return {"labels": sorted(self.labels)}


class ScoreReader:
    """Reads numbers."""

    def __init__(self, limits: tuple[float, float] | None) -> None:
        self.limits = limits  # the scores there may be; any, where they are inferred
        self.low, self.high = math.inf, -math.inf

    def __call__(self, value: Any) -> float | None:
        """Return the score."""
        score = as_score(value)
        if score is None:
            return None
        limits = self.limits
        if limits and not limits[0] <= score <= limits[1]:
            raise Fault(f"the score {score:g} lies outside {limits[0]:g} to {limits[1]:g}")
        self.low, self.high = min(self.low, score), max(self.high, score)
        return score

    def facts(self, rows: int) -> dict[str, Any]:
        """Return the lowest and the highest score."""
        if self.low == self.high:
            raise Fault(f"every row has the score {self.low:g}; there is nothing to learn", "name another column")
        return {"range": [self.low, self.high]}

    def seen(self) -> dict[str, Any]:
        """Return nothing: other splits are checked without a range."""
        return {}


def _known(label: str, known: frozenset[str]) -> str:
    fix = nearest(label, known)
    return fix if len(fix) < 200 else f"{len(known)} labels are known from train"


def sorted_labels(labels: Collection[str], column: str | None = None) -> tuple[str, ...]:
    """Order labels: by number where all are numbers, else by name."""
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    if not all(math.isfinite(number) for number in numbers.values()):
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (numbers[label], label)))


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


def utf8(text: str, what: str) -> bytes:
    """Return text as UTF-8, which half a character and a byte of another encoding cannot be; `what` names it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Fault(f"the {what} is not valid UTF-8", "save the file as UTF-8") from None


def as_label(value: Any, column: str = "label") -> str | None:
    """Return a label's name, whatever the file's type and Unicode form: 1, 1.0 and "1" are the same label."""
    text = value if isinstance(value, str) else plain(value, column)
    return (nfc(text).strip() or None) if text is not None else None


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
