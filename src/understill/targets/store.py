"""The store of soft targets: what each teacher knows of each row, as Parquet with a manifest, checked when read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BeforeValidator, InstanceOf, TypeAdapter

from understill.data.taskdata import TaskData
from understill.disk import fault_of, write_json
from understill.errors import UserError, listed
from understill.targets.columns import LOGITS, Column, columns_of
from understill.tasks import Task

#: Goes up whenever the files change their meaning, so that old ones are not read.
FORMAT = 3
TABLE = "targets.parquet"
MANIFEST = "manifest.json"
TYPES = {"float16": pa.float16(), "float32": pa.float32()}
#: How far the logits of two rows with the same texts may lie apart, next to the larger of 1 and the row's largest
#: logit: in bfloat16, the rest of a batch moves a row's logits by about a hundredth.
ROUNDING = 0.03


class BadTargets(UserError):
    """Soft targets that must not be used."""


@dataclass(frozen=True)
class TeacherFacts:
    """Who a teacher is: its name, the digest of all that it was made of, and its primary dev score."""

    name: str
    digest: str
    score: float | None


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """What teachers say about the rows of one split of a task."""

    task: Task
    split: str
    teachers: tuple[TeacherFacts, ...]
    columns: Mapping[str, NDArray[np.float32]]  # [teachers, rows, …] each; NaN where a teacher says nothing of a row

    @property
    def logits(self) -> NDArray[np.float32]:
        """Raw logits, [teachers, rows, outputs]."""
        return self.columns[LOGITS]


def write_targets(
    folder: Path,
    data: TaskData,
    teachers: Sequence[TeacherFacts],
    answers: Mapping[str, Sequence[NDArray[np.float32]]],
    *,
    dtype: Literal["float16", "float32"],
    rule: Mapping[str, Any],
) -> None:
    """Write columns, by name, of each teacher, [rows, …] in the order of the data's rows; of logits, the task's labels.

    A row of NaN says that the teacher has nothing to say about it.
    """
    if not teachers or len({teacher.name for teacher in teachers}) < len(teachers):
        raise ValueError("soft targets need teachers, each with a name of its own")
    columns = columns_of(data.task, answers)
    table = _table(data, teachers, columns, answers, dtype)
    manifest = {
        "format": FORMAT,
        "task": data.task.to_dict(),
        "split": data.split,
        "data": data.fingerprint,
        "rows": table.num_rows,
        "columns": [asdict(column) for column in columns],
        "teachers": [asdict(teacher) for teacher in teachers],
        "dtype": dtype,
        "rule": dict(rule),
    }
    try:
        # Ids and logits hardly ever repeat, so dictionaries would only cost.
        pq.write_table(table, folder / TABLE, compression="zstd", use_dictionary=False)
        write_json(folder / MANIFEST, manifest)
    except OSError as error:
        raise UserError(f"cannot write soft targets to {folder.parent}: {error.strerror or error}") from error


def _table(
    data: TaskData,
    teachers: Sequence[TeacherFacts],
    columns: Sequence[Column],
    answers: Mapping[str, Sequence[NDArray[np.float32]]],
    dtype: str,
) -> Any:
    """Return the rows to store: each id once, sorted."""
    ids = data.table().column("id").combine_chunks()
    encoded = ids.dictionary_encode()
    number = encoded.indices.to_numpy()  # of each row's id, counted as they appear
    first = np.unique(number, return_index=True)[1]
    order = pc.sort_indices(encoded.dictionary)
    again = np.flatnonzero(first[number] != np.arange(len(number)))
    chosen = first[order.to_numpy()]
    stored = {"id": encoded.dictionary.take(order)}
    for column in columns:
        for index, (teacher, given) in enumerate(zip(teachers, answers[column.name], strict=True)):
            place = f"teacher {teacher.name}, task {data.task.name}"
            if given.shape != (right := (data.rows, *column.shape)):
                what = "rows × outputs" if column.name == LOGITS else f"rows × {column.name}"
                raise UserError(f"{place}: {column.name} of shape {list(given.shape)}, but {what} are {list(right)}")
            values = given.reshape(data.rows, column.numbers)
            silent = _silent(place, column.name, values, ids, dtype)
            _same(place, column.name, values[again], values[first[number[again]]], ids, again)
            kept = np.where(silent[:, None], 0, values)[chosen].astype(dtype)
            flat, mask = pa.array(kept.ravel()), pa.array(silent[chosen])
            stored[f"{column.name}_{index}"] = pa.FixedSizeListArray.from_arrays(flat, column.numbers, mask=mask)
    return pa.table(stored)


def _silent(place: str, column: str, values: NDArray[np.float32], ids: Any, dtype: str) -> NDArray[np.bool_]:
    """Say on which rows a teacher is silent, after making sure that its other numbers can be stored."""
    silent = np.asarray(np.isnan(values).all(axis=1))
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1) & ~silent)
    if len(broken):
        raise UserError(
            f"{place}: {len(broken):,} of {len(values):,} rows have {column} that are not all finite numbers, such as "
            f"the row with id {ids[broken[0]]}; train the teacher again, or mend its predictions"
        )
    limit = float(np.finfo(dtype).max)
    if (np.abs(values) > limit).any():
        raise UserError(
            f"{place}: {column} go up to {np.nanmax(np.abs(values)):g}, and {dtype} ends at {limit:g}; "
            "write targets.dtype: float32"
        )
    return silent


def _same(
    place: str,
    column: str,
    values: NDArray[np.float32],
    others: NDArray[np.float32],
    ids: Any,
    rows: NDArray[np.int64],
) -> None:
    """Make sure that rows with the same id have the same values."""
    scale = np.fmax(1.0, np.abs(others).max(axis=1, keepdims=True, initial=0.0))
    apart = np.abs(values.astype(np.float64) - others)
    alike = (apart <= ROUNDING * scale) | (np.isnan(values) & np.isnan(others))
    differing = rows[~alike.all(axis=1)]
    if len(differing):
        raise UserError(
            f"{place}: {len(differing):,} rows have {column} that differ from those of a row with the same texts, such "
            f"as the row with id {ids[differing[0]]}; the teacher must say the same about the same texts"
        )


def read_targets(folder: Path, data: TaskData, teachers: Mapping[str, str]) -> SoftTargets:
    """Return the targets of each row of the data, from the teachers of these names and digests, in their order."""
    manifest = _manifest(folder)
    _compare(folder, manifest, data)
    _compare_teachers(folder, manifest, teachers)
    number = {teacher.name: index for index, teacher in enumerate(manifest.teachers)}
    labels = data.task.kind.order(manifest.task, data.task)  # joined by name: the task's order may have changed
    try:
        with pq.ParquetFile(folder / TABLE) as table:
            _compare_columns(folder, manifest, table.schema_arrow)
            rows = _rows(folder, manifest, table.read(["id"]).column("id").combine_chunks(), data)
            columns = {}
            for column in manifest.columns:
                columns[column.name] = np.empty((len(teachers), len(rows), *column.shape), np.float32)
                for index, name in enumerate(teachers):
                    stored = table.read([f"{column.name}_{number[name]}"]).column(0).combine_chunks()
                    values = _values(folder, name, column.name, stored)[rows]
                    values = values[:, labels] if column.name == LOGITS else values
                    columns[column.name][index] = values.reshape(len(rows), *column.shape)
    except (OSError, pa.ArrowException) as error:
        raise _bad(folder, f"{TABLE} cannot be read ({_line(error)})") from error
    facts = {teacher.name: teacher for teacher in manifest.teachers}
    return SoftTargets(data.task, data.split, tuple(facts[name] for name in teachers), columns)


@dataclass(frozen=True)
class _Manifest:
    """What the manifest says that is relied upon."""

    task: Annotated[InstanceOf[Task], BeforeValidator(Task.from_dict)]
    split: str
    data: str
    rows: int
    columns: tuple[Column, ...]
    teachers: tuple[TeacherFacts, ...]
    dtype: Literal["float16", "float32"]


def _manifest(folder: Path) -> _Manifest:
    if fault := fault_of(folder):
        raise _bad(folder, fault)
    try:
        values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if values["format"] == FORMAT:
            return TypeAdapter(_Manifest).validate_python(values)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _bad(folder, f"{MANIFEST} cannot be read ({type(error).__name__}: {_line(error)})") from error
    raise _bad(folder, f"{MANIFEST} has format {values['format']}, and this understill reads format {FORMAT}")


def _compare(folder: Path, manifest: _Manifest, data: TaskData) -> None:
    """Make sure that targets are of this task, split and data."""
    task, theirs = data.task, manifest.task
    if (theirs.name, theirs.kind) != (task.name, task.kind):
        raise _bad(folder, f"it is of the {theirs.kind} task {theirs.name}, not of the {task.kind} task {task.name}")
    if manifest.split != data.split:
        raise _bad(folder, f"it is of the split {manifest.split}, not of {data.split}")
    outputs = next((column.shape for column in manifest.columns if column.name == LOGITS), ())
    if not outputs == (theirs.outputs,) == (task.outputs,):
        raise _bad(folder, f"it has {math.prod(outputs)} outputs a row, and task {task.name} has {task.outputs}")
    turned = task.kind.turned(theirs, task)
    if turned or sorted(theirs.labels) != sorted(task.labels):
        raise _bad(
            folder,
            f"its labels are {listed(theirs.labels, 'and')}, and those of task {task.name} are "
            f"{listed(task.labels, 'and')}",
        )
    if manifest.data != data.fingerprint:
        raise _bad(folder, f"the {data.split} data of task {task.name} has changed since the teachers answered it")


def _compare_teachers(folder: Path, manifest: _Manifest, teachers: Mapping[str, str]) -> None:
    """Make sure that targets are of these teachers, as they are now."""
    known = {teacher.name: teacher.digest for teacher in manifest.teachers}
    missing = [name for name in teachers if name not in known]
    if missing:
        raise _bad(folder, f"it has nothing from teacher {listed(missing, 'and')}")
    extra = [teacher.name for teacher in manifest.teachers if teacher.name not in teachers]
    if extra or len(known) < len(manifest.teachers):
        raise _bad(folder, f"it has other teachers too, or one twice: {listed(extra or list(known), 'and')}")
    changed = [name for name, digest in teachers.items() if known[name] != digest]
    if changed:
        raise _bad(folder, f"teacher {listed(changed, 'and')} has changed since it answered")


def _compare_columns(folder: Path, manifest: _Manifest, columns: Any) -> None:
    """Make sure that the table has the columns of the manifest; the names inside lists do not matter."""
    named = [("id", pa.string())]
    for column in manifest.columns:
        numbers = pa.list_(pa.field("element", TYPES[manifest.dtype]), column.numbers)
        named += [(f"{column.name}_{index}", numbers) for index in range(len(manifest.teachers))]
    if columns.remove_metadata() != pa.schema(named):
        raise _bad(folder, f"{TABLE} does not have the columns that {MANIFEST} speaks of")


def _rows(folder: Path, manifest: _Manifest, ids: Any, data: TaskData) -> NDArray[np.int64]:
    """Return where the targets of each row of the data stand."""
    if len(ids) != manifest.rows:
        raise _bad(folder, f"{TABLE} has {len(ids):,} rows, and {MANIFEST} speaks of {manifest.rows:,}")
    if ids.null_count or not pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
        raise _bad(folder, f"the ids in {TABLE} are not sorted, or some come twice")
    places = pc.fill_null(pc.index_in(data.table().column("id"), value_set=ids), -1)
    rows: NDArray[np.int64] = places.combine_chunks().to_numpy().astype(np.int64)
    missing = int((rows < 0).sum())
    if missing:
        raise _bad(folder, f"{missing:,} of the {len(rows):,} rows of task {data.task.name} have no targets in it")
    if len(np.unique(rows)) != len(ids):
        raise _bad(folder, f"it has targets of rows that task {data.task.name} does not have")
    return rows


def _values(folder: Path, teacher: str, name: str, column: Any) -> NDArray[np.float32]:
    """Return one teacher's values, NaN where it is silent."""
    flat = column.values.to_numpy(zero_copy_only=False).astype(np.float32)
    values: NDArray[np.float32] = flat.reshape(len(column), column.type.list_size)
    spoken = column.is_valid().to_numpy(zero_copy_only=False)
    if not np.isfinite(values[spoken]).all():
        raise _bad(folder, f"it has {name} of teacher {teacher} that are not finite numbers")
    values[~spoken] = np.nan  # Arrow leaves open what lies under a null
    return values


def _bad(folder: Path, what: str) -> BadTargets:
    return BadTargets(
        f"the soft targets in {folder} cannot be used: {what}; delete the folder, and they are made again"
    )


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
