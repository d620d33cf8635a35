"""Packed batches hold what padded ones hold, wherever they are packed, and few sizes serve them all."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import MOOD, TASKS, TOPIC, some_batches, some_tokens
from understill.data.batch import Stream
from understill.data.batches import Batches
from understill.data.packed import Packed, Resident, Streamed, pack, resident_bytes, room
from understill.recipe.schema import Sampling

CPU = torch.device("cpu")


def soft(rows: int, width: int) -> np.ndarray:
    """Return what a teacher of so many outputs might say; of every third row it says nothing."""
    values = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
    values[::3] = np.nan
    return values


@st.composite
def mixtures(draw: st.DrawFn) -> list[Stream]:
    """Streams of several sizes: in one order or both, whole or a part, with teachers of several widths or none."""
    streams = []
    for number in range(draw(st.integers(1, 4))):
        rows, both = draw(st.integers(2, 30)), draw(st.booleans())
        sources = [some_tokens(TOPIC if both else MOOD, rows, seed=10 * number + order) for order in range(1 + both)]
        held = draw(st.none() | st.integers(2, 5))
        kept = None if held is None else np.flatnonzero(np.arange(rows) % held)
        width = draw(st.integers(0, 3))
        columns = {"logits": soft(rows, width)} if width else {}
        if draw(st.booleans()):
            columns |= {
                "margin": soft(rows, 1)[:, 0],
                "relations": soft(rows, 6).reshape(rows, 2, 3),
            }
        streams.append(Stream(number, sources, rows=kept, columns=columns))
    return streams


def assert_packs(tables: Resident | Streamed, source: Batches, steps: range, spare: int) -> None:
    """Check that steps packed from tables hold what their padded batches hold, and padding behind that."""
    stretch = tables.load(source, steps.start)
    for step in steps:
        if not stretch.first <= step < stretch.last:
            stretch = tables.load(source, step)
        expected = pack(source[step])
        tokens = int(source.plan(step // source.steps_per_epoch).tokens[step % source.steps_per_epoch])
        assert len(expected.ids) == tokens
        rows = torch.from_numpy(stretch.rows[step - stretch.first].astype(np.int64))
        packed = tables.pack(rows, tokens + spare, expected.longest)
        assert len(packed) == len(expected) == source.batch
        behind = {"ids": source.pad, "position": 0, "types": 0, "home": source.batch}
        for name, filler in behind.items():
            values = getattr(packed, name)
            torch.testing.assert_close(values[:tokens], getattr(expected, name), rtol=0, atol=0)
            assert (values[tokens:] == filler).all() and len(values) == tokens + spare
        for field in fields(Packed):
            if field.name not in (*behind, "longest"):
                one, two = getattr(packed, field.name), getattr(expected, field.name)
                torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=60)
@given(
    streams=mixtures(),
    batch=st.integers(4, 9),
    mode=st.sampled_from(["mixed", "one_task"]),
    copies=st.booleans(),
    spare=st.sampled_from([0, 1, 40]),
    ahead=st.none() | st.integers(1, 7),
    start=st.integers(0, 5),
)
def test_rows_packed_on_the_device_are_those_of_the_padded_batch(
    streams: list[Stream],
    batch: int,
    mode: Literal["mixed", "one_task"],
    copies: bool,
    spare: int,
    ahead: int | None,
    start: int,
) -> None:
    weights = [1.0 + number for number in range(len(streams))]
    source = Batches(
        streams, batch=batch, seed=3, mode=mode, sampling=Sampling(copies=copies), weights=weights, window=2, pad=99
    )
    whole = Resident(streams, source.weights, source.pad, CPU)
    tables = whole if ahead is None else Streamed(source, CPU, ahead)
    assert_packs(tables, source, range(start, start + source.steps_per_epoch + 2), spare)


def test_streamed_rows_take_the_memory_of_a_few_steps() -> None:
    source = some_batches(rows=400)
    tables = Streamed(source, CPU, 2)
    assert sum(column.nbytes for column in tables.columns.values()) < resident_bytes(source.streams) / 10
    before = {name: column.data_ptr() for name, column in tables.columns.items()}
    assert_packs(tables, source, range(5), 0)
    assert {name: column.data_ptr() for name, column in tables.columns.items()} == before, "recorded steps read there"


def test_the_next_rows_are_gathered_while_the_last_ones_are_used() -> None:
    source = some_batches()
    tables = Streamed(source, CPU, 3)
    first = tables.load(source, 0)
    assert tables.coming is not None and tables.coming[0] == first.last == 3
    gathered = tables.coming[1].result()
    second = tables.load(source, 3)
    assert (second.first, second.last) == (3, 6)
    assert np.array_equal(tables.columns["gold"].numpy(), gathered["gold"])
    assert_packs(tables, source, range(10, 12), 0)  # what was gathered is not what is wanted now


def test_a_packed_batch_tells_its_rows_apart() -> None:
    batch = some_batches(TASKS)[0]
    packed = pack(batch)
    assert packed.longest == batch.lengths.max()
    for row in range(len(batch)):
        span = slice(int(packed.starts[row]), int(packed.starts[row + 1]))
        length = int(batch.lengths[row])
        assert torch.equal(packed.ids[span], batch.ids[row, :length])
        assert torch.equal(packed.types[span], batch.types[row, :length])
        assert packed.position[span].tolist() == list(range(length))
        assert (packed.home[span] == row).all()
    assert packed.types.any(), "pairs are there, or nothing was shown of the second text"


@given(streams=mixtures())
def test_the_memory_of_the_tables_is_known_beforehand(streams: list[Stream]) -> None:
    resident = Resident(streams, np.ones(len(streams)), 0, CPU)
    assert resident_bytes(streams) == sum(column.nbytes for column in resident.columns.values())


# Sizes ---------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**40))
def test_the_room_for_tokens_wastes_little(tokens: int) -> None:
    size = room(tokens)
    assert size >= tokens and size % 64 == 0
    assert size - tokens <= (255 if tokens <= 2048 else tokens / 8)


@given(st.integers(1, 2**40), st.integers(0, 2**30))
def test_more_tokens_never_get_less_room_and_a_size_has_room_for_itself(tokens: int, more: int) -> None:
    assert room(tokens) <= room(tokens + more)
    assert room(room(tokens)) == room(tokens)


@pytest.mark.parametrize("power", [11, 14, 17])
def test_every_doubling_has_eight_sizes(power: int) -> None:
    assert len({room(tokens) for tokens in range(2**power + 1, 2 ** (power + 1) + 1)}) == 8
