"""Excel: the rows of the first sheet of a workbook."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any
from zipfile import BadZipFile

from understill.data.delimited import wrong_width
from understill.data.files import BadFile, File, Row, empty, positions


def excel_header(file: File) -> tuple[str, ...]:
    """Return the names of the columns: the first row that is not empty."""
    for _, cells in _rows(file):
        return tuple("" if cell is None else str(cell).strip() for cell in cells)
    raise empty(file)


def excel_rows(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    """Yield the rows of the first sheet; rows without any value are none."""
    header = excel_header(file)
    places = positions(file, header, columns, optional)
    rows = _rows(file)
    next(rows)
    for number, cells in rows:
        if len(cells) > len(header):
            yield Row(number, tuple(cells), wrong_width(len(cells), len(header))[0])
        else:
            whole = (*cells, *[None] * (len(header) - len(cells)))
            yield Row(number, tuple([None if place is None else whole[place] for place in places]))


def _rows(file: File) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the cells of each row, up to its last value."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        fix = 'pip install "understill[excel]", or save the file as CSV UTF-8'
        raise BadFile(str(file.path), "Excel files need openpyxl, which is not installed", fix) from None
    try:
        book = load_workbook(file.path, read_only=True, data_only=True)
    except (BadZipFile, KeyError, OSError, ValueError):
        fix = "save the file again as .xlsx, without a password"
        raise BadFile(str(file.path), "not a readable Excel file", fix) from None
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
