"""Templates of the demo data: seeded draws, templates filled row by row, and which split owns a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from understill.data.demo.phrases import PHRASES, Phrases

Texts = npt.NDArray[np.object_]
Ints = npt.NDArray[np.int64]
Columns = dict[str, Any]  # "label" → names or scores, and the text columns

SPLITS = ("train", "dev", "test", "unlabelled")

#: Which split owns a text, by the low four bits of its checksum: 9/16 train, 5/16 unlabelled, 1/16 dev, 1/16 test.
OWNERS = (0,) * 9 + (3,) * 5 + (1, 2)

#: The share of training rows whose label is deliberately wrong. Labels of dev and test are right.
NOISE = 0.02

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Draws:
    """The draws of one block of one split; equal arguments give equal draws on every machine."""

    rng: np.random.Generator
    split: str
    rows: int

    @classmethod
    def of(cls, seed: int, task: str, split: str, block: int, rows: int) -> Draws:
        """Make the draws of a block, independent of those of any other block."""
        entropy = (seed, crc32(task.encode()), SPLITS.index(split), block)
        return cls(np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy))), split, rows)

    def below(self, ends: int | Ints) -> Ints:
        """Draw a number below `ends` for each row."""
        return self.rng.integers(ends, size=self.rows)

    def chance(self, share: float) -> npt.NDArray[np.bool_]:
        """Say yes for about this share of the rows."""
        return np.asarray(self.rng.random(self.rows) < share)

    def weighted(self, weights: Sequence[float]) -> Ints:
        """Draw an index for each row, with these relative weights."""
        edges = np.cumsum(weights)
        return np.asarray(np.searchsorted(edges, self.rng.random(self.rows) * edges[-1], side="right"), dtype=np.int64)

    def other(self, taken: Ints, end: int | Ints) -> Ints:
        """Draw a number below `end` that differs from the one each row has."""
        return np.asarray((taken + 1 + self.below(end - 1)) % end, dtype=np.int64)

    def pick(self, words: Phrases) -> Texts:
        """Draw one of these words for each row."""
        return objects(words.all)[self.below(words.known(self.split))]

    def pick_from(self, table: Sequence[Phrases], which: Ints) -> Ints:
        """Draw, for each row, an entry of the list it points to, as an index into `flat(table)`."""
        starts = np.cumsum([0] + [len(words.all) for words in table[:-1]])
        known = np.array([words.known(self.split) for words in table])
        return np.asarray(starts[which] + self.below(known[which]), dtype=np.int64)

    def noisy(self, labels: Ints, end: int) -> Ints:
        """Turn a few training labels into wrong ones; leave those of other splits alone."""
        wrong = self.chance(NOISE if self.split == "train" else 0.0)
        return np.where(wrong, self.other(labels, end), labels)

    def assign(self, cores: Texts, numbers: bool = True) -> list[str]:
        """Put each text between a greeting and an ending such that the finished text belongs to this split."""
        openings, endings = _wrapping(numbers)
        texts = []
        for core, key in zip(cores.tolist(), self.below(1 << 30).tolist(), strict=True):
            while True:
                text = openings[(key >> 12) % len(openings)] + core + endings[key % len(endings)]
                if owner(text) == self.split:
                    break
                key += 7919  # a prime, so that both ends change
            texts.append(text)
        return texts


def owner(text: str) -> str:
    """Name the split that alone may hold this text."""
    return SPLITS[OWNERS[crc32(text.encode()) & 15]]


def objects(values: Sequence[str]) -> Texts:
    """Make an array of Python strings, which can be indexed by an array."""
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def flat(table: Sequence[Phrases]) -> tuple[str, ...]:
    """Put all entries of several lists into one, in the order `Draws.pick_from` counts them."""
    return tuple(entry for words in table for entry in words.all)


@lru_cache(maxsize=4096)
def _compiled(template: str) -> tuple[str, tuple[str, ...]]:
    return _SLOT.sub("%s", template.replace("%", "%%")), tuple(_SLOT.findall(template))


def fill(templates: Sequence[str], which: Ints, **columns: Texts) -> Texts:
    """Fill, for each row, the template it points to with that row's values."""
    out = np.empty(len(which), dtype=object)
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(len(templates) + 1))
    for number, template in enumerate(templates):
        rows = order[ends[number] : ends[number + 1]]
        if len(rows):
            pattern, slots = _compiled(template)
            if slots:
                out[rows] = [pattern % values for values in zip(*(columns[slot][rows] for slot in slots), strict=True)]
            else:
                out[rows] = template
    return out


def capital(texts: Texts) -> Texts:
    """Start each text with a capital letter."""
    return objects([text[:1].upper() + text[1:] for text in texts])


@lru_cache(maxsize=2)
def _wrapping(numbers: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """List greetings and endings, many of them empty; none says anything about a label."""
    greetings, farewells, senders = (phrases.all for phrases in PHRASES["letters"].values())
    openings = ("",) * 9 + tuple(f"{greeting} " for greeting in greetings)
    plain = [end for bye in farewells for name in senders for end in ("", f" {bye}, {name}")]
    if not numbers:
        return openings, tuple(plain)
    orders = [f" {word} {10_007 + 4 * n}." for n in range(20_000) for word in ("Order", "Ref.")]
    # Interleaved, so that steps through the list meet all sorts of endings.
    endings = [end for n in range(20_000) for end in (*orders[2 * n : 2 * n + 2], plain[n % len(plain)])]
    return openings, tuple(endings)
