"""Packed batches: rows one after the other without padding between them, and tables that make them on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understill.data.batch import Batch, Floats, Stream


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
    teacher: Tensor

    def __len__(self) -> int:
        return len(self.task)


def pack(batch: Batch) -> Packed:
    """Leave the padding of a batch out."""
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
        teacher=batch.teacher,
    )


def room(tokens: int) -> int:
    """Round a number of tokens up, so that few sizes serve all batches: multiples of 256, then 8 in every doubling."""
    step = max(256, 1 << max(0, int(tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step


class Resident:
    """The rows of several streams on a device, from which batches are packed there.

    Rows have the numbers of `Batches`: those of a stream in one order of their texts, then in the other.
    """

    def __init__(self, streams: Sequence[Stream], weights: Floats, pad: int, device: torch.device) -> None:
        def column(parts: Sequence[NDArray[Any]], dtype: str) -> Tensor:
            return torch.from_numpy(np.concatenate(parts).astype(dtype)).to(device)

        ids, start, length, second, gold, task, weight, teacher = [], [], [], [], [], [], [], []
        width, base = _width(streams), 0
        for stream, heavy in zip(streams, weights, strict=True):
            for source in stream.sources:
                rows = np.arange(len(source)) if stream.rows is None else stream.rows
                ids.append(source.ids)
                start.append(base + source.offsets[rows])
                length.append(source.lengths[rows])
                second.append(source.second[rows])
                gold.append(source.gold[rows])
                task.append(np.full(len(rows), stream.task))
                weight.append(np.full(len(rows), heavy))
                said = np.full((len(rows), width), np.nan, np.float32)
                if stream.teacher is not None:
                    said[:, : stream.teacher.shape[1]] = stream.teacher[rows]
                teacher.append(said)
                base += len(source.ids)
        self.pad = pad
        self.ids = column(ids, "int32")
        self.start, self.length = column(start, "int64"), column(length, "int32")
        self.second = column(second, "int32")
        self.gold, self.weight = column(gold, "float32"), column(weight, "float32")
        self.task, self.teacher = column(task, "int64"), column(teacher, "float32")

    def pack(self, rows: Tensor, tokens: int, longest: int) -> Packed:
        """Pack rows, int64 [n], that have at most so many tokens in all."""
        count = len(rows)
        starts = _starts(self.length[rows])
        cells = torch.arange(tokens, dtype=torch.int32, device=rows.device)
        home = torch.searchsorted(starts[1:], cells, right=True)
        real = home < count
        owner = rows[home.clamp(max=count - 1)]
        position = torch.where(real, cells - starts[home], 0).long()
        ids = torch.where(real, self.ids[self.start[owner] + position], self.pad)
        return Packed(
            ids=ids.long(),
            position=position,
            types=(real & (position >= self.second[owner])).long(),
            home=home,
            starts=starts,
            longest=longest,
            task=self.task[rows],
            gold=self.gold[rows],
            weight=self.weight[rows],
            teacher=self.teacher[rows],
        )


def resident_bytes(streams: Sequence[Stream]) -> int:
    """Return how much memory the tables of `Resident` take."""
    tokens = sum(len(source.ids) for stream in streams for source in stream.sources)
    rows = sum(len(stream) * len(stream.sources) for stream in streams)
    return 4 * tokens + (32 + 4 * _width(streams)) * rows


def _width(streams: Sequence[Stream]) -> int:
    return max((stream.teacher.shape[1] for stream in streams if stream.teacher is not None), default=0)


def _starts(lengths: Tensor) -> Tensor:
    ends = lengths.cumsum(0, dtype=torch.int32)
    return torch.cat([torch.zeros_like(ends[:1]), ends])
