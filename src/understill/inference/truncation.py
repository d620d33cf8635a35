"""Truncation: how a text's tokens become a row of at most so many, and where its second text begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


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
        room = max(0, max_length - (len(ids) - first - second))
        short = min(first, second, room // 2)
        kept = (room - short, short) if first > second else (short, room - short)
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
