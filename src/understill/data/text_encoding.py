"""Text encodings: open text files whatever their compression and encoding, and detect which encoding it is."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from understill.data.files import BadFile, File, empty, short

#: Bytes that are looked at to name an encoding.
SAMPLE = 1 << 20
#: What bytes become that are not of the encoding.
ESCAPED = re.compile("[\udc80-\udcff]")
HIGH = re.compile(rb"[\x80-\xff]")
LETTER = re.compile(rb"[A-Za-z]")
#: A syllable of Korean in CP949, of the 2,350 that are in use.
HANGUL = re.compile(rb"[\xb0-\xc8][\xa1-\xfe]")


class OtherEncoding(BadFile):
    """A text file that is not UTF-8, with the encoding that it seems to have, if any."""

    def __init__(self, file: File, encoding: str | None) -> None:
        self.encoding = encoding
        what = f"the text is not UTF-8; it looks like {encoding}" if encoding else "the text is not UTF-8"
        key = f"write encoding: {encoding} in its task" if encoding else "write its encoding: in its task"
        super().__init__(str(file.path), what, f"{key}, or save the file as UTF-8")


@contextmanager
def open_bytes(file: File) -> Iterator[Any]:
    """Open a file that is not empty for reading bytes, decompressed."""
    try:
        raw = pa.input_stream(str(file.path), compression=file.codec)
    except OSError as error:
        raise BadFile(str(file.path), f"cannot be opened: {short(error)}") from None
    with io.BufferedReader(raw, SAMPLE) as stream:
        try:
            if stream.peek(4)[:4] in (b"", codecs.BOM_UTF8):
                raise empty(file)
            yield stream
        except OSError:
            what = "cannot be read to its end"
            if file.codec:
                what = f"cannot be unpacked as {file.codec}; it is damaged or cut short"
            raise BadFile(str(file.path), what, "copy the file again") from None


@contextmanager
def open_text(file: File, newline: str = "\n") -> Iterator[IO[str]]:
    """Open a text file by its encoding, UTF-8 where none is known; other bytes come as lone surrogates."""
    with open_bytes(file) as stream:
        encoding = marked(stream.peek(4)) or file.encoding or "utf-8"
        try:
            yield io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline=newline)
        except UnicodeError:
            fix = "write its true encoding:, or save it as UTF-8"
            raise BadFile(str(file.path), f"cannot be read as {file.encoding or 'UTF-16'}", fix) from None


def lines_of(file: File) -> Iterator[str]:
    """Yield the lines of a text file, cut at line feeds alone."""
    with open_text(file) as text:
        yield from text


# Detection -----------------------------------------------------------------------------------------------------------


def marked(start: bytes) -> str | None:
    """Name the encoding by the byte order mark that a file begins with."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None


def encoding_of(file: File, whole: bool = True) -> str:
    """Tell how a text file is encoded, from all of it or its first megabyte; one that is not UTF-8 is refused.

    A few broken rows in a file of UTF-8 are left to those who read rows.
    """
    if file.encoding:
        return file.encoding
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    broken = continued = 0  # bytes that are not UTF-8, and bytes that continue a character of UTF-8
    with open_bytes(file) as stream:
        sample = chunk = stream.read(SAMPLE)
        if by_mark := marked(sample):
            return by_mark
        if wide := _utf16(sample):
            raise OtherEncoding(file, wide)
        while chunk:
            text = decoder.decode(chunk)
            continued += len(chunk) - len(text)
            escaped = 0 if _is_sound(text) else len(ESCAPED.findall(text))
            if escaped and not broken:
                sample = chunk  # those before may be plain ASCII, which says nothing
            broken += escaped
            chunk = stream.read(SAMPLE) if whole else b""
    if broken > continued:
        raise OtherEncoding(file, guess_encoding(sample))
    return "utf-8"


def _is_sound(text: str) -> bool:
    """Tell whether no byte of a text was escaped, far quicker than to look for those that were."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def guess_encoding(sample: bytes) -> str | None:
    """Name the encoding of bytes that are not UTF-8: Korean, then Western European; None where neither fits."""
    high = len(HIGH.findall(sample))
    # Chinese has some of the same pairs of bytes: about seven in ten.
    if 2 * len(HANGUL.findall(sample)) > 0.85 * high and _decodes(sample, "cp949"):
        return "cp949"
    # Where most letters are beyond ASCII, as in Russian or Greek, it is no language of Western Europe.
    if 2 * high < len(LETTER.findall(sample)) and _decodes(sample, "cp1252"):
        return "cp1252"
    return None


def _utf16(sample: bytes) -> str | None:
    """Tell UTF-16 without a mark by its zeros, which mostly stand on one side of each pair of bytes."""
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) < 4 or 40 * max(even, odd) < len(sample) or 4 * min(even, odd) > max(even, odd):
        return None  # a text of UTF-8 may hold a zero, too
    return "utf-16-le" if odd > even else "utf-16-be"


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(sample)  # the last character may be cut in two
    except UnicodeDecodeError:
        return False
    return True
