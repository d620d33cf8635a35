"""Profiles of data files: how one is read, and what its columns hold, by its first rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from understill.data.columns import NONE_NAMED, ColumnProfile, ColumnRole, NamedColumns, profile_columns
from understill.data.files import BadFile, File, data_file
from understill.data.read import columns_of, read_rows, settled, sheets_of
from understill.data.text_encoding import OtherEncoding
from understill.tasks.cells import Fault, plain

#: Rows that are looked at.
SAMPLED = 2000


@dataclass(frozen=True)
class FileProfile:
    """One file: how it is read, its columns, and how many rows were looked at."""

    file: File
    columns: tuple[ColumnProfile, ...]
    rows: int
    whole: bool  # these are all of its rows
    encoding: str | None = None  # to be written down: it is neither UTF-8 nor marked
    doubts: tuple[str, ...] = ()  # about what of it is read
    ascii: bool = True  # as far as its first rows tell

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.file.path

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]

    def with_role(self, *roles: ColumnRole) -> list[ColumnProfile]:
        """Return the columns that look as if they had one of these roles."""
        return [column for column in self.columns if column.role in roles]


def profile_file(path: Path, named: NamedColumns = NONE_NAMED) -> FileProfile:
    """Look at the first rows of a file and infer what its columns hold."""
    file, encoding = data_file(path), None
    try:
        file = settled(file)
    except OtherEncoding as error:
        if error.encoding is None:  # there is no task yet to name it in
            fix = "save the file as UTF-8, or write a recipe by hand, with its encoding: in the task"
            raise BadFile(str(path), "the text is not UTF-8", fix) from None
        encoding = error.encoding
        file = settled(replace(file, encoding=encoding))
    names = [name for name in dict.fromkeys(columns_of(file)) if name]
    looked_at = list(itertools.islice(read_rows(file, names, names), SAMPLED))
    rows = [row.values for row in looked_at if not row.fault]
    faulty = [row for row in looked_at if row.fault]
    if not rows:
        raise BadFile(file.place(faulty[0].number), f"no row can be read: {faulty[0].fault}", faulty[0].fix)
    doubts = []
    if faulty:
        what = " → ".join(filter(None, (faulty[0].fault, faulty[0].fix)))
        doubts.append(f"{len(faulty):,} of the first {len(looked_at):,} rows cannot be read: {what}")
    if len(sheets := sheets_of(file)) > 1:
        doubts.append(f'of its {len(sheets):,} sheets only the first is read, "{sheets[0]}"')
    values = [[_shown(row[place]) for row in rows] for place in range(len(names))]
    columns = profile_columns(names, values, named)
    ascii_only = all(value is None or value.isascii() for column in values for value in column)
    whole = len(looked_at) < SAMPLED
    return FileProfile(file, columns, len(rows), whole, encoding, tuple(doubts), ascii_only)


def _shown(value: object) -> str | None:
    try:
        return plain(value, "")
    except Fault:
        return None
