"""Delimited: the rows of CSV and TSV files, whatever separates their cells."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import IO

from understill.data.files import BadFile, File, Row, empty, positions, short
from understill.data.text_encoding import open_text
from understill.errors import counted
from understill.names import nfc

OWN = {"csv": ",", "tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
#: The line by which Excel says what separates cells.
SEP_LINE = re.compile(r'"?sep=(?P<sign>.)"?\s*', re.I)
#: Characters and rows that are looked at to find the separator.
SNIFFED, SNIFFED_ROWS = 1 << 16, 50
#: A field longer than this many characters makes its row a bad one; csv's own limit is far lower.
LONGEST_FIELD = 1 << 26
#: A quote that is still open after so many lines was never meant to be closed.
LONGEST_ROW = 10_000


class _Lines:
    """The lines of a file, numbered; those that a failed row has taken can be given back."""

    def __init__(self, text: IO[str]) -> None:
        self.text = text
        self.number = 0
        self.row: list[str] = []  # the lines of the row that is being read
        self.back: deque[str] = deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if len(self.row) >= LONGEST_ROW:
            raise csv.Error("unexpected end of data")
        line = self.back.popleft() if self.back else next(self.text)
        self.row.append(line)
        self.number += 1
        return line

    def give_back(self) -> str:
        """Take back all lines of the current row but the first, and return that one."""
        self.number -= len(self.row) - 1
        self.back.extendleft(reversed(self.row[1:]))
        return self.row[0]

    def skip_sep_line(self) -> None:
        """Pass over the line by which Excel names the separator."""
        first = next(self, "")
        if not SEP_LINE.fullmatch(first):
            self.back.append(first)
            self.number -= 1
        self.row.clear()


# Separators and headers ---------------------------------------------------------------------------------------------


def separator_of(file: File) -> str:
    """Return what separates the cells: as given, as Excel's first line says, or as most rows fit the header."""
    if file.separator:
        return file.separator
    with open_text(file, newline="") as text:
        sample = text.read(SNIFFED)
    if match := SEP_LINE.fullmatch(sample.partition("\n")[0]):
        return match["sign"]
    own, fits = OWN[file.format], {}
    for sign in sorted(SEPARATORS, key=lambda sign: sign != own):  # its own wins a draw
        rows = _first_rows(sample, sign)
        if rows and len(rows[0]) > 1:
            if sign == own == "\t":  # quotes may be anything in a TSV, so its rows say little
                return sign
            fits[sign] = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
    return max(fits, key=lambda sign: fits[sign], default=own)


def names_separator(file: File) -> bool:
    """Tell whether a file's first line is Excel's, which says what separates cells."""
    if file.format not in OWN:
        return False
    with open_text(file, newline="") as text:
        return SEP_LINE.fullmatch(text.readline(100)) is not None


def _first_rows(sample: str, separator: str) -> list[list[str]]:
    """Split the beginning of a file; a row that cannot be split fits no header."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    while len(rows) < SNIFFED_ROWS:
        try:
            if row := next(reader):
                rows.append(row)
        except csv.Error:
            rows.append([])
        except StopIteration:
            break
    return rows


def header_of(file: File) -> tuple[str, ...]:
    """Return the names of the columns of a file whose separator is known."""
    with open_text(file, newline="") as text:
        return _header(file, _Lines(text))


def _header(file: File, lines: _Lines) -> tuple[str, ...]:
    lines.skip_sep_line()
    try:
        reader = csv.reader(lines, delimiter=file.separator or OWN[file.format], strict=True)
        header = next((row for row in reader if row), None)
    except csv.Error as error:
        raise BadFile(str(file.path), f"the header cannot be read: {short(error)}") from None
    if header is None:
        raise empty(file)
    return tuple(nfc(readable(name)).strip() for name in header)


def readable(text: str) -> str:
    """Make bytes visible that were not of the file's encoding."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, from an escape in JSON
        return text.encode("utf-8", "backslashreplace").decode()


# Rows ---------------------------------------------------------------------------------------------------------------


def delimited_rows(file: File, columns: Sequence[str], optional: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a file whose separator is known."""
    if csv.field_size_limit() < LONGEST_FIELD:
        csv.field_size_limit(LONGEST_FIELD)
    separator = file.separator or OWN[file.format]
    with open_text(file, newline="") as text:
        lines = _Lines(text)
        header = _header(file, lines)
        places = positions(file, header, columns, optional)
        for start, cells, fault in _split(file, lines, separator, len(header)):
            if fault:
                yield Row(start, tuple(cells), fault)
            elif len(cells) != len(header):
                yield Row(start, tuple(cells), *wrong_width(len(cells), len(header), separator))
            else:
                yield Row(start, tuple([None if place is None else cells[place] for place in places]))


def wrong_width(cells: int, header: int, separator: str = "") -> tuple[str, str]:
    """Say that a row has too many cells or too few, and what helps."""
    sign = "tabs" if separator == "\t" else f'"{separator}"'
    fix = f"put quotes around texts that contain {sign}" if cells > header and separator else ""
    return f"{counted(cells, 'cell')} where the header has {header}", fix


def _split(file: File, lines: _Lines, separator: str, width: int) -> Iterator[tuple[int, list[str], str]]:
    """Yield the line that each row starts on, its cells, and why its quotes cannot be read."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        start = lines.number + 1
        lines.row.clear()
        fault = ""
        try:
            cells = next(reader)
            if file.format == "tsv" and len(lines.row) > 1 and lines.row[0].count(separator) == width - 1:
                # The first line is a whole row: two stray quotes, some lines apart, hold no field between them.
                cells = lines.give_back().rstrip("\r\n").split(separator)
        except StopIteration:
            return
        except csv.Error as error:
            # Only the first line is lost: what follows may be sound rows that an open quote has swallowed.
            cells, fault = _without_quotes(file, lines.give_back(), separator, error)
        if cells:
            yield start, cells, fault


def _without_quotes(file: File, line: str, separator: str, error: csv.Error) -> tuple[list[str], str]:
    """Split a line whose quotes do not match: in TSV they are then ordinary characters, in CSV the row is bad."""
    line = line.rstrip("\r\n")
    if file.format == "tsv":
        return line.split(separator), ""
    if "field larger" in str(error):
        return [line[:1000]], f"a field is longer than {LONGEST_FIELD:,} characters"
    if "expected after" in str(error):
        return [line], "there is text after a closing quote"
    return [line], "a quote is opened and never closed"
