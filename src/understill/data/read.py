"""Read rows from Parquet, CSV, TSV and JSONL files, each row with its place in the file."""

from __future__ import annotations

import csv
import glob
import io
import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from understill.errors import Problem, UserError, counted, nearest

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
CODECS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
DELIMITERS = {"csv": ",", "tsv": "\t"}

#: A field longer than this many characters makes its row a bad one; csv's own limit is far lower.
LONGEST_FIELD = 1 << 26
#: A quote that is still open after so many lines was never meant to be closed.
LONGEST_ROW = 10_000
#: JSON lines may leave keys out, so a column is missing only when none of the first lines has it.
JSON_LOOKAHEAD = 1000
BATCH = 8192


class BadFile(UserError):
    """A file that cannot be read at all, as one problem that can be listed with others."""

    def __init__(self, place: str, what: str, fix: str = "") -> None:
        self.problem = Problem(place, what, fix)
        super().__init__(str(self.problem))


class Row(NamedTuple):
    """One row: its line (its row in Parquet), the values asked for, and what is wrong with it, if anything.

    The values of a row with a fault are the cells that were found.
    """

    number: int
    values: tuple[Any, ...]
    fault: str = ""


@dataclass(frozen=True)
class File:
    """A data file whose name says how to read it."""

    path: Path
    format: str
    codec: str | None = None

    def place(self, number: int) -> str:
        """Say where a row stands."""
        return f"{self.path}:row {number}" if self.format == "parquet" else f"{self.path}:{number}"


def data_file(path: Path) -> File:
    """Tell format and compression from the name."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    codec = CODECS.get(suffixes[-1]) if suffixes else None
    if codec:
        suffixes.pop()
    kind = FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        fix = "use .parquet, .csv, .tsv or .jsonl, the last three plain or with .gz or .zst"
        raise BadFile(str(path), "the name does not say what the file holds", fix)
    if kind == "parquet" and codec:
        raise BadFile(str(path), "Parquet compresses inside; the file must not be compressed again", "unpack it")
    return File(path, kind, codec)


def find_files(patterns: Iterable[str], roots: Sequence[Path] = (Path(),)) -> list[File]:
    """Find the files of names and globs; each is looked up in the first root that has it."""
    return [data_file(path) for pattern in patterns for path in _matches(pattern, roots)]


def _matches(pattern: str, roots: Sequence[Path]) -> list[Path]:
    given = Path(pattern).expanduser()
    for root in roots:
        path = root / given
        if path.is_file():
            return [path]
        if path.is_dir():
            raise BadFile(str(path), "is a folder", f"name the files in it, for instance {pattern.rstrip('/')}/*.csv")
        if glob.has_magic(pattern):
            found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True)) if Path(name).is_file()]
            if found:
                return found
    what = "no file matches this pattern" if glob.has_magic(pattern) else "no such file"
    raise BadFile(pattern, what, _looked_in(given, roots))


def _looked_in(given: Path, roots: Sequence[Path]) -> str:
    """Name the file that was probably meant, or the folders that were searched."""
    folders = list(dict.fromkeys((root / given).parent for root in roots))
    names = [path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()]
    close = nearest(given.name, names)
    if close.startswith("did you mean"):
        return close
    return "looked in " + " and ".join(str(folder.resolve()) for folder in folders)


def read_rows(file: File, columns: Sequence[str], optional: Collection[str] = ()) -> Iterator[Row]:
    """Yield every row's values of the named columns; optional columns may be absent and are then None.

    A row that cannot be read is yielded with its fault; the rest of the file is read all the same. Bytes that are not
    UTF-8 come as lone surrogates, so that only the rows that use them suffer.
    """
    reader = {"parquet": _parquet, "jsonl": _jsonl}.get(file.format, _delimited)
    empty = True
    for row in reader(file, columns, optional):
        empty = False
        yield row
    if empty:
        raise BadFile(str(file.path), "the file has no rows", "give a file with data, or leave this one out")


def columns_of(file: File, lines: int | None = JSON_LOOKAHEAD) -> tuple[str, ...]:
    """Name the columns of a file; for JSON lines, the keys of its first lines, or of all."""
    if file.format == "parquet":
        with _open_parquet(file) as parquet:
            return tuple(parquet.schema_arrow.names)
    with _open(file) as stream:
        if file.format == "jsonl":
            return tuple(dict.fromkeys(key for _, row, _ in _json_lines(file, stream, lines) for key in row or ()))
        return _header(file, _Lines(file, stream))[0]


# Which columns ------------------------------------------------------------------------------------------------------


def _positions(file: File, there: Sequence[str], columns: Sequence[str], optional: Collection[str]) -> list[int | None]:
    """Find each column asked for; None stands for an optional one that is absent."""
    places: list[int | None] = []
    for name in columns:
        if name not in there and name not in optional:
            if len(there) == 1 and any(sign in there[0] for sign in ",;\t|"):
                fix = "put commas or semicolons between the columns of a .csv, tabs between those of a .tsv"
                raise BadFile(str(file.path), f'the whole header is one column, "{there[0][:100]}"', fix)
            shown = ", ".join(there[:30]) + (", …" if len(there) > 30 else "")
            close = nearest(name, there)
            fix = close if close.startswith("did you mean") else "name one of these"
            raise BadFile(str(file.path), f'there is no column "{name}"; the columns are: {shown}', fix)
        if list(there).count(name) > 1:
            raise BadFile(str(file.path), f'the column "{name}" is there {list(there).count(name)} times', "rename one")
        places.append(there.index(name) if name in there else None)
    return places


# Streams ------------------------------------------------------------------------------------------------------------


def _open(file: File) -> IO[bytes]:
    """Open a file for reading bytes, decompressed, without its byte order mark."""
    try:
        raw = pa.input_stream(str(file.path), compression=file.codec)
    except OSError as error:
        raise BadFile(str(file.path), f"cannot be opened: {_short(error)}") from None
    stream: Any = io.BufferedReader(raw, 1 << 20)
    try:
        start = stream.peek(4)[:4]
    except OSError:
        raise _damaged(file) from None
    if not start:
        raise BadFile(str(file.path), "the file is empty", "give a file with data, or leave this one out")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadFile(str(file.path), "the text is UTF-16", "save the file as UTF-8")
    if start[:3] == b"\xef\xbb\xbf":
        stream.read(3)
    return stream  # type: ignore[no-any-return]


def _damaged(file: File) -> BadFile:
    what = "cannot be read to its end"
    if file.codec:
        what = f"cannot be unpacked as {file.codec}; it is damaged or cut short"
    return BadFile(str(file.path), what, "copy the file again")


def _short(error: Exception) -> str:
    """Return the first line of a message, without a trailing stop."""
    lines = str(error).splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__


def refuse_other_encodings(file: File) -> None:
    """Refuse a text file that is not UTF-8, with its first line that is not."""
    if file.format == "parquet":
        return
    with _open(file) as stream:
        number = 0
        try:
            for line in stream:
                number += 1
                line.decode()
        except OSError:
            raise _damaged(file) from None
        except UnicodeDecodeError:
            raise BadFile(file.place(number), "the text is not UTF-8", "save the file as UTF-8") from None


# CSV and TSV --------------------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a file, numbered; those that a failed row has taken can be given back."""

    def __init__(self, file: File, stream: IO[bytes]) -> None:
        self.file = file
        self.text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        self.number = 0
        self.row: list[str] = []  # the lines of the row that is being read
        self.back: deque[str] = deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if len(self.row) >= LONGEST_ROW:
            raise csv.Error("unexpected end of data")
        try:
            line = self.back.popleft() if self.back else next(self.text)
        except OSError:
            raise _damaged(self.file) from None
        self.row.append(line)
        self.number += 1
        return line

    def give_back(self) -> str:
        """Take back all lines of the current row but the first, and return that one."""
        self.number -= len(self.row) - 1
        self.back.extendleft(reversed(self.row[1:]))
        return self.row[0]


def _header(file: File, lines: _Lines) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns, and what separates them: in a .csv a comma, or else a semicolon."""
    delimiter = DELIMITERS[file.format]
    try:
        header = next((row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row), None)
        if header and len(header) == 1 and delimiter == "," and ";" in header[0]:
            # Where commas are for decimals, spreadsheets separate cells by semicolons.
            delimiter = ";"
            header = next(row for row in csv.reader(lines.row, delimiter=delimiter, strict=True) if row)
    except csv.Error as error:
        raise BadFile(str(file.path), f"the header cannot be read: {_short(error)}") from None
    if header is None:
        raise BadFile(str(file.path), "the file is empty", "give a file with data, or leave this one out")
    return tuple(readable(name).strip() for name in header), delimiter


def _delimited(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    if csv.field_size_limit() < LONGEST_FIELD:
        csv.field_size_limit(LONGEST_FIELD)
    with _open(file) as stream:
        lines = _Lines(file, stream)
        there, delimiter = _header(file, lines)
        places = _positions(file, there, columns, optional)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            start = lines.number + 1
            lines.row.clear()
            fault = ""
            try:
                cells = next(reader)
                if file.format == "tsv" and len(lines.row) > 1 and lines.row[0].count("\t") == len(there) - 1:
                    # The first line is a whole row: two stray quotes, some lines apart, hold no field between them.
                    cells = lines.give_back().rstrip("\r\n").split("\t")
            except StopIteration:
                return
            except csv.Error as error:
                # Only the first line is lost: what follows may be sound rows that an open quote has swallowed.
                cells, fault = _without_quotes(file, lines.give_back(), error)
            if not cells:
                continue
            if not fault and len(cells) != len(there):
                fault = f"{counted(len(cells), 'column')} where the header has {len(there)}"
            if fault:
                yield Row(start, tuple(cells), fault)
            else:
                yield Row(start, tuple([None if place is None else cells[place] for place in places]))


def _without_quotes(file: File, line: str, error: csv.Error) -> tuple[list[str], str]:
    """Split a line whose quotes do not match: in TSV they are then ordinary characters, in CSV the row is bad."""
    line = line.rstrip("\r\n")
    if file.format == "tsv":
        return line.split("\t"), ""
    if "field larger" in str(error):
        return [line[:1000]], f"a field is longer than {LONGEST_FIELD:,} characters"
    if "expected after" in str(error):
        return [line], "there is text after a closing quote"
    return [line], "a quote is opened and never closed"


def read_unquoted(file: File, header: Sequence[str] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbered rows of a TSV in which quotes are ordinary characters; the header, given or not, is first."""
    if header is not None:
        yield 0, list(header)
    with _open(file) as stream:
        number = 0
        try:
            for line in stream:
                number += 1
                cells = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
                if cells:
                    yield number, cells.split("\t")
        except OSError:
            raise _damaged(file) from None


def readable(text: str) -> str:
    """Make bytes that were not UTF-8 visible."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, from an escape in JSON
        return text.encode("utf-8", "backslashreplace").decode()


# JSON lines ---------------------------------------------------------------------------------------------------------


def _json_lines(
    file: File, stream: IO[bytes], limit: int | None = None
) -> Iterator[tuple[int, dict[str, Any] | None, str]]:
    """Yield line number, object and, where the line holds none, its text."""
    number = 0
    try:
        for line in stream:
            number += 1
            if limit is not None and number > limit:
                return
            text = line.decode("utf-8", "surrogateescape").strip()
            if not text:
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = None
            yield (number, value, "") if isinstance(value, dict) else (number, None, text)
    except OSError:
        raise _damaged(file) from None


def _jsonl(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    ahead = columns_of(file)
    if ahead:
        _positions(file, ahead, columns, optional)
    with _open(file) as stream:
        for number, value, text in _json_lines(file, stream):
            if value is None:
                yield Row(number, (text,), "not a JSON object")
            else:
                yield Row(number, tuple([value.get(name) for name in columns]))


# Parquet ------------------------------------------------------------------------------------------------------------


def _open_parquet(file: File) -> Any:
    if file.path.stat().st_size == 0:
        raise BadFile(str(file.path), "the file is empty", "give a file with data, or leave this one out")
    try:
        return pq.ParquetFile(file.path, memory_map=True, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise BadFile(str(file.path), f"not a readable Parquet file: {_short(error)}", "write the file again") from None


def _parquet(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    number = 0
    for batch in parquet_batches(file, columns, optional):
        yield from batch_rows(batch, columns, number)
        number += batch.num_rows


def parquet_batches(
    file: File, columns: Sequence[str], optional: Collection[str] = (), size: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield the named columns of a Parquet file piece by piece, as they are; optional ones may be absent."""
    with _open_parquet(file) as parquet:
        names = parquet.schema_arrow.names
        _positions(file, names, columns, optional)
        present = [name for name in columns if name in names]
        number = 0
        batches = parquet.iter_batches(size, columns=list(dict.fromkeys(present)))
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                what = f"cannot be read after row {number}: {_short(error)}"
                raise BadFile(str(file.path), what, "write the file again") from None
            yield batch
            number += batch.num_rows


def batch_rows(batch: Any, columns: Sequence[str], before: int = 0) -> Iterator[Row]:
    """Yield the rows of an Arrow batch, numbered on from those before; columns it lacks are None."""
    names = batch.schema.names
    values = [_plain(batch.column(name)) if name in names else [None] * batch.num_rows for name in columns]
    for number, row in enumerate(zip(*values, strict=True), before + 1):
        yield Row(number, row)


def _plain(column: Any) -> list[Any]:
    """Return Python values; strings that are not UTF-8 come with surrogates, as from text files."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in column.to_pylist()]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return _plain(column.cast(pa.large_binary()))
