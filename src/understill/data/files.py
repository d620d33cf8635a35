"""Data files: what their names say, where they are, and what a row of them is."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from understill.errors import Problem, UserError, nearest
from understill.names import expanded, matching

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
CODECS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
#: Formats that are text, and so have an encoding.
TEXT = ("csv", "tsv", "jsonl")


class BadFile(UserError):
    """A file that cannot be read at all, as one problem that can be listed with others."""

    def __init__(self, place: str, what: str, fix: str = "") -> None:
        self.problem = Problem(place, what, fix)
        super().__init__(str(self.problem))


class Row(NamedTuple):
    """One row: its line (its row in Parquet and Excel), the values asked for, and what is wrong with it, if anything.

    The values of a row with a fault are the cells as they were read.
    """

    number: int
    values: tuple[Any, ...]
    fault: str = ""
    fix: str = ""


@dataclass(frozen=True)
class File:
    """A data file whose name says how to read it; what the name leaves open is detected where it is not given."""

    path: Path
    format: str
    codec: str | None = None
    encoding: str | None = None  # of text
    separator: str | None = None  # of .csv and .tsv

    def place(self, number: int) -> str:
        """Say where a row stands."""
        return f"{self.path}:row {number}" if self.format in ("parquet", "excel") else f"{self.path}:{number}"


def data_file(path: Path, encoding: str | None = None, separator: str | None = None) -> File:
    """Tell format and compression from the name."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    codec = CODECS.get(suffixes[-1]) if suffixes else None
    if codec:
        suffixes.pop()
    form = FORMATS.get(suffixes[-1]) if suffixes else None
    if form is None and suffixes[-1:] == [".xls"]:
        raise BadFile(str(path), "the old format of Excel is not read", "save the file as .xlsx or as CSV UTF-8")
    if form is None:
        fix = "use .parquet, .xlsx, .csv, .tsv or .jsonl, the last three plain or with .gz or .zst"
        raise BadFile(str(path), "the name does not say what the file holds", fix)
    if form not in TEXT and codec:
        name = "Parquet" if form == "parquet" else "Excel"
        raise BadFile(str(path), f"{name} compresses inside; the file must not be compressed again", "unpack it")
    return File(path, form, codec, encoding, separator)


def find_files(
    patterns: Iterable[str],
    roots: Sequence[Path] = (Path(),),
    encoding: str | None = None,
    separator: str | None = None,
) -> list[File]:
    """Find the files of names and globs; each is looked up in the first root that has it."""
    return [data_file(path, encoding, separator) for pattern in patterns for path in _matches(pattern, roots)]


def _matches(pattern: str, roots: Sequence[Path]) -> list[Path]:
    given = expanded(pattern)
    for root in roots:
        path = root / given
        if os.path.isfile(path):  # unlike Path's, it takes a name that no file can have for one that is not there
            return [path]
        if os.path.isdir(path):
            raise BadFile(str(path), "is a folder", f"name the files in it, for instance {pattern.rstrip('/')}/*.csv")
        if glob.has_magic(pattern):
            try:
                paths = [Path(name) for name in matching(str(path)) if Path(name).is_file()]
            except OverflowError as error:
                raise BadFile(pattern, str(error), "name a smaller folder") from None
            if paths:
                return paths
    what = "no file matches this pattern" if glob.has_magic(pattern) else "no such file"
    raise BadFile(pattern, what, _looked_in(given, roots))


def _looked_in(given: Path, roots: Sequence[Path]) -> str:
    """Name the file that was probably meant, or the folders that were searched."""
    folders = list(dict.fromkeys((root / given).parent for root in roots))
    names = [path.name for folder in folders if os.path.isdir(folder) for path in folder.iterdir() if path.is_file()]
    return nearest(given.name, names, "looked in " + " and ".join(str(folder.resolve()) for folder in folders))


def positions(file: File, header: Sequence[str], columns: Sequence[str], optional: Collection[str]) -> list[int | None]:
    """Find each column asked for; None stands for an optional one that is absent."""
    places: list[int | None] = []
    for name in columns:
        if name not in header and name not in optional:
            raise _no_column(file, header, name)
        if list(header).count(name) > 1:
            times = list(header).count(name)
            raise BadFile(str(file.path), f'the column "{name}" is there {times} times', "rename one")
        places.append(header.index(name) if name in header else None)
    return places


def _no_column(file: File, header: Sequence[str], name: str) -> BadFile:
    if len(header) == 1 and file.format in ("csv", "tsv") and name in header[0]:
        fix = 'name the sign between its columns, for instance separator: ";"'
        return BadFile(str(file.path), f'the whole header is one column, "{header[0][:100]}"', fix)
    what = f'there is no column "{name}"; the columns are: {shortened(header)}'
    return BadFile(str(file.path), what, nearest(name, header, "name one of these"))


def shortened(names: Sequence[str], most: int = 30) -> str:
    """Write the first of many names."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def empty(file: File) -> BadFile:
    """Say that a file holds nothing."""
    return BadFile(str(file.path), "the file is empty", "give a file with data, or leave this one out")


def short(error: Exception) -> str:
    """Return the first line of a message, without a trailing stop."""
    lines = str(error).splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__
