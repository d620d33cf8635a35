"""Sources: where the rows of a split come from, and what determines them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from understill.atomic import known_digest
from understill.data.files import BadFile, File, Row
from understill.data.read import batch_rows, read_rows
from understill.tasks import Task
from understill.tasks.cells import Fault, decimal_sign, pointed

#: Rows whose scores are looked at to tell their decimal sign.
LOOKED_AT = 1000
#: One file of a source: how to name the place of a row, and the rows as (text, [text, [group,]] gold).
Part = tuple[Callable[[int], str], Iterator[Row]]


@dataclass(frozen=True)
class Source:
    """The rows of one split: plain values that determine them, and a way to read them file by file."""

    identity: Callable[[], Any]
    parts: Callable[[], Iterator[Part]]


def digest_file(path: Path) -> str:
    """Return the digest of a data file's content; one that cannot be read is listed with the other problems."""
    try:
        return known_digest(path)
    except OSError as error:
        raise BadFile(str(path), f"cannot be read: {error.strerror or error}") from None


def from_files(files: Sequence[File], task: Task, gold_optional: bool, decimal: str | None = None) -> Source:
    """Take the user's files, by the task's column names."""
    columns = [*task.columns, task.label or "label"]
    optional = columns[-1:] if gold_optional else ()

    def parts() -> Iterator[Part]:
        for file in files:
            rows = read_rows(file, columns, optional)
            yield file.place, _with_points(rows, decimal) if "decimal" in task.kind.settings else rows

    given = [decimal] if decimal else []
    return Source(lambda: [*_identity(files), *given], parts)


def _with_points(rows: Iterator[Row], decimal: str | None) -> Iterator[Row]:
    """Write scores with points, which stand last; the decimal sign is that of the first rows where none is given."""
    first = list(islice(rows, LOOKED_AT))
    decimal = decimal or decimal_sign(row.values[-1] for row in first if not row.fault)
    for row in chain(first, rows):
        if row.fault:
            yield row
            continue
        try:
            yield Row(row.number, (*row.values[:-1], pointed(row.values[-1], decimal)))
        except Fault as fault:
            yield Row(row.number, row.values, fault.what, fault.fix)


def from_texts(files: Sequence[File], task: Task) -> Source:
    """Take the texts of the user's files, with their groups; a label that stands beside them is never read."""

    def parts() -> Iterator[Part]:
        for file in files:
            yield file.place, without_gold(read_rows(file, task.columns))

    return Source(lambda: _identity(files), parts)


def _identity(files: Sequence[File]) -> list[Any]:
    identity = []
    for file in files:
        # How a file is to be read counts where the recipe says it; what is detected follows from the bytes.
        given = [file.encoding or "", file.separator or ""] if file.encoding or file.separator else []
        identity.append([file.format, file.codec or "", digest_file(file.path), *given])
    return identity


def without_gold(rows: Iterator[Row]) -> Iterator[Row]:
    """Put the place of a label, empty, after texts that were read alone."""
    for row in rows:
        yield row if row.fault else Row(row.number, (*row.values, None))


def from_demo(task: Task, split: str, rows: int, seed: int) -> Source:
    """Take the embedded demo data of so many training rows."""
    from understill.data import demo

    columns = [*task.columns, "label"]
    count = demo.splits(rows)[split]

    def identity() -> Any:
        # The generator is code and phrases: when they change, so do its rows.
        folder = Path(demo.__file__).parent
        code = [digest_file(path) for path in sorted([*folder.glob("*.py"), *folder.glob("*.yaml")])]
        return {"demo": task.name, "split": split, "rows": count, "seed": seed, "code": code}

    def numbered() -> Iterator[Row]:
        before = 0
        for batch in demo.batches(task.name, split, count, seed):
            yield from batch_rows(batch, columns, before)
            before += batch.num_rows

    def parts() -> Iterator[Part]:
        yield (lambda number: f"demo {task.name} {split}:row {number}"), numbered()

    return Source(identity, parts)
