"""Check rows: texts, labels and scores as a task needs them, or what is wrong with a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from understill.data.files import BadFile
from understill.errors import DataError, Problem, UserError, counted
from understill.tasks import Task
from understill.tasks.cells import Fault, as_label, plain, utf8


class BadRows:
    """Everything that is wrong with the data of a recipe: the first 300 bad rows in words, all of them counted."""

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

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note what is wrong with a file, and go on."""
        try:
            yield
        except BadFile as error:
            self.files.append(error.problem)

    def raise_if_any(self) -> None:
        """Raise all problems at once; a single one that is about no row is raised as one sentence."""
        files = list(dict.fromkeys(self.files))  # one file may serve several splits
        problems = [*files, *self.rows]
        total = len(files) + self.total
        if not problems:
            return
        if not self.rows and total == 1:
            raise UserError(str(problems[0]))
        parts = [f"{total:,} problems with the data"] if files else []
        if self.rows:
            fix = "fix them, or skip them with data.on_bad_row: skip"
            parts.append(f"{counted(self.total, 'row')} cannot be used; {fix}")
        raise DataError("; ".join(parts), problems, total)


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
    gold: Any  # as the kind of task keeps it; None where there is none


class Check:
    """Checks rows one by one, counts those with gold, and remembers the groups it has seen."""

    def __init__(self, task: Task, rules: Rules) -> None:
        self.task = task
        self.rules = rules
        self.reader = task.kind.reader(task, rules.known, rules.limits)
        self.gold = 0  # rows with a label or score
        self._id = id_maker(task.name)
        self._unit = text_key if rules.by_text else self._id
        self._count = len(task.text)
        self._grouped = task.kind.grouped
        self._queries: dict[str, int] = {}  # groups by name, with a hash of their first text

    def __call__(self, values: Sequence[Any]) -> Checked:
        """Return what is kept of a row, or raise its Fault."""
        texts: list[str] = []
        for index in range(self._count):
            value = values[index]
            # Plain strings are nearly all there is; they are not worth another call.
            whole = isinstance(value, str) and value and not value.isspace()
            texts.append(value if whole else self._text(value, index))
        encoded = [utf8(text, "text") for text in texts]
        name, columns = self._id(encoded), texts
        if self._grouped:
            group = self._group(values[self._count], texts[0]) if self.task.group else texts[0]
            # A group has one first text. Going by that, the same texts in two groups stay on one side too.
            unit, columns = self._unit(encoded[:1]), [*texts, group]
        else:
            unit = self._unit(encoded) if self.rules.by_text else name
        gold = self.reader(values[-1])
        if gold is None:
            if self.rules.needs_gold:
                raise Fault(f'no {self.task.kind.noun} in column "{self.task.label}"')
        else:
            self.gold += 1
        return Checked(name, unit, columns, gold)

    def _group(self, value: Any, query: str) -> str:
        group = as_label(value, self.task.group or "group")
        if group is None:
            raise Fault(f'no group in column "{self.task.group}"')
        utf8(group, "group")
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
    return id_maker(task)([utf8(text, "text") for text in texts])
