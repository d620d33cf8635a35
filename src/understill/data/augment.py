"""Augmentation: training rows with words masked, swapped for others of their part of speech, or cut to an n-gram.

What is made of a row follows from its texts, the rules with their seed, and how often words have which tag in the
corpus. Neither the order of rows nor the number of workers plays a part: no draw is taken from a stream, each is a hash
of the row's id, the turn, the text and the word's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from joblib import Parallel, delayed
from numpy.typing import NDArray

from understill.data.check import id_maker
from understill.data.encode import MASK
from understill.data.taggers import Tagging, tag
from understill.data.taskdata import TaskData, blocks, id_keys, text_columns
from understill.plugins import TAGGERS

#: The longest n-gram that a text is cut to.
LONGEST = 5
#: Bytes of text that rows are handed on in, times what is made of each; this bounds the memory that is taken.
BLOCK = 4 << 20
#: Fewer rows than this are tagged here: other processes take seconds to start.
FEW = 5000

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Draws about a whole text have the first numbers, those about its words follow.
_COIN, _LENGTH, _PLACE, _WORDS = range(1, 5)

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
#: Called with what is being done, and for how many rows it is done.
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class AugmentRules:
    """How rows are made into others."""

    mask: float  # of words: becomes the mask
    pos: float  # of words: becomes another of the same part of speech; never both
    ngram: float  # of texts: cut to one n-gram
    times: int  # tries for each row; what has been made before is dropped
    seed: int


@dataclass(frozen=True)
class Unigrams:
    """How often which words have a tag, in an order that is the same for every order of the rows."""

    words: Any  # Arrow strings, by tag and then by word
    ends: Ints  # [words], how many occurrences there are up to and with each
    tags: Mapping[str, int]
    limits: Ints  # [tags + 1], where the occurrences of each tag begin, and the end


def unigrams(counts: Mapping[tuple[str, str], int]) -> Unigrams:
    """Sort the counts of (tag, word)."""
    pairs = sorted(counts)
    ends = np.cumsum([counts[pair] for pair in pairs], dtype=np.int64)
    totals = Counter[str]()
    for (name, _), count in counts.items():
        totals[name] += count
    names = sorted(totals)
    limits = np.cumsum([0, *(totals[name] for name in names)], dtype=np.int64)
    words = pa.array([word for _, word in pairs], pa.string())
    return Unigrams(words, ends, {name: number for number, name in enumerate(names)}, limits)


# Draws ---------------------------------------------------------------------------------------------------------------


def _mixed(keys: Keys) -> Keys:
    """Return keys with all bits mixed (the last step of SplitMix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _keys(parents: Keys, numbers: Ints | int) -> Keys:
    """Return the keys that have these numbers under others."""
    return _mixed(parents + _GOLDEN * np.asarray(numbers, np.int64).astype(np.uint64).reshape(-1))


def _draw(parents: Keys, numbers: Ints | int) -> NDArray[np.float64]:
    """Return numbers from 0 up to but without 1."""
    chance: NDArray[np.float64] = (_keys(parents, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return chance


# Rows ----------------------------------------------------------------------------------------------------------------


def augmented(rows: Any, names: Sequence[str], task: str, rules: AugmentRules, known: Unigrams | None = None) -> Any:
    """Return rows with what is made of each after it, and beside every one the id of its source.

    `names` are the columns of texts; with `known`, a column of tags stands beside each. Of a pair, turns take the first
    text, the second, both, and so on; a text whose turn it is not stays as it is, save that one blank stands between
    words.
    """
    keys = _keys(id_keys(rows.column("id")), rules.seed)
    turns = np.tile(np.arange(rules.times), rows.num_rows)
    owners = np.repeat(np.arange(rows.num_rows), rules.times)
    plain, made = [], []
    for side, name in enumerate(names):
        words = [text.split() for text in rows.column(name).to_pylist()]
        taken = np.ones(len(turns), bool) if len(names) == 1 else turns % 3 != 1 - side
        tags = rows.column(f"tags_{name}").flatten().to_pylist() if known else []
        drawn = _keys(keys[owners[taken]], 2 * turns[taken] + side + 1)
        fresh = _changed(words, owners[taken], drawn, rules, known, tags)
        plain.append(pa.array([" ".join(each) for each in words], pa.string()))
        places = owners.copy()
        places[taken] = rows.num_rows + np.arange(taken.sum())
        made.append(pa.concat_arrays([plain[-1], fresh]).take(pa.array(places)))
    ids, kept = _fresh(plain, made, task, rules.times)
    return _laid_out(rows, names, made, ids, kept, owners)


def _changed(
    words: Sequence[Sequence[str]],
    owners: Ints,
    keys: Keys,
    rules: AugmentRules,
    known: Unigrams | None,
    tags: Sequence[str],
) -> Any:
    """Return one text for each key, made of the words of its owner."""
    flat = [word for each in words for word in each]
    counts = np.array([len(each) for each in words], np.int64)
    lengths = counts[owners]
    begins = np.concatenate([[0], np.cumsum(lengths)])
    text = np.repeat(np.arange(len(owners)), lengths)
    at = np.arange(begins[-1]) - begins[text]  # the word's place in its text
    chosen = (np.cumsum(counts) - counts)[owners][text] + at
    pool = [pa.array([*flat, MASK], pa.string())]
    chance = _draw(keys[text], _WORDS + 2 * at)
    if known is not None:
        pool.append(known.words)
        swapped = np.flatnonzero((chance >= rules.mask) & (chance < rules.mask + rules.pos))
        codes = np.array([known.tags[name] for name in tags], np.int64)[chosen[swapped]]
        share = _draw(keys[text[swapped]], _WORDS + 2 * at[swapped] + 1)
        low, high = known.limits[codes], known.limits[codes + 1]
        drawn = low + (share * (high - low)).astype(np.int64)
        chosen[swapped] = len(flat) + 1 + np.searchsorted(known.ends, drawn, "right")
    chosen[chance < rules.mask] = len(flat)
    # Cut to one n-gram, every window of which is as likely, the last one included.
    cut = _draw(keys, _COIN) < rules.ngram
    size = np.where(cut, np.minimum(1 + (LONGEST * _draw(keys, _LENGTH)).astype(np.int64), lengths), lengths)
    first = (_draw(keys, _PLACE) * (lengths - size + 1)).astype(np.int64)
    kept = chosen[(at >= first[text]) & (at < (first + size)[text])]
    ends = np.concatenate([[0], np.cumsum(size)])
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.concat_arrays(pool).take(pa.array(kept)))
    return pc.binary_join(lists, " ")


def _fresh(plain: Sequence[Any], made: Sequence[Any], task: str, times: int) -> tuple[list[str], Ints]:
    """Return the ids of the new rows, and the indices of those that duplicate neither their source nor one another."""
    name = id_maker(task)
    sources, ids = (
        [name(texts) for texts in zip(*(column.cast(pa.binary()).to_pylist() for column in columns), strict=True)]
        for columns in (plain, made)
    )
    kept = []
    for row, source in enumerate(sources):
        seen = {source}
        for number in range(row * times, (row + 1) * times):
            if ids[number] not in seen:
                seen.add(ids[number])
                kept.append(number)
    return ids, np.array(kept, np.int64)


def _laid_out(
    rows: Any, names: Sequence[str], made: Sequence[Any], ids: Sequence[str], kept: Ints, owners: Ints
) -> Any:
    """Put what is kept after the rows that it was made of."""
    order = np.argsort(np.concatenate([np.arange(rows.num_rows), owners[kept]]), kind="stable")
    both = {"id": pa.array([ids[number] for number in kept], pa.string())}
    both |= {name: column.take(pa.array(kept)) for name, column in zip(names, made, strict=True)}
    sources = pa.array(owners[kept])
    columns = {}
    for name in ("id", *names, "label"):
        own = rows.column(name)
        columns[name] = pa.concat_arrays([own, both.get(name, own.take(sources))]).take(pa.array(order))
    own = rows.column("id")
    columns["source"] = pa.concat_arrays([own, own.take(sources)]).take(pa.array(order))
    return pa.record_batch(columns)


# Files ---------------------------------------------------------------------------------------------------------------


def write_augmented(
    data: TaskData, out: Path, rules: AugmentRules, tagger: str | None, workers: int, progress: Progress | None = None
) -> int:
    """Write a split with what is made of its rows to an Arrow file, and return how many rows that has.

    With a tagger there are two passes, and `progress` is called in both: all words must have their tags before one can
    be drawn for another. Rows wait with their tags on the disk beside the result. Only tagging is shared out among
    processes; what follows takes less time than handing it over would.
    """
    names = text_columns(data.task)
    most = BLOCK // rules.times
    rows_of, known, waiting = blocks(data.path, most), None, out.with_name("tagged.arrow")
    if tagger is not None and rules.pos:
        counts: Counter[tuple[str, str]] = Counter()

        def counted() -> Iterator[Any]:
            for rows, tagged in _all_tagged(rows_of, names, tagger, workers if data.rows >= FEW else 1):
                counts.update(tagged)
                yield rows

        _write(waiting, _watched(counted(), "tagging", progress))
        rows_of, known = blocks(waiting, most), unigrams(counts)
    sources = _watched(rows_of, "augmenting", progress)
    rows = _write(out, (augmented(block, names, data.task.name, rules, known) for block in sources))
    waiting.unlink(missing_ok=True)
    return rows


def _tagged(rows: Any, names: Sequence[str], tagger: str, tagging: Tagging) -> tuple[Any, Counter[tuple[str, str]]]:
    """Return rows with the tags of their words, and how often each word has each tag."""
    counts: Counter[tuple[str, str]] = Counter()
    for name in names:
        words = [text.split() for text in rows.column(name).to_pylist()]
        tags = tag(tagger, words, tagging)
        rows = rows.append_column(f"tags_{name}", pa.array(tags, pa.list_(pa.string())))
        for own, theirs in zip(tags, words, strict=True):
            counts.update(zip(own, theirs, strict=True))
    return rows, counts


def _all_tagged(
    blocks: Iterator[Any], names: Sequence[str], tagger: str, workers: int
) -> Iterator[tuple[Any, Counter[tuple[str, str]]]]:
    """Yield what `_tagged` makes of each block, in their order; only some are on their way at a time."""
    with Parallel(n_jobs=workers) as pool:
        while some := list(islice(blocks, 4 * workers)):
            yield from pool(delayed(_tagged)(block, names, tagger, TAGGERS[tagger]) for block in some)


def _watched(blocks: Iterator[Any], what: str, progress: Progress | None) -> Iterator[Any]:
    """Yield blocks, and report how many rows are done."""
    done = 0
    for block in blocks:
        yield block
        done += block.num_rows
        if progress:
            progress(what, done)


def _write(path: Path, batches: Iterator[Any]) -> int:
    """Write batches to an Arrow file, and return how many rows they have."""
    count, first = 0, next(batches)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as out:
        for batch in chain([first], batches):
            out.write_batch(batch)
            count += batch.num_rows
    return count
