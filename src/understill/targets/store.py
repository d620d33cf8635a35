"""The store of soft targets: each teacher's answers to each row, as Parquet with a manifest and checksums."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from understill.atomic import fault_of, write_json
from understill.data.taskdata import TaskData
from understill.errors import UserError, listed
from understill.tasks import Task

#: Goes up whenever the files change their meaning, so that old ones are not read.
FORMAT = 3
#: The column that every teacher has; others are named by the losses that need them.
LOGITS = "logits"
TABLE = "targets.parquet"
MANIFEST = "manifest.json"
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
    """The answers of teachers to the rows of one split of a task."""

    task: Task
    split: str
    teachers: tuple[TeacherFacts, ...]
    columns: Mapping[str, NDArray[np.float32]]  # [teachers, rows, …] each; NaN where a teacher has no answer

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

    A row of NaN says that the teacher has no answer to it.
    """
    if not teachers or len({teacher.name for teacher in teachers}) < len(teachers):
        raise ValueError("soft targets need teachers, each with a name of its own")
    shapes = _shapes(data.task, answers)
    table = _table(data, teachers, shapes, answers, dtype)
    manifest = {
        "format": FORMAT,
        "task": data.task.to_dict(),
        "split": data.split,
        "data": data.fingerprint,
        "rows": table.num_rows,
        "columns": [{"name": name, "shape": shape} for name, shape in shapes.items()],
        "teachers": [asdict(teacher) for teacher in teachers],
        "dtype": dtype,
        "rule": dict(rule),
    }
    # Ids and logits hardly ever repeat, so dictionaries would only cost.
    pq.write_table(table, folder / TABLE, compression="zstd", use_dictionary=False)
    write_json(folder / MANIFEST, manifest)


def _shapes(task: Task, answers: Mapping[str, Sequence[NDArray[np.float32]]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of one row of each column, after making sure that teachers agree on it."""
    shapes = {name: {values.shape[1:] for values in arrays} for name, arrays in answers.items()}
    for name, several in shapes.items():
        if name != LOGITS and len(several) != 1:
            raise UserError(f"task {task.name}: teachers give the column {name} in different shapes, {sorted(several)}")
    return {name: (task.outputs,) if name == LOGITS else several.pop() for name, several in shapes.items()}


def _table(
    data: TaskData,
    teachers: Sequence[TeacherFacts],
    shapes: Mapping[str, tuple[int, ...]],
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
    for name, shape in shapes.items():
        for index, (teacher, given) in enumerate(zip(teachers, answers[name], strict=True)):
            place = f"teacher {teacher.name}, task {data.task.name}"
            if given.shape != (right := (data.rows, *shape)):
                what = "rows × outputs" if name == LOGITS else f"rows × {name}"
                raise UserError(f"{place}: {name} of shape {list(given.shape)}, but {what} are {list(right)}")
            values = given.reshape(data.rows, math.prod(shape))
            unanswered = _check_finite(place, name, values, ids, dtype)
            _same(place, name, values[again], values[first[number[again]]], ids, again)
            kept = np.where(unanswered[:, None], 0, values)[chosen].astype(dtype)
            flat, mask = pa.array(kept.ravel()), pa.array(unanswered[chosen])
            stored[f"{name}_{index}"] = pa.FixedSizeListArray.from_arrays(flat, math.prod(shape), mask=mask)
    return pa.table(stored)


def _check_finite(place: str, column: str, values: NDArray[np.float32], ids: Any, dtype: str) -> NDArray[np.bool_]:
    """Return which rows a teacher does not answer, after making sure that its other numbers can be stored."""
    unanswered = np.asarray(np.isnan(values).all(axis=1))
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1) & ~unanswered)
    if len(broken):
        raise UserError(
            f"{place}: {len(broken):,} of {len(values):,} rows have {column} that are not all finite numbers, such as "
            f"the row with id {ids[broken[0]]}; train the teacher again, or correct its predictions"
        )
    limit = float(np.finfo(dtype).max)
    if (np.abs(values) > limit).any():
        raise UserError(
            f"{place}: {column} go up to {np.nanmax(np.abs(values)):g}, and {dtype} ends at {limit:g}; "
            "write targets.dtype: float32"
        )
    return unanswered


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
            f"as the row with id {ids[differing[0]]}; the teacher must give the same texts the same answer"
        )


def read_targets(folder: Path, data: TaskData, teachers: Mapping[str, str]) -> SoftTargets:
    """Return the targets of each row of the data, from the teachers of these names and digests, in their order."""
    if fault := fault_of(folder):
        raise _bad(folder, fault)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if fault := _mismatch(manifest, data, teachers):
        raise _bad(folder, fault)
    facts = {each["name"]: TeacherFacts(**each) for each in manifest["teachers"]}
    number = {name: index for index, name in enumerate(facts)}
    # Joined by name: the order of the task's labels may have changed.
    labels = data.task.kind.order(Task.from_dict(manifest["task"]), data.task)
    with pq.ParquetFile(folder / TABLE) as table:
        ids = table.read(["id"]).column("id").combine_chunks()
        rows = pc.index_in(data.table().column("id"), value_set=ids).combine_chunks().to_numpy()
        columns = {}
        for name, shape in ((column["name"], column["shape"]) for column in manifest["columns"]):
            columns[name] = np.empty((len(teachers), len(rows), *shape), np.float32)
            for index, teacher in enumerate(teachers):
                values = _values(table.read([f"{name}_{number[teacher]}"]).column(0).combine_chunks())[rows]
                values = values[:, labels] if name == LOGITS else values
                columns[name][index] = values.reshape(len(rows), *shape)
    return SoftTargets(data.task, data.split, tuple(facts[name] for name in teachers), columns)


def _mismatch(manifest: Mapping[str, Any], data: TaskData, teachers: Mapping[str, str]) -> str:
    """Say why stored targets are not those of this data and these teachers as they are now; empty where they are."""
    if manifest["format"] != FORMAT:
        return f"{MANIFEST} has format {manifest['format']}, and this understill reads format {FORMAT}"
    try:
        task, theirs = data.task, Task.from_dict(manifest["task"])
    except (ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} has no task that can be read ({error})"
    if (theirs.name, theirs.kind) != (task.name, task.kind):
        return f"it is of the {theirs.kind} task {theirs.name}, not of the {task.kind} task {task.name}"
    if manifest["split"] != data.split:
        return f"it is of the split {manifest['split']}, not of {data.split}"
    if task.kind.turned(theirs, task) or sorted(theirs.labels) != sorted(task.labels):
        mine = f"those of task {task.name} are {listed(task.labels, 'and')}"
        return f"its labels are {listed(theirs.labels, 'and')}, and {mine}"
    if manifest["data"] != data.fingerprint:
        return f"the {data.split} data of task {task.name} has changed since the teachers answered it"
    digests = {each["name"]: each["digest"] for each in manifest["teachers"]}
    if set(digests) != set(teachers):
        return f"it is of {listed(list(digests), 'and')}, not of {listed(list(teachers), 'and')}"
    changed = [name for name, digest in teachers.items() if digests[name] != digest]
    return f"teacher {listed(changed, 'and')} has changed since it answered" if changed else ""


def _values(column: Any) -> NDArray[np.float32]:
    """Return one teacher's values, NaN where it has no answer."""
    flat = column.values.to_numpy(zero_copy_only=False).astype(np.float32)
    values: NDArray[np.float32] = flat.reshape(len(column), column.type.list_size)
    values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan  # Arrow leaves open what lies under a null
    return values


def _bad(folder: Path, what: str) -> BadTargets:
    return BadTargets(
        f"the soft targets in {folder} cannot be used: {what}; delete the folder, and they are made again"
    )
