"""Predictions for files of any size: read, answer and write a chunk at a time."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from understill.atomic import hidden_file
from understill.data.delimited import readable
from understill.data.files import BadFile, File, Row, data_file
from understill.data.read import batch_rows, columns_of, parquet_batches, read_rows, refuse_broken_bytes, settled
from understill.data.text_encoding import OtherEncoding
from understill.errors import Problem, UserError, nearest
from understill.inference.predictor import Predictions, Predictor, choose
from understill.tasks import Task
from understill.tasks.cells import Fault, plain
from understill.tasks.classification import logit_columns

PIECE = 4096
#: Rows without an answer that are named one by one.
SHOWN = 20
#: How cells begin that spreadsheets take for formulas, and those among them that are just numbers.
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r]")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?", re.I)


@dataclass(frozen=True)
class Predicted:
    """How many rows of a file were answered, and which were not."""

    rows: int
    unanswered: int  # rows that could not be read, or lack a text that some task needs
    tasks: tuple[str, ...]
    faults: tuple[Problem, ...] = field(default=(), compare=False)  # where and why, of the first of them

    @property
    def answered(self) -> int:
        """The rows with an answer of every task."""
        return self.rows - self.unanswered


class FileChunk(NamedTuple):
    """Some rows of a file, column by column."""

    columns: Mapping[str, Any]  # carried along: values, or Arrow columns where Parquet stays Parquet
    texts: Mapping[str, Sequence[Any]]  # the values of the columns that tasks read
    rows: Sequence[Row]  # their numbers and faults


def predict_file(
    predictor: Predictor,
    source: Path,
    target: Path,
    tasks: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
    encoding: str | None = None,
    quote_formulas: bool = False,
    logits: bool = False,
    may_be_empty: bool = False,
) -> Predicted:
    """Write a file's rows with a model's answers added; a row that cannot be answered keeps its cells.

    With `quote_formulas`, cells of a CSV file that a spreadsheet would run get an apostrophe in front. With `logits`,
    those of each class have a column too, which is what a student learns from.
    """
    file, out, there = _look_at(source, target, encoding, quote_formulas)
    chosen = _choose(predictor.tasks, there, tasks, columns)
    schema = _schema(file, out, there, list(chosen), logits)
    rows = unanswered = 0
    faults: list[Problem] = []
    with hidden_file(target) as building:
        with _writing(out.format, building, schema, quote_formulas) as write:
            for piece in _pieces(file, out, there, chosen):
                answers, missing = _answer(predictor, piece, chosen, logits)
                write({**piece.columns, **answers})
                rows, unanswered = rows + len(piece.rows), unanswered + len(missing)
                faults += [Problem(file.place(each), why) for each, why in missing.items()][: SHOWN - len(faults)]
                if progress:
                    progress(len(piece.rows))
        if not rows and not may_be_empty:
            raise BadFile(str(source), "the file has no rows", "give a file with data")
    return Predicted(rows, unanswered, tuple(task.name for task in chosen), tuple(faults))


def check_files(
    source: Path,
    target: Path,
    known: Sequence[Task],
    tasks: Sequence[str] | None,
    columns: Sequence[str] | None,
    encoding: str | None = None,
    quote_formulas: bool = False,
) -> None:
    """Refuse files that `predict_file` would refuse, before a model is loaded; `known` is empty if only it tells."""
    _, _, there = _look_at(source, target, encoding, quote_formulas)
    if known:
        _choose(known, there, tasks, columns)
    elif missing := [column for column in columns or () if column not in there]:
        raise UserError(f'{source}: there is no column "{missing[0]}" → {nearest(missing[0], there)}')


def _look_at(source: Path, target: Path, encoding: str | None, quoted: bool) -> tuple[File, File, tuple[str, ...]]:
    """Return the file to be read, the one to be written, and the columns of the first."""
    if not os.path.isfile(source):
        raise UserError(f"{source}: no such file")
    out = _target(source, target)
    if quoted and out.format != "csv":
        raise UserError(f"--quote-formulas goes with a .csv file, and {target} is none → leave it out")
    try:
        file = settled(data_file(source, encoding))
    except OtherEncoding as error:
        option = f"--encoding {error.encoding}" if error.encoding else "its --encoding"
        raise BadFile(str(source), error.problem.what, f"add {option}, or save the file as UTF-8") from None
    except LookupError:
        raise UserError(f'--encoding: there is no encoding "{encoding}" → cp949 and cp1252 are some') from None
    refuse_broken_bytes(file)
    return file, out, columns_of(file, lines=None)


def _target(source: Path, target: Path) -> File:
    """Check where the answers go before any work is done."""
    try:
        out = data_file(target)
    except BadFile:
        out = None
    if out is None or out.codec or out.format not in ("parquet", "csv", "jsonl"):
        raise UserError(f"--out {target}: the name must end in .parquet, .csv or .jsonl")
    if not target.parent.is_dir():
        raise UserError(f"--out {target}: there is no folder {target.parent}")
    if target.is_dir():
        raise UserError(f"--out {target}: this is a folder; name a file")
    if target.exists() and target.samefile(source):
        raise UserError(f"--out {target}: this is the file to be read; choose another name, so that it is not lost")
    if not os.access(target.parent, os.W_OK):
        raise UserError(f"--out {target}: nothing may be written in {target.parent}")
    return out


def _choose(
    known: Sequence[Task], there: Sequence[str], tasks: Sequence[str] | None, columns: Sequence[str] | None
) -> dict[Task, tuple[str, ...]]:
    """Return the text columns that each task reads: those given, or those it was trained on."""
    if columns is not None and len(columns) not in (1, 2):
        raise UserError(f"{len(columns)} text columns were given; a task reads one or two")
    pair = None if columns is None else len(columns) == 2
    chosen = {task: tuple(columns or task.text) for task in choose(known, tasks, pair)}
    if not chosen:
        raise UserError(f"the model has no task that reads {'two texts' if pair else 'one text'}")
    for task, needed in chosen.items():
        missing = [column for column in needed if column not in there]
        if missing and (tasks or columns):
            fix = nearest(missing[0], there)
            raise UserError(
                f'task {task.name} reads "{missing[0]}", which is not a column of the file; {fix}; or give --columns'
            )
    usable = {task: needed for task, needed in chosen.items() if set(needed) <= set(there)}
    if not usable:
        wanted = "; ".join(f"{task.name}: {', '.join(needed)}" for task, needed in chosen.items())
        raise UserError(f"the file has none of the text columns the model's tasks read ({wanted}); give --columns")
    return usable


# Columns --------------------------------------------------------------------------------------------------------------


def _answer_fields(task: Task, logits: bool) -> list[tuple[str, pa.DataType]]:
    """Return the columns of a task's answers; labelled files often have one of the task's own name, so these differ."""
    columns = task.kind.answer_columns(task)
    answers = [(f"{task.name}_{end}", pa.string() if cell is str else pa.float32()) for end, cell in columns.items()]
    return answers + [(name, pa.float32()) for name in (logit_columns(task) if logits else ())]


def _schema(file: File, out: File, there: Sequence[str], tasks: Sequence[Task], logits: bool) -> pa.Schema:
    """Return the columns of the output: those of the file, and the answers."""
    # Parquet keeps its types. Other files have none, or several in one column, and text holds them all.
    carried = [(name, pa.string()) for name in there]
    if file.format == out.format == "parquet":
        carried = [(field.name, field.type) for field in pq.read_schema(file.path)]
    answers = [field for task in tasks for field in _answer_fields(task, logits)]
    for name, _ in answers:
        if name in there:
            raise UserError(f'{file.path} has a column "{name}" already; rename it, so that no answer overwrites it')
    return pa.schema([*carried, *answers])


def _pieces(file: File, out: File, there: Sequence[str], chosen: Mapping[Task, tuple[str, ...]]) -> Iterator[FileChunk]:
    """Cut a file into pieces of whole rows."""
    if file.format == out.format == "parquet":
        needed, before = list(dict.fromkeys(name for columns in chosen.values() for name in columns)), 0
        for batch in parquet_batches(file, there, size=PIECE):
            rows = list(batch_rows(batch, needed, before))
            columns = dict(zip(there, batch.columns, strict=True))
            yield FileChunk(columns, _by_column(needed, rows), rows)
            before += batch.num_rows
        return
    read = read_rows(file, there, optional=there)
    fitted = (_fitted(row, len(there), file.separator or " ") if row.fault else row for row in read)
    while rows := list(itertools.islice(fitted, PIECE)):
        values = _by_column(there, rows)
        yield FileChunk(values, values, rows)


def _fitted(row: Row, width: int, separator: str) -> Row:
    """Return a row of the wrong number of cells as one of the right number; what is too much joins the last cell."""
    cells = row.values
    if len(cells) > width:
        cells = (*cells[: width - 1], separator.join(str(cell) for cell in cells[width - 1 :] if cell is not None))
    return row._replace(values=cells + (None,) * (width - len(cells)))


def _by_column(names: Sequence[str], rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row.values[index] for row in rows] for index, name in enumerate(names)}


# Answers --------------------------------------------------------------------------------------------------------------


def _answer(
    predictor: Predictor, piece: FileChunk, chosen: Mapping[Task, tuple[str, ...]], logits: bool
) -> tuple[dict[str, list[Any]], dict[int, str]]:
    """Return the answers to one piece, and the numbers of the rows that got none from some task, with the reason."""
    answers: dict[str, list[Any]] = {}
    faults: dict[int, str] = {}
    # Tasks that read the same columns share one pass of the encoder.
    for needed in dict.fromkeys(chosen.values()):
        tasks = [task for task, columns in chosen.items() if columns == needed]
        whole, texts = [], []
        for place, row in enumerate(piece.rows):
            try:
                if row.fault:
                    raise Fault(row.fault)
                texts.append([_text(piece.texts[name][place], name) for name in needed])
                whole.append(place)
            except Fault as fault:
                faults.setdefault(row.number, fault.what)
        first, *second = zip(*texts, strict=True) if texts else ((),)
        predictions = predictor.finite_logits(first, second[0] if second else None, tasks) if whole else {}
        for task in tasks:
            answers |= _columns(task, predictions.get(task.name), whole, len(piece.rows), logits)
    return answers, dict(sorted(faults.items()))


def _columns(
    task: Task, predictions: Predictions | None, whole: Sequence[int], rows: int, logits: bool
) -> dict[str, list[Any]]:
    """Put a task's answers into columns, empty where a row has no text."""
    columns: dict[str, list[Any]] = {name: [None] * rows for name, _ in _answer_fields(task, logits)}
    if predictions is None:
        return columns
    cells = task.kind.answer_cells(task, predictions.logits)
    if logits and task.kind.has_classes:
        cells = [*cells, *predictions.logits.T.tolist()]
    for column, answers in zip(columns.values(), cells, strict=True):
        for number, answer in zip(whole, answers, strict=True):
            column[number] = answer
    return columns


def _text(value: Any, column: str) -> str:
    """Return what a task reads, as training would, or raise its Fault."""
    text = plain(value, column) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Fault(f'the text in column "{column}" is not valid UTF-8') from None
    if not text.strip():
        raise Fault(f'no text in column "{column}"')
    return text


# Writing --------------------------------------------------------------------------------------------------------------


@contextmanager
def _writing(format: str, path: Path, schema: pa.Schema, quoted: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Give a function that writes columns of rows to a file."""
    if format == "jsonl":  # values stay what they are
        with path.open("w", encoding="utf-8", errors="replace") as file:
            yield lambda columns: file.writelines(_json_lines(columns))
        return
    named = pa.schema([field.with_name(_harmless(field.name)) for field in schema]) if quoted else schema
    with (pacsv.CSVWriter if format == "csv" else pq.ParquetWriter)(path, named) as writer:

        def write(columns: Mapping[str, Any]) -> None:
            arrays = [_array(columns[field.name], field, quoted) for field in schema]
            writer.write_table(pa.Table.from_arrays(arrays, schema=named))

        yield write


def _array(values: Any, field: pa.Field, quoted: bool) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if field.type == pa.string():
        values = [_shown(value) for value in values]
        values = [value and _harmless(value) for value in values] if quoted else values
    return pa.array(values, field.type)


def _harmless(cell: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet takes for a formula; numbers stay as they are."""
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


def _shown(value: Any) -> str | None:
    """Write any value of a file as text."""
    if value is None or value != value:  # NaN is how data frames write "none"
        return None
    if isinstance(value, (bool, list, dict)):
        value = json.dumps(_as_json(value), ensure_ascii=False, default=str)
    return readable(str(value))


def _json_lines(columns: Mapping[str, Any]) -> Iterator[str]:
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, map(_as_json, values), strict=True))
        yield json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _as_json(value: Any) -> Any:
    """Return a value that JSON can hold, with neither infinite numbers nor NaN nor bytes that are not UTF-8."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    nothing = value != value or (isinstance(value, float) and math.isinf(value))
    return None if nothing else value
