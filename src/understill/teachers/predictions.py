"""Files of predictions, as teachers: answers of another model, a language model or a person."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understill.atomic import fingerprint, known_digest
from understill.data.check import BadRows, row_id
from understill.data.files import BadFile, File, find_files, shortened
from understill.data.groups import grouping, teaching
from understill.data.read import columns_of, read_rows
from understill.data.taskdata import TaskData, id_keys
from understill.errors import DataError, UserError, counted, listed, nearest
from understill.plugins import TEACHERS
from understill.recipe import Recipe
from understill.recipe.schema import PredictionsSpec
from understill.targets.store import ROUNDING
from understill.tasks import Task
from understill.tasks.cells import Fault, as_label, as_score, plain
from understill.tasks.classification import logit_columns
from understill.teachers.label_map import bare, by_name, suggestion
from understill.teachers.protocol import Floats, Logits, Opening, Progress, Teacher

Values = Literal["auto", "probabilities", "logits"]

#: What the labels that were not chosen share. A label alone would have infinite logits, and whoever chose it may err.
DOUBT = 0.05
#: No probability is taken to be lower: 0 has no logarithm, and in a file it only means that digits ran out.
LEAST = 1e-4
#: How far the probabilities of a row may be from 1 together.
SLACK = 1e-3

_ID = re.compile(r"[0-9a-f]{24}")


@TEACHERS.own("predictions")
class PredictionsType:
    """Files of answers."""

    Spec = PredictionsSpec

    @staticmethod
    def digest_of(spec: PredictionsSpec, recipe: Recipe) -> str:
        """Return the digest of what decides its answers, without reading them."""
        return predictions_digest(find_files(spec.predictions, recipe.roots()), spec.labels, spec.values)

    @staticmethod
    def open(spec: PredictionsSpec, opening: Opening) -> Teacher:
        """Read its answers, some of which must be about rows to learn from."""
        files = find_files(spec.predictions, opening.recipe.roots())
        answers = read_predictions(opening.name, files, opening.data.task, spec.labels, spec.values)
        splits = opening.data.splits.items()
        answers.must_match([data for split, data in splits if split in ("train", "unlabelled")])
        return answers


@dataclass(frozen=True, eq=False)
class PredictionsTeacher:
    """The answers of files, looked up by row id."""

    name: str
    digest: str
    task: Task
    keys: NDArray[np.uint64]  # [n], sorted; the last 64 bits of the rows' ids
    values: Logits  # [n, outputs]

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return the files' answer to each row; NaN where they have none."""
        answered, places = self._find(data)
        columns = data.task.kind.order(self.task, data.task)
        logits = np.full((data.rows, len(columns)), np.nan, np.float32)
        logits[answered] = self.values[places[answered]][:, columns]
        if progress:
            progress(data.rows)
        return logits

    def must_match(self, splits: Iterable[TaskData]) -> None:
        """Stop where the files answer no row of these splits, or no query of a ranking as a whole."""
        rows = matched = whole = 0
        for data in splits:
            answered, groups = self._find(data)[0], grouping(data)
            useful = np.ones(data.rows, bool) if groups is None else teaching(data, groups)
            missing = np.zeros(data.rows, bool) if groups is None else np.isin(groups, groups[~answered])
            rows += int(useful.sum())
            matched += int((useful & answered).sum())
            whole += int((useful & answered & ~missing).sum())
        if not matched:
            texts = listed([f'"{column}"' for column in self.task.text], "and")
            raise UserError(
                f"teacher {self.name}: none of its {len(self.keys):,} predictions is about a row of {self.task.name} "
                "to learn from; "
                f'rows are found by their id in a column "id" (24 hex digits, made of the task\'s name and the texts), '
                f"or by {texts}, which must be letter for letter the texts of the task's own files"
            )
        if not whole:
            raise UserError(
                f"teacher {self.name}: it scores {matched:,} of the {rows:,} candidates of {self.task.name} to learn "
                "from, but of no query all, and a query is only taught as a whole → score every candidate of a query"
            )

    def _find(self, data: TaskData) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        keys = id_keys(data.table()["id"])
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[places] == keys, places


def read_predictions(
    name: str, files: Sequence[File], task: Task, labels: Mapping[str, str], values: Values
) -> PredictionsTeacher:
    """Read files of predictions; everything that is wrong with their rows is raised together."""
    forms = [_form(name, file, task, labels) for file in files]
    if len({(form.hard, form.logits) for form in forms}) > 1:
        raise UserError(f"teacher {name}: some of its files hold labels, others numbers → make them two teachers")
    rows = _ReadRows(files)
    for number, (file, form) in enumerate(zip(files, forms, strict=True)):
        for row in read_rows(file, form.columns, ("id",)):
            try:
                if row.fault:
                    raise Fault(row.fault, row.fix)
                if (numbers := form.numbers(row.values)) is not None:
                    rows.add(number, row.number, form.key(row.values), numbers)
            except Fault as fault:
                rows.bad.add(file.place(row.number), fault)
    raw = np.array(rows.values, np.float64).reshape(-1, task.outputs)
    if not rows.bad.total and not len(raw):
        raise UserError(f"teacher {name}: its files hold no predictions, only empty cells")
    if task.kind.has_classes and len(raw):
        given = "logits" if forms[0].logits else "probabilities" if forms[0].hard else values
        raw = _log_probabilities(raw, rows, given)
    keys, logits = _sorted(rows, raw, ROUNDING if forms[0].logits else 0.0)
    if total := rows.bad.total:
        shown = rows.bad.rows[: DataError.SHOWN]
        raise DataError(f"teacher {name}: {counted(total, 'prediction')} cannot be used", shown, total)
    return PredictionsTeacher(name, predictions_digest(files, labels, values), task, keys, logits)


def predictions_digest(files: Sequence[File], labels: Mapping[str, str], values: Values) -> str:
    """Return the digest of what decides the predictions, without reading their rows."""
    contents = sorted(known_digest(file.path) for file in files)
    return fingerprint({"files": contents, "labels": dict(labels), "values": values})


# What a file holds ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Which columns of a file name a row, and which hold the answer to it."""

    task: Task
    texts: tuple[str, ...]  # empty where there is only the id
    answer_columns: tuple[str, ...]  # one column for each label, or the one that holds the score or the label
    names: Mapping[str, int] | None = None  # what the labels may be called; None where numbers are read

    @property
    def hard(self) -> bool:
        return self.names is not None

    @property
    def logits(self) -> bool:
        """Whether these are the columns that `understill label` writes."""
        return self.answer_columns == tuple(logit_columns(self.task))

    @property
    def columns(self) -> tuple[str, ...]:
        return ("id", *self.texts, *self.answer_columns)

    def key(self, values: Sequence[Any]) -> int:
        """Return the last 64 bits of a row's id."""
        name = plain(values[0], "id") or ""
        if self.texts:  # ids of other makers may look like ours, so texts go first
            texts = [plain(value, column) or "" for value, column in zip(values[1:], self.texts, strict=False)]
            name = row_id(self.task.name, texts)
        elif not _ID.fullmatch(name):
            raise Fault(f'"{name[:60]}" is not a row id', "ids have 24 hex digits; or give the texts instead")
        return int(name[8:], 16)

    def numbers(self, values: Sequence[Any]) -> list[float] | None:
        """Return a row's numbers; None where all cells are empty."""
        cells = values[1 + len(self.texts) :]
        if self.names is not None:
            return self._chosen(as_label(cells[0], self.answer_columns[0]), self.names)
        numbers = [as_score(cell) for cell in cells]
        known = [number for number in numbers if number is not None]
        if known and len(known) < len(numbers):
            raise Fault(
                f'no number in column "{self.answer_columns[numbers.index(None)]}"', "fill it, or empty the whole row"
            )
        return known or None

    def _chosen(self, label: str | None, names: Mapping[str, int]) -> list[float] | None:
        if label is None:
            return None
        number = names.get(label, names.get(bare(label)))
        if number is None:
            raise Fault(f'unknown label "{label[:60]}"', lambda: nearest(label, self.task.labels))
        shared = [DOUBT / (len(self.task.labels) - 1)] * len(self.task.labels)
        return [*shared[:number], 1 - DOUBT, *shared[number + 1 :]]


def _form(name: str, file: File, task: Task, given: Mapping[str, str]) -> _Form:
    """Find out what a file holds, by the names of its columns."""
    there = columns_of(file)
    texts = task.text if all(column in there for column in task.text) else ()
    if "id" not in there and not texts:
        wanted = listed([f'"{column}"' for column in task.text], "and")
        raise BadFile(str(file.path), f'no column "id" and no {wanted}', "rows are found by their id or by their texts")
    free = [column for column in there if column not in ("id", *task.text)]
    if not task.kind.has_classes and task.outputs > 1:
        several = tuple(f"{task.name}_{end}" for end in task.kind.answer_columns(task))
        if missing := [column for column in several if column not in free]:
            what = f"no column {listed(missing, 'and')}; the columns are: {shortened(there)}"
            raise BadFile(str(file.path), what, "name them as `understill predict` does")
        return _Form(task, texts, several)
    if not task.kind.has_classes:
        named = (_answered(task), "score", task.name, *([] if task.kind.named else [task.label]))
        column = next((column for column in named if column in free), None)
        if column is None:
            raise BadFile(str(file.path), f"no scores; the columns are: {shortened(there)}", 'name one of them "score"')
        return _Form(task, texts, (column,))
    places = _label_columns(name, free, task, given)
    if places is not None:
        return _Form(task, texts, places)
    column = next((column for column in (_answered(task), "label", task.label) if column in free), None)
    if column is None:
        what = f"neither a column for each label of {task.name} ({shortened(task.labels)}) nor one that names the label"
        fix = f"name the columns so, or say which is which, for instance labels: {{{suggestion(free, task.labels)}}}"
        raise BadFile(str(file.path), f"{what}; the columns are: {shortened(there)}", fix)
    return _Form(task, texts, (column,), _names(name, task, given))


def _answered(task: Task) -> str:
    """Name the column that `understill predict` writes; beside it a file's label is still the gold one."""
    return f"{task.name}_predicted"


def _label_columns(name: str, free: Sequence[str], task: Task, given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the column of each label, where every label has one."""
    if set(labelled := logit_columns(task)) <= set(free):
        return tuple(labelled)
    if not given:
        places = by_name(task.labels, free)
        return tuple(free[places[label]] for label in task.labels) if len(places) == len(task.labels) else None
    if not all(column in free for column in given):
        return None
    columns = {label: column for column, label in given.items()}
    if len(columns) < len(given) or set(columns) != set(task.labels):
        raise UserError(f"teacher {name}: labels must name one column for each of {shortened(task.labels)}")
    return tuple(columns[label] for label in task.labels)


def _names(name: str, task: Task, given: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of the labels by what they may be called."""
    for label in given.values():
        if label not in task.labels:
            raise UserError(f'teacher {name}: labels names "{label}" → {nearest(label, task.labels)}')
    numbers = {label: number for number, label in enumerate(task.labels)}
    loose = Counter(bare(label) for label in task.labels)
    names = {bare(label): number for label, number in numbers.items() if loose[bare(label)] == 1}
    return names | numbers | {called: numbers[label] for called, label in given.items()}


# Rows ----------------------------------------------------------------------------------------------------------------


class _ReadRows:
    """Rows that were read, each with its place, and what is wrong with those that cannot be used."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self.keys, self.values = array("Q"), array("d")
        self._file, self._line = array("I"), array("Q")
        self.bad = BadRows()

    def add(self, file: int, line: int, key: int, numbers: Sequence[float]) -> None:
        """Keep a row."""
        self.keys.append(key)
        self.values.extend(numbers)
        self._file.append(file)
        self._line.append(line)

    def place(self, number: int) -> str:
        """Say where a row stands."""
        return self.files[self._file[number]].place(self._line[number])

    def refuse(self, number: int, what: str, fix: str) -> None:
        """Note that a row cannot be used."""
        self.bad.add(self.place(number), Fault(what, fix))


def _log_probabilities(raw: Floats, rows: _ReadRows, values: Values) -> Floats:
    """Turn probabilities into logits; numbers that are none are logits already."""
    sums = raw.sum(axis=1)
    sound = (raw >= 0).all(axis=1) & (np.abs(sums - 1) <= SLACK)
    if values == "logits":
        return raw
    # Logits that look like probabilities on most rows do not occur; probabilities with some bad rows do.
    if values == "auto" and sound.mean() < 0.5:
        if (raw >= 0).all() and (np.abs(sums - 100) <= 1).all():
            rows.refuse(0, "the numbers look like percentages", "divide them by 100")
        return raw
    for number in np.flatnonzero(~sound).tolist():
        what = f"these are not probabilities: they add up to {sums[number]:.4g}"
        if (raw[number] < 0).any():
            what = f"{raw[number].min():g} is not a probability"
        rows.refuse(number, what, "correct them, or set values: logits if that is what they are")
    return logarithms(raw)


def logarithms(probabilities: Floats) -> Floats:
    """Return the logarithms of probabilities, […, choices], none of them 0."""
    kept = np.maximum(probabilities, LEAST)
    logs: Floats = np.log(kept / kept.sum(axis=-1, keepdims=True))
    return logs


def _sorted(rows: _ReadRows, values: Floats, slack: float) -> tuple[NDArray[np.uint64], Logits]:
    """Sort by key, noting rows that contradict one another by more than some slack."""
    keys = np.array(rows.keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    keys, logits = keys[order], values[order].astype(np.float32)
    again = np.zeros(len(keys), bool)
    again[1:] = keys[1:] == keys[:-1]
    first = np.maximum.accumulate(np.where(again, 0, np.arange(len(keys))))
    apart = np.abs(logits - logits[first]).max(axis=1) > slack * np.fmax(1.0, np.abs(logits).max(axis=1))
    for number in np.flatnonzero(apart).tolist():
        before = rows.place(order[first[number]])
        rows.refuse(order[number], f"the same row stands in {before} with other values", "keep one of them")
    return keys, logits
