"""Predictions for files of any size: read, answer and write a piece at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from understill.data.read import BadFile, File, columns_of, data_file, read_rows
from understill.errors import UserError, nearest
from understill.evaluate.predict import Predictions
from understill.evaluate.predictor import Predictor
from understill.tasks import Task

PIECE = 4096


@dataclass(frozen=True)
class Predicted:
    """What became of a file."""

    rows: int
    unanswered: int  # rows without the texts a task needs, or that could not be read
    tasks: tuple[str, ...]


def predict_file(
    predictor: Predictor,
    source: Path,
    target: Path,
    tasks: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Predicted:
    """Write a file's rows with a model's answers added; a row that cannot be answered keeps empty ones."""
    if not source.is_file():
        raise UserError(f"{source}: no such file")
    file = data_file(source)
    there = columns_of(file)
    chosen = _choose(predictor, there, tasks, columns)
    for task in chosen:
        if clash := next((name for name in _names(task) if name in there), None):
            raise UserError(f'{source} has a column "{clash}" already; rename it, so that no answer overwrites it')
    rows = unanswered = 0
    building = target.with_name(f".{target.name}.{os.getpid()}")
    writer = _writer(target, building)
    try:
        for values, sound in _pieces(file, there):
            table, missing = _answer(predictor, there, values, sound, chosen)
            writer.write(table)
            rows, unanswered = rows + len(values), unanswered + missing
            if progress:
                progress(len(values))
        writer.close()
        building.replace(target)
    finally:
        building.unlink(missing_ok=True)
    return Predicted(rows, unanswered, tuple(chosen))


def _choose(
    predictor: Predictor, there: Sequence[str], tasks: Sequence[str] | None, columns: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the text columns that each task reads: those given, or those it was trained on."""
    pair = None if columns is None else len(columns) == 2
    chosen = {task.name: tuple(columns or task.text) for task in predictor.choose(tasks, pair)}
    for name, needed in chosen.items():
        missing = [column for column in needed if column not in there]
        if missing and (tasks or columns):
            fix = nearest(missing[0], there)
            raise UserError(
                f'task {name} reads "{missing[0]}", which is not a column of the file; {fix}; or give --columns'
            )
    usable = {name: needed for name, needed in chosen.items() if set(needed) <= set(there)}
    if not usable:
        wanted = "; ".join(f"{name}: {', '.join(needed)}" for name, needed in chosen.items())
        raise UserError(f"the file has none of the text columns the model's tasks read ({wanted}); give --columns")
    return usable


def _pieces(file: File, there: Sequence[str]) -> Iterator[tuple[list[tuple[Any, ...]], list[bool]]]:
    """Cut a file into pieces of whole rows; rows that cannot be read come as empty ones."""
    values: list[tuple[Any, ...]] = []
    sound: list[bool] = []
    for row in read_rows(file, there, optional=there):
        values.append((None,) * len(there) if row.fault else row.values)
        sound.append(not row.fault)
        if len(values) == PIECE:
            yield values, sound
            values, sound = [], []
    if values:
        yield values, sound


def _answer(
    predictor: Predictor,
    there: Sequence[str],
    values: list[tuple[Any, ...]],
    sound: list[bool],
    chosen: dict[str, tuple[str, ...]],
) -> tuple[pa.Table, int]:
    """Add the answers to one piece, and count the rows that got none from some task."""
    position = {name: index for index, name in enumerate(there)}
    columns: dict[str, Any] = {name: [_kept(row[index]) for row in values] for name, index in position.items()}
    known = {task.name: task for task in predictor.tasks}
    without: set[int] = {number for number, good in enumerate(sound) if not good}
    # Tasks that read the same columns share one pass of the encoder.
    for needed in dict.fromkeys(chosen.values()):
        tasks = [known[name] for name, columns_of_task in chosen.items() if columns_of_task == needed]
        texts = [[_text(row[position[column]]) for column in needed] for row in values]
        whole = [number for number, row in enumerate(texts) if all(row)]
        without.update(set(range(len(values))) - set(whole))
        first = [str(texts[number][0]) for number in whole]
        second = [str(texts[number][1]) for number in whole] if len(needed) == 2 else None
        found = predictor.logits(first, second, tasks) if whole else {}
        for task in tasks:
            columns |= _columns(task, found.get(task.name), whole, len(values))
    return pa.table(columns), len(without)


def _names(task: str) -> tuple[str, str]:
    return task, f"{task}_probability"


def _columns(task: Task, found: Predictions | None, whole: list[int], rows: int) -> dict[str, pa.Array]:
    """Return a task's answers as columns: the label and its probability, or the score."""
    scored = task.kind != "classification"
    answers: list[Any] = [None] * rows
    certain: list[float | None] = [None] * rows
    if found is not None:
        best = found.probabilities.max(axis=1)
        for number, answer, probability in zip(whole, found.answers, best, strict=True):
            answers[number], certain[number] = answer, float(probability)
    name, probability_name = _names(task.name)
    if scored:
        return {name: pa.array(answers, pa.float32())}
    return {name: pa.array(answers, pa.string()), probability_name: pa.array(certain, pa.float32())}


def _kept(value: Any) -> str | None:
    """Carry a value of the file along, as text, so that every piece has the same types."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return _kept(value)


class _Writer(Protocol):
    def write(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class _Lazy:
    """A Parquet or CSV writer that opens with the first piece, whose columns it takes."""

    def __init__(self, path: Path, csv: bool) -> None:
        self.path, self.csv = path, csv
        self.inner: Any = None

    def write(self, table: pa.Table) -> None:
        if self.inner is None:
            make = pacsv.CSVWriter if self.csv else pq.ParquetWriter
            self.inner = make(self.path, table.schema)
        self.inner.write_table(table)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()


class _JsonLines:
    """A writer of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    def write(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            self.file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.close()


def _writer(target: Path, building: Path) -> _Writer:
    try:
        kind = data_file(target)
    except BadFile:
        kind = None
    if kind is None or kind.codec or kind.format == "tsv":
        raise UserError(f"--out {target}: the name must end in .parquet, .csv or .jsonl")
    if not target.parent.is_dir():
        raise UserError(f"--out {target}: there is no folder {target.parent}")
    return _JsonLines(building) if kind.format == "jsonl" else _Lazy(building, kind.format == "csv")
