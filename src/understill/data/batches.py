"""Which rows each training batch holds: a pure function of seed and step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understill.data.batch import Batch, Rows, Stream, assemble, padded, sizes_up_to
from understill.data.sampling import Part, shares
from understill.data.units import Ints, Measures, Singles, WholeQueries, queries_of, spans
from understill.recipe.schema import Sampling

#: Units per block of passes; small tasks draw the permutations of many passes at once.
_BLOCK = 1 << 16
#: What a random stream is for; each purpose has its own.
_PASS, _MIX, _ORDER, _CHOICE = range(4)


class EpochPlan(NamedTuple):
    """One epoch: the units of each batch, what they are padded to, and how many rows and tokens they hold."""

    units: Ints  # [steps, batch]
    length: Ints  # [steps]
    rows: Ints  # [steps]
    tokens: Ints  # [steps]


class Batches:
    """The training batches of several tasks; the batch at a step is a pure function of seed and step.

    A stream of rows is given as one `Tokens`, or as two that hold both orders of its texts; then its rows count twice,
    and each order is drawn equally often. An epoch has N draws, the labelled rows of all tasks together, rounded up to
    whole batches, so every batch is full. Task t gets a share ∝ |D_t|^power of them; unlabelled rows come on top. The
    draws walk through permutations of a stream's rows, and the walk goes on where the epoch before ended, so that rows
    are seen equally often, give or take one. Where a stream has groups, all this holds of whole groups: a batch has as
    many units as ever, and more rows.

    With `copies` (as in the BAM authors' code) the target mass m_t = N·|D_t|^power / Σ|D|^power is met by whole
    copies and a weight: c_t = max(1, round(m_t / |D_t|)) copies of each set make up the epoch, and each row of the
    task weighs m_t / (draws of t), scaled so that the mean weight of the epoch's rows is 1.

    "mixed" shuffles all draws together, "one_task" keeps each batch to one task and shuffles the batches. Rows are
    sorted by length inside windows of `window` batches, so that a batch's rows are about equally long.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        batch: int,
        seed: int,
        mode: Literal["mixed", "one_task"] = "mixed",
        sampling: Sampling | None = None,
        window: int = 16,
        pad: int | None = None,
        weights: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        for stream in streams:
            sizes_of = {len(source) for source in stream.sources}
            if not 1 <= len(stream.sources) <= 2 or len(sizes_of) != 1 or not len(stream):
                raise ValueError("a task needs rows, once or in both orders of the same rows")
        sampling = sampling or Sampling()
        everything = [source for stream in streams for source in stream.sources]
        self.streams, self.batch, self.seed, self.mode = streams, batch, seed, mode
        self.pad = everything[0].pad if pad is None else pad
        self.window = window * batch  # in units
        self.sizes = sizes_up_to(max(source.max_length for source in everything)) if sizes is None else tuple(sizes)
        self._parts = [_units_of(stream) for stream in streams]
        self._own = np.array([len(part) for part in self._parts])
        self._units = np.array([len(stream.sources) for stream in streams]) * self._own
        # The units of all streams, in one order of their texts or in both, are numbered through; `_starts` says where
        # those of each begin.
        self._starts = np.concatenate([[0], np.cumsum(self._units)])
        measured = [
            part.measure(source.lengths)
            for part, stream in zip(self._parts, streams, strict=True)
            for source in stream.sources
        ]
        self._measures = Measures(*(np.concatenate(column) for column in zip(*measured, strict=True)))
        parts = [
            Part(stream.task, int(units), stream.share) for stream, units in zip(streams, self._units, strict=True)
        ]
        mass, self.copies, self.draws = shares(parts, batch, mode, sampling)
        self.weights = np.array([1.0 if weights is None else weights[stream.task] for stream in streams], np.float64)
        if sampling.copies:
            self.weights = self.weights * (mass / mass.sum()) * self.draws.sum() / self.draws
        self._plans: dict[int, EpochPlan] = {}
        self._planning = Lock()

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return int(self.draws.sum()) // self.batch

    def __getitem__(self, step: int) -> Batch:
        return self.part(step, 0, 1)

    def part(self, step: int, rank: int, size: int) -> Batch:
        """Return the share of a step's rows that one of several processes takes; a query's candidates stay together."""
        rows = self.rows(step)
        mine = rows.group % size == rank
        own = Rows(rows.stream[mine], rows.source[mine], rows.row[mine], rows.length, rows.group[mine])
        return assemble(self.streams, own, self.weights, self.pad)

    def count(self, step: int) -> int:
        """Return the number of rows of a step."""
        epoch, index = divmod(step, self.steps_per_epoch)
        return int(self.plan(epoch).rows[index])

    def rows(self, step: int) -> Rows:
        """Return the rows of a step, which may be any from 0 on."""
        if step < 0:
            raise IndexError(f"steps count from 0, not {step}")
        epoch, index = divmod(step, self.steps_per_epoch)
        plan = self.plan(epoch)
        units = plan.units[index].astype(np.int64)
        stream = np.searchsorted(self._starts, units, side="right") - 1
        source, own = np.divmod(units - self._starts[stream], self._own[stream])
        count, parts = np.ones_like(own), []
        for number in np.unique(stream):
            here = np.flatnonzero(stream == number)
            drawn, count[here] = self._parts[number].draw(own[here], partial(self._raw, _CHOICE, step, number))
            parts.append((here, drawn))
        group, start = np.repeat(np.arange(len(units)), count), np.cumsum(count) - count
        row = np.empty(len(group), np.int64)
        for here, drawn in parts:
            row[spans(start[here], count[here])] = drawn
        return Rows(stream[group], source[group], row, int(plan.length[index]), group)

    def tokens(self, step: int, rank: int, size: int) -> int:
        """Return the number of tokens of the share of a step's rows that one of several processes takes."""
        epoch, index = divmod(step, self.steps_per_epoch)
        return int(self._measures.tokens[self.plan(epoch).units[index, rank::size]].sum(dtype=np.int64))

    def only(self, step: int) -> int | None:
        """Return the task that all rows of a step belong to; None where they may be of several."""
        if len({stream.task for stream in self.streams}) == 1:
            return self.streams[0].task
        if self.mode == "mixed":
            return None
        epoch, index = divmod(step, self.steps_per_epoch)
        stream = int(np.searchsorted(self._starts, self.plan(epoch).units[index, 0], side="right")) - 1
        return self.streams[stream].task

    def padding_share(self, first: int, last: int) -> float:
        """Return the share of padding among the cells of the steps from `first` up to, not including, `last`."""
        first, cells, tokens = max(first, 0), 0, 0
        steps = self.steps_per_epoch
        for epoch in range(first // steps, -(-last // steps)):
            plan = self.plan(epoch)
            span = slice(max(first - epoch * steps, 0), min(last - epoch * steps, steps))
            cells += int((plan.length[span] * plan.rows[span]).sum())
            tokens += int(plan.tokens[span].sum())
        return 1.0 - tokens / cells if cells else 0.0

    def plan(self, epoch: int) -> EpochPlan:
        """Return an epoch's plan, keeping the last two: a plan costs seconds where there are millions of rows."""
        with self._planning:  # rows may be gathered ahead, by another thread
            plan = self._plans.get(epoch)
            if plan is None:
                plan = self._mixed(epoch) if self.mode == "mixed" else self._one_task(epoch)
                self._plans = dict([*self._plans.items(), (epoch, plan)][-2:])
            return plan

    def _mixed(self, epoch: int) -> EpochPlan:
        units = np.concatenate([self._walk(stream, epoch) for stream in range(len(self.draws))])
        units = units[np.argsort(self._raw(_MIX, epoch, 0, len(units)), kind="stable")]
        units = self._by_length(units)
        window = np.arange(len(units)) // (self.window // self.batch)
        return self._measure(units[np.lexsort((self._raw(_ORDER, epoch, 0, len(units)), window))])

    def _one_task(self, epoch: int) -> EpochPlan:
        units = np.concatenate([self._by_length(self._walk(stream, epoch)) for stream in range(len(self.draws))])
        return self._measure(units[np.argsort(self._raw(_ORDER, epoch, 0, len(units)), kind="stable")])

    def _walk(self, stream: int, epoch: int) -> Ints:
        """Return the units drawn of a stream in an epoch: its next stretch through permutations of them."""
        count, size = int(self.draws[stream]), int(self._units[stream])
        block = size * max(1, _BLOCK // size)
        position, end = epoch * count, (epoch + 1) * count
        parts: list[Ints] = []
        while position < end:
            number, first = divmod(position, block)
            keys = self._raw(_PASS, stream, number, block).reshape(-1, size)
            last = min(block, first + end - position)
            parts.append(np.argsort(keys, axis=1, kind="stable").reshape(-1)[first:last].astype(self._dtype))
            position += last - first
        return np.concatenate(parts) + self._dtype(self._starts[stream])

    @property
    def _dtype(self) -> type[np.integer[Any]]:
        return np.int32 if self._starts[-1] < 2**31 else np.int64

    def _raw(self, purpose: int, one: int, two: int, count: int) -> NDArray[np.uint64]:
        """Return random bits of a stream of their own; numpy keeps raw bits the same across versions and machines."""
        return np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(purpose, one, two))).random_raw(count)

    def _by_length(self, units: Ints) -> Ints:
        """Sort by length inside each window, and cut into batches [steps, batch]."""
        whole = len(units) // self.window * self.window
        blocks = [units[:whole].reshape(-1, self.window), units[whole:].reshape(1, -1)]
        orders = [np.argsort(self._measures.longest[block], axis=1, kind="stable") for block in blocks]
        by_length = [np.take_along_axis(*each, axis=1).reshape(-1) for each in zip(blocks, orders, strict=True)]
        result: Ints = np.concatenate(by_length).reshape(-1, self.batch)
        return result

    def _measure(self, units: Ints) -> EpochPlan:
        """Work out what each batch is padded to."""
        longest, rows, tokens = (counts[units] for counts in self._measures)
        most = longest.max(axis=1)
        table = np.array([padded(length, self.sizes) for length in range(int(most.max()) + 1)])
        return EpochPlan(units, table[most], rows.sum(axis=1, dtype=np.int64), tokens.sum(axis=1, dtype=np.int64))


def _units_of(stream: Stream) -> Singles | WholeQueries:
    """Return what is drawn of a stream in one order of its texts."""
    if stream.groups is None:
        return Singles(stream.rows, len(stream))
    return queries_of(stream.groups, stream.rows, stream.sources[0].gold == 1, stream.most)
