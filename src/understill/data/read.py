"""Read rows from Parquet, Excel, CSV, TSV and JSONL files, each row with its place in the file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa
import pyarrow.parquet as pq

from understill.data.delimited import delimited_rows, header_of, separator_of, wrong_width
from understill.data.files import TEXT, BadFile, File, Row, empty, positions, short
from understill.data.text_encoding import encoding_of, lines_of, open_bytes
from understill.names import nfc

#: JSON lines may leave keys out, so a column is missing only when none of the first lines has it.
JSON_LOOKAHEAD = 1000
BATCH = 8192
#: What a cell becomes that Python has no value for.
UNREADABLE = object()


def settled(file: File, whole: bool = True) -> File:
    """Return a file with its encoding and separator known; the encoding is detected from all of it or its beginning."""
    if file.format not in TEXT:
        return file
    file = replace(file, encoding=encoding_of(file, whole))
    return file if file.format == "jsonl" else replace(file, separator=separator_of(file))


def read_rows(file: File, columns: Sequence[str], optional: Collection[str] = ()) -> Iterator[Row]:
    """Yield every row's values of the named columns; optional columns may be absent and are then None.

    A row that cannot be read is yielded with its fault; the rest of the file is read all the same. Bytes that are not
    of the file's encoding come as lone surrogates, so that only the rows that use them suffer.
    """
    reader = {"parquet": _parquet, "jsonl": _jsonl, "excel": _excel}.get(file.format, delimited_rows)
    none = True
    for row in reader(settled(file), columns, optional):
        none = False
        yield row
    if none:
        raise BadFile(str(file.path), "the file has no rows", "give a file with data, or leave this one out")


def columns_of(file: File, lines: int | None = JSON_LOOKAHEAD) -> tuple[str, ...]:
    """Name the columns of a file; for JSON lines, the keys of its first lines, or of all."""
    if file.format == "parquet":
        with _open_parquet(file) as parquet:
            return tuple(map(nfc, parquet.schema_arrow.names))
    if file.format == "excel":
        return _excel_header(file)
    file = settled(file, whole=False)
    if file.format == "jsonl":
        return tuple(dict.fromkeys(key for _, row, _ in _json_lines(file, lines) for key in row or ()))
    return header_of(file)


def refuse_broken_bytes(file: File) -> None:
    """Refuse a file of UTF-8 with bytes that are none, with its first such line."""
    if file.format not in TEXT or file.encoding not in ("utf-8", "utf-8-sig"):
        return
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                raise BadFile(file.place(number), "the text is not UTF-8", "save the file as UTF-8") from None


def read_unquoted(file: File, header: Sequence[str] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbered rows of a TSV in which quotes are ordinary characters; the header, given or not, is first."""
    if header is not None:
        yield 0, list(header)
    for number, line in enumerate(lines_of(file), 1):
        if cells := line.rstrip("\r\n"):
            yield number, cells.split("\t")


# JSON lines ---------------------------------------------------------------------------------------------------------


def _json_lines(file: File, limit: int | None = None) -> Iterator[tuple[int, dict[str, Any] | None, str]]:
    """Yield line number, object and, where the line holds none, its text."""
    for number, line in enumerate(islice(lines_of(file), limit), 1):
        text = line.strip()
        if not text:
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield number, {nfc(key): cell for key, cell in value.items()}, ""
        else:
            yield number, None, text


def _jsonl(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    ahead = columns_of(file)
    if ahead:
        positions(file, ahead, columns, optional)
    for number, value, text in _json_lines(file):
        if value is None:
            yield Row(number, (text,), "not a JSON object")
        else:
            yield Row(number, tuple([value.get(name) for name in columns]))


# Excel --------------------------------------------------------------------------------------------------------------


def sheets_of(file: File) -> list[str]:
    """Name the sheets of a workbook; there are none in other files."""
    if file.format != "excel":
        return []
    book = _book(file)
    try:
        return [sheet.title for sheet in book.worksheets]
    finally:
        book.close()


def _excel_header(file: File) -> tuple[str, ...]:
    """Return the names of the columns: the first row that is not empty."""
    for _, cells in _sheet(file):
        return tuple("" if cell is None else nfc(str(cell)).strip() for cell in cells)
    raise empty(file)


def _excel(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    """Yield the rows of the first sheet; rows without any value are none."""
    header = _excel_header(file)
    places = positions(file, header, columns, optional)
    rows = _sheet(file)
    next(rows)
    for number, cells in rows:
        if len(cells) > len(header):
            yield Row(number, tuple(cells), wrong_width(len(cells), len(header))[0])
        else:
            whole = (*cells, *[None] * (len(header) - len(cells)))
            yield Row(number, tuple([None if place is None else whole[place] for place in places]))


def _book(file: File) -> Any:
    try:
        from openpyxl import load_workbook
    except ImportError:
        fix = 'pip install "understill[excel]", or save the file as CSV UTF-8'
        raise BadFile(str(file.path), "Excel files need openpyxl, which is not installed", fix) from None
    try:
        return load_workbook(file.path, read_only=True, data_only=True)
    except (BadZipFile, KeyError, OSError, ValueError):
        fix = "save the file again as .xlsx, without a password"
        raise BadFile(str(file.path), "not a readable Excel file", fix) from None


def _sheet(file: File) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the cells of each row, up to its last value."""
    book = _book(file)
    try:
        if not book.worksheets:
            raise empty(file)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
            cells = list(values)
            while cells and (cells[-1] is None or cells[-1] == ""):
                cells.pop()
            if cells:
                yield number, cells
    finally:
        book.close()


# Parquet ------------------------------------------------------------------------------------------------------------


def _open_parquet(file: File) -> Any:
    if file.path.stat().st_size == 0:
        raise empty(file)
    try:
        return pq.ParquetFile(file.path, memory_map=True, pre_buffer=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadFile(str(file.path), f"not a readable Parquet file: {short(error)}", "write the file again") from None


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
        names = {nfc(name): name for name in parquet.schema_arrow.names}
        positions(file, [nfc(name) for name in parquet.schema_arrow.names], columns, optional)
        present = dict.fromkeys(name for name in columns if name in names)
        number = 0
        batches = parquet.iter_batches(size, columns=[names[name] for name in present])
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                what = f"cannot be read after row {number}: {short(error)}"
                raise BadFile(str(file.path), what, "write the file again") from None
            yield batch.rename_columns([nfc(name) for name in batch.schema.names])
            number += batch.num_rows


def batch_rows(batch: Any, columns: Sequence[str], before: int = 0) -> Iterator[Row]:
    """Yield the rows of an Arrow batch, numbered on from those before; columns it lacks are None."""
    names = batch.schema.names
    values = [_plain(batch.column(name)) if name in names else [None] * batch.num_rows for name in columns]
    for number, row in enumerate(zip(*values, strict=True), before + 1):
        strange = any(value is UNREADABLE for value in row)
        yield Row(number, tuple(map(str, row)), "a date or time is out of range") if strange else Row(number, row)


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
    except (ValueError, OverflowError, KeyError):  # a date that Python has not, or a time zone
        return [_value(cell) for cell in column]


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ValueError, OverflowError, KeyError):
        return UNREADABLE
