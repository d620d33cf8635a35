"""Tokens word by word: most words have been seen before, and looking one up is many times faster than tokenising it."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ints = NDArray[np.int64]

#: Words as files of word vectors have them: clitics by themselves (do n't, it 's), hyphens inside, marks one by one.
WORD = r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+?(?=n't\b)|\w+(?:-\w+)*|[^\w\s]"
#: Characters of learnt words that are held; with their tokens and the words known from the start they take 25 MB.
ROOM = 1 << 20
#: What ends a text, and what stands before a special token's number; texts that have them are not looked up.
END, SPECIAL = "\x01", "\x02"
#: Special tokens that cannot overlap: a pair of brackets without any inside.
_BRACKETED = re.compile(r"<[^\s<>\[\]]+>|\[[^\s<>\[\]]+\]")
#: The normaliser and the pre-tokeniser of BERT's kind, less its settings, and of our own tokenisers of words.
_BERT = "BertNormalizer", {"type": "BertPreTokenizer"}
_QUOTE = {"type": "Replace", "pattern": {"String": "’"}, "content": "'"}
_WORDS = (
    {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}, _QUOTE]},
    {"type": "Split", "pattern": {"Regex": WORD}, "behavior": "Removed", "invert": True},
)


class Encoded(NamedTuple):
    """The tokens of some rows, one after the other."""

    ids: NDArray[np.int32]
    lengths: Ints  # [rows]
    second: Ints  # [rows], where the second text begins; the row's length where there is none


class WordCache(dict[str, int]):
    """The tokens of words, which is all it takes where a tokeniser reads each word by itself.

    A word is what stands between spaces or marks that surely part a text; what the tokeniser makes of it, normalising
    included, it is asked once. Each word has a number, which leads to its tokens.
    """

    def __init__(self, backend: Tokenizer, facts: dict[str, Any], marks: str) -> None:
        self.backend, self.marks, self.lock = backend, marks, Lock()
        self.frames = [_frame(backend.encode("a")), _frame(backend.encode("a", "a"))]
        specials = [each for each in facts["added_tokens"] if not (each["special"] and backend.encode_special_tokens)]
        self.specials = {each["content"]: f" {SPECIAL}{number} " for number, each in enumerate(specials)}
        self.first: dict[str, list[int]] = {END: [], "": []}
        self.first |= {f"{SPECIAL}{number}": [each["id"]] for number, each in enumerate(specials)}
        self.first |= _whole_words(facts)
        self._begin()

    def __missing__(self, word: str) -> int:
        """Give a new word the next number."""
        self[word] = number = len(self)
        self.new.append(word)
        return number

    def _begin(self) -> None:
        """Know what is known from the start, and nothing else."""
        self.clear()
        self.update(zip(self.first, range(len(self.first)), strict=True))
        self.new: list[str] = []
        self.held = 0  # characters of the words that were learnt
        self.ids = np.fromiter(itertools.chain.from_iterable(self.first.values()), np.int32)
        self.ends = np.cumsum([0, *map(len, self.first.values())])  # of the tokens before a word, and of its own

    def __call__(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], Ints] | None:
        """Return the tokens of texts, one after the other, and how many each has; None if it cannot tell."""
        line = f" {END} ".join(texts)
        if line.count(END) != len(texts) - 1 or SPECIAL in line:
            return None
        for token, word in self.specials.items():
            line = line.replace(token, word)
        for space in "\t\n\r":
            line = line.replace(space, " ")
        for mark in self.marks:
            line = line.replace(mark, f" {mark} ")
        words = f"{line} {END}".split(" ")
        with self.lock:
            numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
            try:
                if self.new:
                    self._learn()
            except BaseException:
                self._begin()  # rather than half know the new ones
                raise
            ids, ends = self.ids, self.ends
            if self.held > ROOM:
                self._begin()
        starts = ends[numbers]
        counts = ends[numbers + 1] - starts
        return gather(ids, starts, counts), np.diff(np.cumsum(counts)[numbers == 0], prepend=0)

    def _learn(self) -> None:
        """Ask the tokeniser for new words: some at a time, so that its threads share them."""
        lines = [self.new[start : start + 64] for start in range(0, len(self.new), 64)]
        made = self.backend.encode_batch(lines, is_pretokenized=True, add_special_tokens=False)
        of = [np.array(each.word_ids, np.int64) for each in made]
        counts = [np.bincount(each, minlength=len(line)) for each, line in zip(of, lines, strict=True)]
        self.ids = np.concatenate([self.ids, *(np.array(each.ids, np.int32) for each in made)])
        self.ends = np.concatenate([self.ends, self.ends[-1] + np.cumsum(np.concatenate(counts))])
        self.held += sum(map(len, self.new))
        self.new = []

    def rows(self, rows: Sequence[Any], max_length: int, side: str) -> Encoded | None:
        """Return texts, or pairs, with their special tokens, truncated; None if it cannot tell."""
        width = 1 if isinstance(rows[0], str) else 2
        made = self(rows if width == 1 else list(itertools.chain.from_iterable(rows)))
        if made is None:
            return None
        tokens, sizes = made[0], made[1].reshape(-1, width)
        frame = self.frames[width - 1]
        fixed = np.array(list(map(len, frame)))
        kept = kept_of(sizes, max_length - int(fixed.sum()))
        # Runs of special tokens and of a text's own in turns; the special ones stand before all texts.
        counts = np.empty((len(rows), 2 * width + 1), np.int64)
        starts = np.empty_like(counts)
        counts[:, ::2], counts[:, 1::2] = fixed, kept
        starts[:, ::2] = np.cumsum(fixed) - fixed
        starts[:, 1::2] = fixed.sum() + (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        if side == "left":
            starts[:, 1::2] += sizes - kept
        ids = gather(np.concatenate([*(np.array(each, np.int32) for each in frame), tokens]), starts, counts)
        lengths = counts.sum(1)
        return Encoded(ids, lengths, counts[:, :3].sum(1) if width == 2 else lengths)


def word_cache(backend: Tokenizer, facts: dict[str, Any]) -> WordCache | None:
    """Return what looks words up, if a tokeniser is of a kind that is known to read each by itself."""
    normalizer, parts, model = facts["normalizer"] or {}, facts["pre_tokenizer"], facts["model"]["type"]
    if (normalizer.get("type"), parts, model) == (*_BERT, "WordPiece"):
        marks = string.punctuation
    elif (normalizer, parts, model) == (*_WORDS, "WordLevel"):
        marks = '.,!?;:()"'  # not those that words hold, nor those that take an accent
    else:
        return None
    post = facts["post_processor"] or {"type": "BertProcessing"}  # nothing, or the same for every text
    read = [
        [each["Sequence"]["id"] for each in post.get(rows, ()) if "Sequence" in each] for rows in ("single", "pair")
    ]
    if (post["type"], read) not in (("BertProcessing", [[], []]), ("TemplateProcessing", [["A"], ["A", "B"]])):
        return None
    for each in facts["added_tokens"]:
        if each["normalized"] or each["single_word"] or not _BRACKETED.fullmatch(each["content"]):
            return None
    return WordCache(backend, facts, marks)


def gather(values: NDArray[Any], starts: Ints, counts: Ints) -> NDArray[Any]:
    """Return some runs of values, one after the other."""
    starts, counts = starts.ravel(), counts.ravel()
    ends = np.cumsum(counts)
    taken: NDArray[Any] = values[np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())]
    return taken


def kept_of(sizes: Ints, room: int) -> Ints:
    """Return how many tokens of each text are kept where all of a row have so much room: the longest go first."""
    over = sizes.sum(1) > room
    if not over.any():
        return sizes
    room = max(room, 0)
    if sizes.shape[1] == 1:
        return np.minimum(sizes, room)
    short = np.minimum(sizes.min(1), room // 2)
    first = np.where(sizes[:, 0] > sizes[:, 1], room - short, short)
    return np.where(over[:, None], np.minimum(sizes, np.stack([first, room - first], 1)), sizes)


def _frame(encoding: Encoding) -> list[list[int]]:
    """Return the special tokens before each text and after the last."""
    frame: list[list[int]] = [[] for _ in range(encoding.n_sequences + 1)]
    place = 0
    for number, of in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if of is None:
            frame[place].append(number)
        else:
            place = of + 1
    return frame


def _whole_words(facts: dict[str, Any]) -> dict[str, list[int]]:
    """Return the words that are a token as they stand, which spares asking for most."""
    most, lower = facts["model"].get("max_input_chars_per_word", 0), facts["normalizer"].get("lowercase")
    plain = (word for word in facts["model"]["vocab"] if word.isascii() and word.isalnum() and len(word) <= most)
    return {word: [facts["model"]["vocab"][word]] for word in plain if not lower or word == word.lower()}
