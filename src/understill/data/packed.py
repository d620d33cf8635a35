"""Packed batches: rows one after the other without padding between them, and tables that make them on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understill.data.batch import Batch, Rows, Stream, column_shapes, put
from understill.data.batches import Batches
from understill.data.sampling import Floats
from understill.data.units import Ints, spans


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows as one long line of tokens; behind the last row there may be padding up to a fixed number of tokens."""

    ids: Tensor  # int64 [tokens]
    position: Tensor  # int64 [tokens], place within the row
    types: Tensor  # int64 [tokens], 1 from the second text on
    home: Tensor  # int64 [tokens], the row of each token; n for padding
    starts: Tensor  # int32 [n + 1], where each row begins, and where the last one ends
    longest: int  # no row has more tokens
    task: Tensor  # the rest as in Batch
    gold: Tensor
    weight: Tensor
    columns: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.task)

    @property
    def lengths(self) -> Tensor:
        """Int64 [n]: the number of tokens of each row."""
        return self.starts.diff().long()

    @property
    def second(self) -> Tensor:
        """Int64 [n]: the first token of the second text; the length where there is none."""
        # Padding behind the rows belongs to a row of its own.
        return self.ids.new_zeros(len(self) + 1).index_add(0, self.home, 1 - self.types)[:-1]


def pack(batch: Batch) -> Packed:
    """Remove the padding of a batch."""
    home, position = batch.mask.nonzero(as_tuple=True)
    return Packed(
        ids=batch.ids[home, position],
        position=position,
        types=batch.types[home, position],
        home=home,
        starts=_starts(batch.lengths),
        longest=int(batch.lengths.max()),
        task=batch.task,
        gold=batch.gold,
        weight=batch.weight,
        columns=batch.columns,
    )


def room(tokens: int) -> int:
    """Round a number of tokens up, so that few sizes serve all batches: multiples of 256, then 8 in every doubling."""
    step = max(256, 1 << max(0, int(tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step


class Stretch(NamedTuple):
    """Steps whose rows are at hand on the device."""

    first: int
    last: int  # the step after them
    rows: NDArray[Any]  # [steps, batch], where the rows of each step stand in the tables


class Tables:
    """Rows on a device, from which batches are packed there."""

    def __init__(self, columns: dict[str, Tensor], pad: int) -> None:
        self.columns, self.pad = columns, pad
        self.taught = {name.removeprefix(_TAUGHT): name for name in columns if name.startswith(_TAUGHT)}

    def pack(self, rows: Tensor, tokens: int, longest: int) -> Packed:
        """Pack rows, int64 [n], that have at most so many tokens in all."""
        columns, count = self.columns, len(rows)
        starts = _starts(columns["length"][rows])
        cells = torch.arange(tokens, dtype=torch.int32, device=rows.device)
        home = torch.searchsorted(starts[1:], cells, right=True)
        real = home < count
        owner = rows[home.clamp(max=count - 1)]
        position = torch.where(real, cells - starts[home], 0).long()
        ids = torch.where(real, columns["ids"][columns["start"][owner] + position], self.pad)
        return Packed(
            ids=ids.long(),
            position=position,
            types=(real & (position >= columns["second"][owner])).long(),
            home=home,
            starts=starts,
            longest=longest,
            task=columns["task"][rows],
            gold=columns["gold"][rows],
            weight=columns["weight"][rows],
            columns={name: columns[at][rows] for name, at in self.taught.items()},
        )


class Resident(Tables):
    """All rows of several streams.

    They have the numbers of `Batches`: those of a stream in one order of their texts, then in the other.
    """

    def __init__(self, streams: Sequence[Stream], weights: Floats, pad: int, device: torch.device) -> None:
        parts: list[dict[str, NDArray[Any]]] = []
        base = 0
        for number, stream in enumerate(streams):
            for source in range(len(stream.sources)):
                tokens = stream.sources[source]
                rows = np.arange(len(tokens)) if stream.rows is None else stream.rows
                own = _columns(streams, weights, number, source, rows)
                parts.append({**own, "ids": tokens.ids, "start": base + tokens.offsets[rows]})
                base += len(tokens.ids)
        columns = {}
        for name, dtype in _dtypes(streams).items():
            joined = np.concatenate([part[name] for part in parts], dtype=dtype, casting="unsafe")  # in one pass
            columns[name] = torch.from_numpy(joined).to(device)
        super().__init__(columns, pad)

    def load(self, batches: Batches, step: int) -> Stretch:
        """Make the rows of a step ready, with those of its whole epoch."""
        epoch = step // batches.steps_per_epoch
        first = epoch * batches.steps_per_epoch
        return Stretch(first, first + batches.steps_per_epoch, batches.plan(epoch).units)


class Streamed(Tables):
    """The rows of the next steps, where all of them do not fit; those after them are gathered meanwhile."""

    def __init__(self, batches: Batches, device: torch.device, steps: int = 256) -> None:
        self.steps = min(steps, batches.steps_per_epoch)
        rows = self.steps * batches.batch
        shapes = {"ids": (rows * max(batches.sizes),), **_taught_shapes(batches.streams, rows)}
        columns = {
            name: torch.zeros(shapes.get(name, (rows,)), dtype=getattr(torch, dtype), device=device)
            for name, dtype in _dtypes(batches.streams).items()
        }
        super().__init__(columns, batches.pad)
        self.helper = ThreadPoolExecutor(1)
        self.coming: tuple[int, Future[dict[str, NDArray[Any]]]] | None = None

    def load(self, batches: Batches, step: int) -> Stretch:
        """Bring the rows of the next steps of an epoch to the device."""
        if self.coming is None or self.coming[0] != step:
            self.coming = step, self.helper.submit(self._gather, batches, step)
        for name, values in self.coming[1].result().items():
            fresh = torch.from_numpy(values)
            fresh = fresh.pin_memory() if self.columns[name].is_cuda else fresh
            self.columns[name][: len(values)].copy_(fresh, non_blocking=True)
        last = self._end(batches, step)
        self.coming = last, self.helper.submit(self._gather, batches, last)
        rows = np.arange((last - step) * batches.batch).reshape(last - step, batches.batch)
        return Stretch(step, last, rows)

    def _end(self, batches: Batches, step: int) -> int:
        epoch = step // batches.steps_per_epoch
        return min(step + self.steps, (epoch + 1) * batches.steps_per_epoch)

    def _gather(self, batches: Batches, step: int) -> dict[str, NDArray[Any]]:
        """Copy the rows of the steps from `step` on out of their files."""
        chosen = [batches.rows(number) for number in range(step, self._end(batches, step))]
        stream, source, row = (np.concatenate([getattr(each, name) for each in chosen]) for name in Rows._fields[:3])
        count = len(row)
        shapes = _taught_shapes(batches.streams, count)
        dtypes = _dtypes(batches.streams)
        columns = {name: np.empty(shapes.get(name, (count,)), dtypes[name]) for name in dtypes if name != "ids"}
        groups, pieces = stream * 2 + source, {}
        for group in np.unique(groups):
            here = np.flatnonzero(groups == group)
            own = _columns(batches.streams, batches.weights, group // 2, group % 2, row[here])
            for name, values in own.items():
                columns[name][here] = values
            pieces[group] = here
        ends = np.cumsum(columns["length"], dtype=np.int64)
        columns["start"] = ends - columns["length"]
        ids = np.empty(int(ends[-1]), np.int32)
        for group, here in pieces.items():
            tokens = batches.streams[group // 2].sources[group % 2]
            ids[spans(columns["start"][here], columns["length"][here])] = tokens.ids[
                spans(tokens.offsets[row[here]], columns["length"][here])
            ]
        return {**columns, "ids": ids}


#: What is known of each row, and its tokens.
DTYPES = {
    "ids": "int32",
    "start": "int64",
    "length": "int32",
    "second": "int32",
    "gold": "float32",
    "weight": "float32",
    "task": "int64",
}
#: Before the names of columns of soft targets.
_TAUGHT = "taught:"


def _columns(
    streams: Sequence[Stream], weights: Floats, number: int, source: int, rows: Ints
) -> dict[str, NDArray[Any]]:
    """Return what is known of some rows of a stream, save their tokens."""
    stream = streams[number]
    tokens = stream.sources[source]
    taught = {name: np.full(shape, np.nan, np.float32) for name, shape in _taught_shapes(streams, len(rows)).items()}
    for name, values in stream.columns.items():
        put(taught[f"{_TAUGHT}{name}"], np.arange(len(rows)), values[rows])
    return {
        "length": np.asarray(tokens.offsets[rows + 1] - tokens.offsets[rows]),
        "second": tokens.second[rows],
        "gold": tokens.gold[rows],
        "weight": np.full(len(rows), weights[number]),
        "task": np.full(len(rows), stream.task),
        **taught,
    }


def resident_bytes(streams: Sequence[Stream]) -> int:
    """Return how much memory the tables of `Resident` take."""
    tokens = sum(len(source.ids) for stream in streams for source in stream.sources)
    rows = sum(len(stream) * len(stream.sources) for stream in streams)
    numbers = sum(math.prod(shape) for shape in column_shapes(streams).values())
    return 4 * tokens + (32 + 4 * numbers) * rows


def _taught_shapes(streams: Sequence[Stream], rows: int) -> dict[str, tuple[int, ...]]:
    return {f"{_TAUGHT}{name}": (rows, *shape) for name, shape in column_shapes(streams).items()}


def _dtypes(streams: Sequence[Stream]) -> dict[str, str]:
    return {**DTYPES, **dict.fromkeys(_taught_shapes(streams, 0), "float32")}


def _starts(lengths: Tensor) -> Tensor:
    ends = lengths.cumsum(0, dtype=torch.int32)
    return torch.cat([torch.zeros_like(ends[:1]), ends])
