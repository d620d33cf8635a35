"""Word vectors from files: word2vec, GloVe, fastText's text, a matrix beside its words, or vectors of their pieces."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from understill.errors import UserError

Floats = NDArray[np.float32]

#: Types of arrays that can be vectors.
NUMBERS = np.typecodes["AllInteger"] + np.typecodes["Float"]
#: The first bytes of a fastText model, which is no table of vectors.
_FASTTEXT = (793712314).to_bytes(4, "little")
#: Bytes read at once, and the longest line or word that is believed.
_BLOCK, _LONGEST = 1 << 22, 1 << 20
#: The deviation that vectors of pieces are brought to, about that of GloVe's. Their own means nothing: what static
#: embedding models make of a text is normalised in the end.
_DEVIATION = 0.6


@dataclass(frozen=True, eq=False)
class KnownVectors:
    """Vectors that a file has for some words."""

    size: int
    by_word: dict[str, Floats]


def read_vectors(path: Path, words: Collection[str]) -> KnownVectors:
    """Return the vectors of those words that a file has, in memory that goes by the words and not by the file.

    A word that is there only in another case, as Paris is for paris, takes the first of these; files have the most
    frequent first.
    """
    if (pieces := _pieces(path)) is not None:
        return pieces.spell(words)
    with ExitStack() as stack:
        size, rows = _rows_of(path, stack)
        exact: dict[str, Floats] = {}
        otherwise: dict[str, Floats] = {}
        try:
            for row in rows:
                same = row.word in words
                name, known = (row.word, exact) if same else (row.word.lower(), otherwise)
                if (same or name in words) and name not in known and (vector := row.read(path, size)) is not None:
                    known[name] = vector
        except (OSError, EOFError) as error:
            raise UserError(f"{path}: cannot be read to its end: {error}") from None
    by_word = otherwise | exact
    wrong = next((word for word, vector in by_word.items() if not np.isfinite(vector).all()), None)
    if wrong is not None:
        raise UserError(f'{path}: the vector of "{wrong}" is not finite → name another file')
    return KnownVectors(size, by_word)


def vector_size(path: Path) -> int:
    """Return the size of a file's vectors, for which only its beginning is read."""
    if (pieces := _pieces(path)) is not None:
        return int(pieces.values.shape[1])
    with ExitStack() as stack:
        return _rows_of(path, stack)[0]


class _Pieces(NamedTuple):
    """The vectors of a tokeniser's pieces, as static embedding models have them."""

    values: Floats  # [pieces, size]
    tokenizer: Tokenizer

    def spell(self, words: Collection[str]) -> KnownVectors:
        """Return for each word the mean of its pieces' vectors; a word with a piece that is unknown has none."""
        unknown = getattr(self.tokenizer.model, "unk_token", None)
        by_word = {}
        for word in words:
            encoding = self.tokenizer.encode(word, add_special_tokens=False)
            if encoding.ids and unknown not in encoding.tokens:
                by_word[word] = self.values[encoding.ids].mean(axis=0)
        return KnownVectors(int(self.values.shape[1]), by_word)


class _Row(NamedTuple):
    """A word and its vector, still as the file has it: most words are not wanted."""

    word: str
    number: int
    content: bytes | Floats

    def read(self, path: Path, size: int) -> Floats | None:
        """Return the numbers; None where a line turns out to be another, longer word's."""
        if isinstance(self.content, np.ndarray):
            return np.array(self.content, np.float32)
        parts = self.content.split()
        if len(parts) > size:  # some words of large files hold blanks (". . ."), none of ours does
            return None
        try:
            if len(parts) == size:
                return np.array(parts, np.float32)
        except ValueError:
            pass
        raise UserError(f"{path}: line {self.number} does not hold {size} numbers → name a whole file")


_Rows = Iterator[_Row]


def _rows_of(path: Path, stack: ExitStack) -> tuple[int, _Rows]:
    """Return the size of the vectors of a folder or file, and all that it holds, to be read while the stack is open."""
    return _matrix(path) if path.is_dir() else _table(path, stack.enter_context(_opened(path)))


def _opened(path: Path) -> IO[bytes]:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return cast(IO[bytes], gzip.open(path, "rb")) if packed else path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: word vectors cannot be read: {error.strerror or error}") from None


def _table(path: Path, file: IO[bytes]) -> tuple[int, _Rows]:
    """Look which kind of file it is, and return the size of its vectors and all that it holds."""
    try:
        first = file.readline(_LONGEST).removeprefix(BOM_UTF8)
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: word vectors cannot be read: {error}") from None
    if first.startswith(_FASTTEXT):
        raise UserError(f"{path}: a fastText model, not its vectors → name the text file beside it, .vec")
    head = first.split()
    if len(head) == 2 and all(part.isdigit() for part in head):
        size, count = int(head[1]), int(head[0])
        second = file.readline(_LONGEST)
        held = len(second.split()) - 1
        # Bytes of a binary file may look like one number or two, by chance.
        if size < 1 or (held > 2 and held != size and _is_text(second, held)):
            raise UserError(f"{path}: line 1 says {size} numbers for each word, line 2 holds {held} → fix line 1")
        if _is_text(second, size):
            return size, _lines(path, file, second, 2, count)
        return size, _binary(path, file, second, count, size)
    if len(head) < 3 or not _is_text(first, len(head) - 1):
        fix = "name a word2vec file, or a text file with a word and its numbers in each line"
        raise UserError(f"{path}: not a file of word vectors → {fix}")
    return len(head) - 1, _lines(path, file, first, 1)


def _is_text(line: bytes, size: int) -> bool:
    """Tell whether a line is a word with its numbers."""
    parts = line.split()
    try:
        return len(parts) == size + 1 and all(np.isfinite(float(part)) for part in parts[1:])
    except ValueError:
        return False


def _lines(path: Path, file: IO[bytes], line: bytes, first: int, count: int = 0) -> _Rows:
    number, blank = first, b"\t" if b"\t" in line else b" "
    while line:
        word, _, rest = line.partition(blank)
        yield _Row(word.decode("utf-8", "replace"), number, rest)
        line, number = file.readline(_LONGEST), number + 1
    if number - first < count:
        raise UserError(f"{path}: it ends after {number - first} of {count} words → name a whole file")


def _binary(path: Path, file: IO[bytes], held: bytes, count: int, size: int) -> _Rows:
    width = 4 * size
    start = 0
    for number in range(1, count + 1):
        end = held.find(b" ", start)
        while end < 0 or len(held) < end + 1 + width:
            more = file.read(_BLOCK)
            if not more or (end < 0 and len(held) - start > _LONGEST):
                raise UserError(f"{path}: it ends after {number - 1} of {count} words → name a whole file")
            held, start = held[start:] + more, 0
            end = held.find(b" ", start)
        word = held[start:end].lstrip(b"\n").decode("utf-8", "replace")
        start = end + 1 + width
        yield _Row(word, number, np.frombuffer(held, "<f4", size, end + 1))
    if (held[start:] + file.read(_BLOCK)).strip():
        what = f"it holds more than {count} words of {size} numbers, which is what line 1 says"
        raise UserError(f"{path}: {what} → name a whole file, or fix line 1")


def _matrix(path: Path) -> tuple[int, _Rows]:
    """Read a folder with a matrix (.npy) and its words (.parquet, one column)."""
    try:
        (matrix,), (index,) = path.glob("*.npy"), path.glob("*.parquet")
        values = np.load(matrix, mmap_mode="r", allow_pickle=False)
        names, *_ = pq.read_table(index).columns
        words = names.cast(pa.string()).fill_null("").to_pylist()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: a folder of word vectors has one .npy and one .parquet file: {error}") from None
    if values.ndim != 2 or not values.size or values.dtype.char not in NUMBERS or len(words) != len(values):
        raise UserError(f"{path}: {len(words)} words do not fit vectors of shape {values.shape}, {values.dtype}")
    size = int(values.shape[1])
    rows = (_Row(word, number, values[number]) for number, word in enumerate(words))
    return size, rows


def _pieces(path: Path) -> _Pieces | None:
    """Read a folder of a static embedding model, or return None where it is none."""
    weights = path / "model.safetensors"
    if not weights.is_file():
        return None
    try:
        tensors, tokenizer = load_file(weights), Tokenizer.from_file(str(path / "tokenizer.json"))
    except Exception as error:  # tokenizers raises nothing narrower
        reason = error if isinstance(error, (OSError, SafetensorError)) else "tokenizer.json cannot be read"
        raise UserError(f"{path}: vectors of pieces cannot be read: {reason}") from None
    values: NDArray[np.floating] = tensors.get("embeddings", np.empty(0))
    rows = tokenizer.get_vocab_size()
    fits = values.ndim == 2 and len(values) >= rows and values.dtype.kind == "f"
    if len(tensors) != 1 or not fits:
        held = ", ".join(f"{name} {list(each.shape)}" for name, each in sorted(tensors.items()))
        raise UserError(f"{path}: {weights.name} holds {held}; wanted: embeddings of {rows} pieces and nothing else")
    if not np.isfinite(values).all():
        raise UserError(f"{path}: embeddings are not finite → name another folder")
    full = values.astype(np.float32)
    return _Pieces(full * np.float32(_DEVIATION / max(float(full.std()), 1e-9)), tokenizer)
