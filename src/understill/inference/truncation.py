"""Truncation: how a text's tokens become a row of at most so many, and where its second text begins."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from understill.inference.word_cache import WORD, Encoded, gather, kept_of, word_cache

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

#: Characters for each token that is kept, which are tokenised first of a long text.
WINDOW = 8
#: Pre-tokenisers that part a text at every space, whatever comes after it, and normalisers that reach no further.
_PARTS = ("BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit")
_LOCAL = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "StripAccents")
_SPACES = {"Regex": " {2,}"}
#: The longest beginning of a text that ends at a word's end, or at a mark or an ideograph where these are words.
_TO_SPACE = re.compile(r"(?s).*\S(?= )")
_TO_MARK = re.compile(r"(?s).*(?:\S(?= )|[!-/:-@\[-`{-~\u4e00-\u9fff])")
_NO_ROWS = Encoded(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


class RowTokenizer:
    """Turns texts, or pairs, into rows of at most so many tokens, without tokenising much that would be cut off.

    Of a long text a beginning is tokenised first, which ends where the tokeniser surely parts it. If that gives enough
    tokens, they are the whole text's. With tokenisers of which this is not known, all is tokenised.
    """

    def __init__(self, backend: Tokenizer, side: str) -> None:
        self.backend, self.side, self.tail = backend, side, closing(backend)
        facts = json.loads(backend.to_str())
        self.words = word_cache(backend, facts)
        self.pattern = _beginning(facts) if side == "right" else None
        # A special token in a text, which the end of the beginning may have broken into pieces: four to a character.
        added = backend.get_added_tokens_decoder().values()
        self.margin = 4 * max((len(token.content) for token in added), default=1)

    def __call__(self, rows: Sequence[Any], max_length: int) -> Encoded:
        """Return the tokens of texts or pairs, most of them looked up where that is known to give the same."""
        types = set(map(type, rows))
        if self.words is None or types not in ({str}, {tuple}) or len(rows) == 1:  # one is asked as fast
            return self._ask(rows, max_length)
        texts = rows if types == {str} else itertools.chain.from_iterable(rows)
        sizes = np.fromiter(map(len, texts), np.int64).reshape(len(rows), -1)
        short = sizes.max(1) <= 2 * WINDOW * max_length
        if short.all():
            return self.words.rows(rows, max_length, self.side) or self._ask(rows, max_length)
        order = np.argsort(~short, kind="stable")
        parts = [self(list(itertools.compress(rows, short)), max_length)] if short.any() else []
        parts.append(self._ask(list(itertools.compress(rows, ~short)), max_length))
        ids, lengths, second = joined(parts)
        back, starts = np.argsort(order), np.cumsum(lengths) - lengths
        return Encoded(gather(ids, starts[back], lengths[back]), lengths[back], second[back])

    def _ask(self, rows: Sequence[Any], max_length: int) -> Encoded:
        """Return the tokens that the tokeniser itself gives of each row."""
        short = [self._shorten(row, WINDOW * max_length) for row in rows]
        encodings = self.backend.encode_batch_fast(short)
        cut_short = [number for number, row in enumerate(rows) if short[number] is not row]
        again = [n for n in cut_short if not self._enough(rows[n], short[n], encodings[n], max_length)]
        for number, encoding in zip(again, self.backend.encode_batch_fast([rows[n] for n in again]), strict=True):
            encodings[number] = encoding
        made = [cut(encoding, max_length, self.side, self.tail) for encoding in encodings]
        return Encoded(
            np.fromiter(itertools.chain.from_iterable(ids for ids, _ in made), np.int32),
            np.fromiter((len(ids) for ids, _ in made), np.int64, len(made)),
            np.fromiter((second for _, second in made), np.int64, len(made)),
        )

    def _shorten(self, row: Any, window: int) -> Any:
        """Return a row with the beginnings of long texts, or the row itself."""
        if self.pattern is None:
            return row
        if isinstance(row, str):
            match = self.pattern.match(row, 0, window) if len(row) > 2 * window else None
            return match[0] if match else row
        texts = tuple(self._shorten(text, window) for text in row)
        return row if all(one is other for one, other in zip(texts, row, strict=True)) else texts

    def _enough(self, row: Any, short: Any, encoding: Encoding, max_length: int) -> bool:
        """Tell whether what is kept of beginnings is what would be kept of the whole."""
        if isinstance(row, str):
            return len(encoding.ids) >= max_length + self.margin
        counts = [encoding.sequence_ids.count(number) for number in (0, 1)]
        room = max_length - (len(encoding.ids) - sum(counts))
        cuts = [one is not other for one, other in zip(short, row, strict=True)]
        sure = [count - self.margin if is_cut else count for count, is_cut in zip(counts, cuts, strict=True)]
        # The longer text gets the odd token; of two beginnings nobody knows which that is.
        longer = not all(cuts) and sure[cuts.index(True)] > sure[cuts.index(False)]
        return all(sure[n] >= room for n in (0, 1) if cuts[n]) and (room % 2 == 0 or longer)


def _beginning(facts: dict[str, Any]) -> re.Pattern[str] | None:
    """Return the pattern of a beginning whose tokens are the first of the whole text's; None if that is not known."""
    normalizers, parts = list(_flat(facts["normalizer"])), list(_flat(facts["pre_tokenizer"]))
    marks = any(each.get("handle_chinese_chars") for each in normalizers)
    for each in normalizers:
        replaces = each["type"] == "Replace" and ("String" in each["pattern"] or each["pattern"] == _SPACES)
        if each["type"] not in _LOCAL and not replaces:
            return None
    for each in parts:
        words = each["type"] == "Split" and each["pattern"] == {"Regex": WORD}
        marks = words or (marks and each["type"] == "BertPreTokenizer")
        if not words and (each["type"] not in _PARTS or not each.get("split", True) or not each.get("use_regex", True)):
            return None
    return (_TO_MARK if marks else _TO_SPACE) if parts else None


def _flat(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the members of a sequence of normalisers or pre-tokenisers, or the only one."""
    if part and part["type"] == "Sequence":
        for each in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from _flat(each)
    elif part:
        yield part


def joined(parts: Sequence[Encoded]) -> Encoded:
    """Return the tokens of all parts' rows, one part after the other."""
    return Encoded(*(np.concatenate(arrays) for arrays in zip(_NO_ROWS, *parts, strict=True)))


def closing(backend: Tokenizer) -> int:
    """Count the special tokens that follow a second text."""
    sequences = backend.encode("a", "a").sequence_ids
    return sequences[::-1].index(1) if 1 in sequences else 0


def cut(encoding: Encoding, max_length: int, side: str, tail: int) -> tuple[list[int], int]:
    """Return a row's ids, truncated longest first, and where its second text begins.

    The library's own truncation is not used: it also makes all combinations of the pieces it cuts off two long texts,
    and a pair of long documents would take gigabytes. Sequence ids show where the second text begins, because types
    are all 0 in RoBERTa's kind.
    """
    ids = encoding.ids
    if encoding.n_sequences < 2 and len(ids) <= max_length:
        return ids, len(ids)
    sequences = encoding.sequence_ids
    if len(ids) > max_length:
        first, second = sequences.count(0), sequences.count(1)
        kept = kept_of(np.array([[first, second]]), max_length - (len(ids) - first - second))[0].tolist()
        for which, count, keep in ((1, second, kept[1]), (0, first, kept[0])):
            if count > keep:  # the tokens of a text are next to each other
                start = sequences.index(which) + (0 if side == "left" else keep)
                stop = start + count - keep
                ids, sequences = ids[:start] + ids[stop:], sequences[:start] + sequences[stop:]
    if encoding.n_sequences < 2:
        return ids, len(ids)
    # A second text may come out empty (of control characters, say). Then this is where it would have begun, so that
    # types made from it are still the tokeniser's.
    return ids, sequences.index(1) if 1 in sequences else len(ids) - tail
