"""A batch: rows of the streams of several tasks as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from understill.data.sampling import Floats
from understill.data.tokens import Tokens
from understill.data.units import Ints

#: The lengths rows are padded to. A few fixed ones, so that a step can be compiled or captured once for each.
PADDED = (16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
#: In a task's place: rows that all tasks are asked about.
EVERY = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as tensors; one batch may mix tasks, since each row says which it belongs to."""

    ids: Tensor  # int64 [n, L], padded
    lengths: Tensor  # int64 [n]
    second: Tensor  # int64 [n], first token of the second text; the length where there is none
    task: Tensor  # int64 [n], index of the row's task, or EVERY
    gold: Tensor  # float32 [n], class index or score; [n, K] where a task's gold has K numbers; NaN: there is none
    weight: Tensor  # float32 [n], weight of the row's loss
    row: Tensor  # int64 [n], row number within the task's data
    group: Tensor  # int64 [n], equal for the candidates of a query, which stand side by side; other rows are alone
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # soft targets, float32 [n, …]; NaN: there is none

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Return the batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pinned(self) -> Batch:
        """Return the batch in memory that a GPU can fetch by itself."""
        return self.map(Tensor.pin_memory)

    def part(self, rows: slice) -> Batch:
        """Return some of the rows, as views, padded as before."""
        return self.map(lambda tensor: tensor[rows])

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with every tensor changed in the same way."""
        columns = {name: change(values) for name, values in self.columns.items()}
        tensors = {each.name: change(getattr(self, each.name)) for each in fields(self) if each.name != "columns"}
        return Batch(**tensors, columns=columns)

    def cut(self, units: int) -> list[slice]:
        """Return where to cut the rows into parts of so many units: single rows, or whole groups."""
        starts = np.flatnonzero(np.diff(self.group.numpy(), prepend=-1))[::units].tolist()
        return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(self)], strict=True)]

    @property
    def mask(self) -> Tensor:
        """Bool [n, L]: which cells hold tokens."""
        return self._cells < self.lengths[:, None]

    @property
    def types(self) -> Tensor:
        """Int64 [n, L]: 1 from the second text on, 0 before it and on padding."""
        return (self.mask & (self._cells >= self.second[:, None])).long()

    @property
    def _cells(self) -> Tensor:
        return torch.arange(self.ids.shape[1], device=self.ids.device)


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that are drawn together: a task's labelled rows, or its unlabelled ones."""

    task: int
    sources: Sequence[Tokens]  # one, or two that hold both orders of the same rows' texts
    rows: Ints | None = None  # only these rows; all, where none are given
    columns: Mapping[str, Floats] = field(default_factory=dict)  # soft targets, [all rows, …]; NaN: there is none
    share: float = 0.0  # of the task's draws, where these are its unlabelled rows
    groups: Ints | None = None  # [all rows], the numbers of their queries, where candidates are drawn together
    most: int | None = None  # candidates of a query in a step

    def __len__(self) -> int:
        return len(self.sources[0]) if self.rows is None else len(self.rows)


class Rows(NamedTuple):
    """The rows of one step: what a batch is made of."""

    stream: Ints  # [n]
    source: Ints  # [n], which order of the two texts
    row: Ints  # [n]
    length: int  # they are padded to this
    group: Ints  # [n], equal for rows that belong together


def padded(length: int, sizes: Sequence[int] = PADDED) -> int:
    """Return the smallest of the sizes that holds the length; beyond the last, the next multiple of 128."""
    return next((size for size in sizes if size >= length), -(-length // 128) * 128)


def sizes_up_to(max_length: int) -> tuple[int, ...]:
    """Return the sizes for rows of at most so many tokens; none goes past what the encoder can read."""
    return (*(size for size in PADDED if size < max_length), max_length) if max_length else PADDED


def sizes_on(device: str, max_length: int, *, light: bool = False) -> Sequence[int]:
    """Return the sizes for rows on a kind of device.

    A CPU need not prepare for each, nor need a light network, whose time goes by the length: they take any.
    """
    return range(1, (max_length or PADDED[-1]) + 1) if light or device == "cpu" else sizes_up_to(max_length)


def assemble(streams: Sequence[Stream], rows: Rows, weights: Floats, pad: int) -> Batch:
    """Gather rows into one padded batch; `weights` are those of the streams."""
    count = len(rows.row)
    ids = np.full((count, rows.length), pad, np.int64)
    lengths, second = np.empty(count, np.int64), np.empty(count, np.int64)
    golds = max(source.gold.shape[1:] for stream in streams for source in stream.sources)  # of a row; () is one number
    gold = np.full((count, *golds), np.nan, np.float32)
    columns = {name: np.full((count, *shape), np.nan, np.float32) for name, shape in column_shapes(streams).items()}
    origins = rows.stream.astype(np.int64) * 2 + rows.source
    cells = np.arange(rows.length)
    for origin in np.unique(origins):
        here = np.flatnonzero(origins == origin)
        stream, row = streams[origin // 2], rows.row[here]
        source = stream.sources[origin % 2]
        start = np.asarray(source.offsets[row])
        length = np.asarray(source.offsets[row + 1]) - start
        full = cells < length[:, None]
        block = ids[here]
        block[full] = source.ids[(start[:, None] + cells)[full]]
        ids[here], lengths[here], second[here] = block, length, source.second[row]
        put(gold, here, source.gold[row])
        for name, values in stream.columns.items():
            put(columns[name], here, values[row])
    tasks = np.array([stream.task for stream in streams], np.int64)
    return Batch(
        ids=torch.from_numpy(ids),
        lengths=torch.from_numpy(lengths),
        second=torch.from_numpy(second),
        task=torch.from_numpy(tasks[rows.stream]),
        gold=torch.from_numpy(gold),
        weight=torch.from_numpy(weights[rows.stream].astype(np.float32)),
        row=torch.from_numpy(rows.row.astype(np.int64)),
        group=torch.from_numpy(rows.group.astype(np.int64)),
        columns={name: torch.from_numpy(values) for name, values in columns.items()},
    )


def column_shapes(streams: Sequence[Stream]) -> dict[str, tuple[int, ...]]:
    """Return the shape of one row of each column: that of the widest stream, since tasks differ in their outputs."""
    shapes: dict[str, tuple[int, ...]] = {}
    for stream in streams:
        for name, values in stream.columns.items():
            own = values.shape[1:]
            shapes[name] = tuple(map(max, shapes.get(name, own), own))
    return shapes


def put(target: Floats, rows: Ints, values: Floats) -> None:
    """Write values of some rows into a table that may be wider than they are."""
    if target.ndim > values.ndim:
        values = values[:, None]
    places: Any = (rows, *map(slice, values.shape[1:]))
    target[places] = values


def in_order(tokens: Tokens, task_index: int, batch: int, *, sizes: Sequence[int] | None = None) -> Iterator[Batch]:
    """Go through every row once, for evaluation: longest first, so that too little memory shows at once.

    `Batch.row` says which rows they are. The last batch may be smaller.
    """
    sizes = sizes_up_to(tokens.max_length) if sizes is None else sizes
    lengths = tokens.lengths
    order = np.argsort(-lengths, kind="stable")
    streams, weights = [Stream(task_index, [tokens])], np.ones(1)
    for start in range(0, len(order), batch):
        row = order[start : start + batch]
        alone = np.arange(len(row))
        rows = Rows(np.zeros_like(row), np.zeros_like(row), row, padded(int(lengths[row[0]]), sizes), alone)
        yield assemble(streams, rows, weights, tokens.pad)
