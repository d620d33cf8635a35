"""One step of an LSTM in both directions, for all texts that are long enough: gates, cells and states in one kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

#: Texts of a program.
_TEXTS = 4


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


# Triton would compile it anew for numbers that are 1 or multiples of 16.
@triton.jit(do_not_specialize=["step", "count", "rows"])
def _step(
    added_, table_, words_, starts_, lengths_, states_, cells_, step, count, rows,
    UNITS: tl.constexpr, BLOCK: tl.constexpr, TEXTS: tl.constexpr,
):  # fmt: skip
    way = tl.program_id(1)
    text = tl.program_id(0) * TEXTS + tl.arange(0, TEXTS)
    unit = tl.arange(0, BLOCK)
    there = text < count
    here = there[:, None] & (unit < UNITS)[None, :]
    start = tl.load(starts_ + text, mask=there, other=0)
    length = tl.load(lengths_ + text, mask=there, other=1)
    word = tl.load(words_ + start + tl.where(way == 0, step, length - 1 - step), mask=there, other=0)
    # Numbers of cells go past 32 bits where there are many texts.
    added = (way * count + text).to(tl.int64)[:, None] * (4 * UNITS) + unit[None, :]
    known = (word.to(tl.int64) * 2 + way)[:, None] * (4 * UNITS) + unit[None, :]
    own = (way * rows + text).to(tl.int64)[:, None] * UNITS + unit[None, :]
    gate = tl.load(added_ + added, mask=here, other=0.0).to(tl.float32)
    entry = tl.sigmoid(gate + tl.load(table_ + known, mask=here, other=0.0).to(tl.float32))
    gate = tl.load(added_ + added + UNITS, mask=here, other=0.0).to(tl.float32)
    forget = tl.sigmoid(gate + tl.load(table_ + known + UNITS, mask=here, other=0.0).to(tl.float32))
    gate = tl.load(added_ + added + 2 * UNITS, mask=here, other=0.0).to(tl.float32)
    candidate = _tanh(gate + tl.load(table_ + known + 2 * UNITS, mask=here, other=0.0).to(tl.float32))
    gate = tl.load(added_ + added + 3 * UNITS, mask=here, other=0.0).to(tl.float32)
    out = tl.sigmoid(gate + tl.load(table_ + known + 3 * UNITS, mask=here, other=0.0).to(tl.float32))
    cell = forget * tl.load(cells_ + own, mask=here, other=0.0) + entry * candidate
    tl.store(cells_ + own, cell, mask=here)
    tl.store(states_ + own, (out * _tanh(cell)).to(states_.dtype.element_ty), mask=here)


def take_step(
    added: Tensor,
    table: Tensor,
    words: Tensor,
    starts: Tensor,
    lengths: Tensor,
    states: Tensor,
    cells: Tensor,
    step: int,
) -> None:
    """Update the states and cells, [2, n, units], of the first texts, in place.

    `added`, [2, texts, 4 · units], is what their states add to the gates of the words that they read in this step; the
    latter stand in a table, [words, 2, 4 · units].
    """
    count, rows, units = added.shape[1], states.shape[1], states.shape[2]
    _step[(triton.cdiv(count, _TEXTS), 2)](
        added, table, words, starts, lengths, states, cells, step, count, rows,
        UNITS=units, BLOCK=triton.next_power_of_2(units), TEXTS=_TEXTS,
    )  # fmt: skip
