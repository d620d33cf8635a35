"""Siamese pairs: the two texts of a row encoded separately and compared by their vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill.data.batch import EVERY, Batch
from understill.data.packed import Packed

#: A pair is both vectors, their product and the size of their difference.
PARTS = 4
#: The cosine is one feature beside some thousand; at this scale, usual in contrastive losses, it weighs as the product.
_SCALE = 20.0
#: Scale of the vectors themselves: similarity hardly depends on the topic, which few rows would be overfitted to.
_ABOUT = 0.1


def combined(one: Tensor, two: Tensor) -> Tensor:
    """Return the features of pairs of vectors, [n, width] each: [n, 4·width]."""
    return torch.cat([one, two, one * two, (one - two).abs()], dim=1)


def compared(one: Tensor, two: Tensor) -> Tensor:
    """Return these features with the vectors scaled down, and their cosine, [n, 4·width + 1]."""
    # bfloat16 has no more than 600 cosines, so that many pairs would be equally alike.
    one, two = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in (one, two))
    cosine = functional.cosine_similarity(one, two, dim=1).unsqueeze(1)
    parts = [_ABOUT * one, _ABOUT * two, one * two, (one - two).abs(), _SCALE * cosine]
    return torch.cat(parts, dim=1)


class Siamese(nn.Module):
    """A pair task's head: a linear layer over the features of two texts that were encoded separately.

    Its initial weights are 0. Random ones on some thousand features would be noise that drowns the cosine until a small
    learning rate has unlearnt it.
    """

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(PARTS * width + 1, outputs)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)


class Spans(NamedTuple):
    """Texts within a line of tokens: each begins with its row's first token and goes on, maybe further behind."""

    start: Tensor  # int64 [n], where the row begins
    skip: Tensor  # int64 [n], tokens left out behind the row's first
    length: Tensor  # int64 [n]
    second: Tensor  # int64 [n], first token of a second text; the length where there is none

    def part(self, rows: Tensor) -> Spans:
        """Return those of some rows."""
        return Spans(*(each.index_select(0, rows) for each in self))

    def gather(self, line: Tensor, pad: int) -> Batch:
        """Return the texts as padded rows, of which only the tokens mean something."""
        longest = self.length.max()
        cells = torch.arange(longest if _tracing() else int(longest), device=line.device)  # type: ignore[arg-type]
        places = self.start.unsqueeze(1) + cells + (cells > 0) * self.skip.unsqueeze(1)
        there = cells < self.length.unsqueeze(1)
        ids = torch.where(there, line[places * there], pad)
        none = self.length  # of no use to an encoder
        return Batch(ids, self.length, self.second, none, none, none, none, none)


def joined(*parts: Spans) -> Spans:
    """Return several texts after each other."""
    return Spans(*map(torch.cat, zip(*parts, strict=True)))


class Texts(NamedTuple):
    """The texts of rows: whole rows, and `[CLS] text [SEP]` of their first and second texts."""

    line: Tensor  # int64 [tokens]
    whole: Spans
    first: Spans
    second: Spans


def texts_of(batch: Batch | Packed) -> Texts:
    """Say where the texts of rows lie.

    Some tokenisers put two separators between the texts, `<s> a </s></s> b </s>`, of which the first text has one.
    """
    line, start, length, second = _places(batch)
    last, closing, before = (line[start + at] for at in (length - 1, second - 1, (second - 2).clamp(min=0)))
    doubled = (second >= 3) & (second < length) & (closing == last) & (before == last)
    none, first, rest = torch.zeros_like(start), second - doubled.long(), length - second + 1
    return Texts(
        line,
        Spans(start, none, length, second),
        Spans(start, none, first, first),
        Spans(start, second - 1, rest, rest),
    )


class Asked(NamedTuple):
    """What a model's tasks want to read of a row."""

    siamese: Tensor  # bool [tasks]
    crosses: bool  # whether there are tasks that read pairs whole

    def of(self, batch: Batch | Packed, texts: Texts) -> tuple[Tensor, Tensor]:
        """Say of which rows the texts are read apart, and which are read whole, as their tasks want it."""
        every = batch.task == EVERY
        apart = (every & (texts.second.length > 1)) | (~every & self.siamese[batch.task])
        return apart, ~apart | every if self.crosses else ~apart


def read_rows(
    read: Callable[[Batch | Packed], Tensor], batch: Batch | Packed, asked: Asked, pad: int
) -> tuple[Tensor, Tensor]:
    """Read each row in the ways that are asked for: whole, its texts apart, or both.

    One vector of each row is returned, [n, width], and the features of its pair, [n, 4·width + 1]; both are 0 for rows
    that were not read in this way.
    """
    texts = texts_of(batch)
    apart, whole = asked.of(batch, texts)
    rows, others = (mask.nonzero().squeeze(1) for mask in (apart, whole))
    if _tracing():
        return _traced(read, texts, rows, asked, pad)
    if not len(rows):
        vectors = read(batch)
        return vectors, vectors.new_zeros(len(batch), PARTS * vectors.shape[1] + 1)
    one, two = read(joined(texts.first.part(rows), texts.second.part(rows)).gather(texts.line, pad)).chunk(2)
    vectors = one.new_zeros(len(batch), one.shape[1])
    if len(others):
        # Apart from the texts of pairs, which are about half as long.
        vectors = vectors.index_copy(0, others, read(texts.whole.part(others).gather(texts.line, pad)))
    return vectors, _spread(compared(one, two), rows, len(batch))


def _traced(
    read: Callable[[Batch], Tensor], texts: Texts, rows: Tensor, asked: Asked, pad: int
) -> tuple[Tensor, Tensor]:
    """Do the same while a graph is traced, by one call: two would store the network's weights twice.

    Where no pair is read whole, all first texts are read, which are the whole rows where there is no second.
    """
    every, count, pairs = texts.whole if asked.crosses else texts.first, texts.whole.length.shape[0], rows.shape[0]
    extra = (texts.first.part(rows),) if asked.crosses else ()
    vectors = read(joined(every, *extra, texts.second.part(rows)).gather(texts.line, pad))
    whole, rest = vectors[:count], vectors[count:]
    one = rest[:pairs] if asked.crosses else whole.index_select(0, rows)
    two = rest[pairs:] if asked.crosses else rest
    return whole, _spread(compared(one, two), rows, count)


def _spread(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Put the values of some rows in their places among all."""
    return values.new_zeros(count, values.shape[1]).index_copy(0, rows, values)


def _places(batch: Batch | Packed) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the tokens of rows as one line, where each row begins, its length, and where its second text begins."""
    if isinstance(batch, Packed):
        return batch.ids, batch.starts[:-1].long(), batch.lengths, batch.second
    rows, width = batch.ids.shape
    start = torch.arange(rows, device=batch.ids.device) * width
    return batch.ids.flatten(), start, batch.lengths, torch.minimum(batch.second, batch.lengths)


def _tracing() -> bool:
    """Tell whether a graph is being written, in which no length may be a number."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call, no-any-return]
