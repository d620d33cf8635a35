"""Layer norms in one pass over memory: what they read is added, or gathered from tables, on the way."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Values that one program handles: some rows, padded to a power of two.
_CELLS = 4096


@triton.jit
def _place(rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return a program's rows, which of them there are, its columns, and which cells there are."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    return row, row < rows, column, (row < rows)[:, None] & (column < WIDTH)[None, :]


@triton.jit
def _normalised(values, scale_, bias_, column, eps, WIDTH: tl.constexpr):
    """Return the layer norm of rows; cells beside them hold 0."""
    inside = column < WIDTH
    mean = tl.sum(values, 1) / WIDTH
    apart = tl.where(inside[None, :], values - mean[:, None], 0.0)
    spread = tl.sqrt(tl.sum(apart * apart, 1) / WIDTH + eps)
    scale = tl.load(scale_ + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ + column, mask=inside, other=0.0).to(tl.float32)
    return apart / spread[:, None] * scale[None, :] + bias[None, :]


@triton.jit(do_not_specialize=["rows"])
def _add(
    values_, residual_, scale_, bias_, rows, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    row, _, column, here = _place(rows, WIDTH, BLOCK, ROWS)
    cells = row[:, None] * WIDTH + column[None, :]
    values = tl.load(values_ + cells, mask=here, other=0.0).to(tl.float32)
    values += tl.load(residual_ + cells, mask=here, other=0.0).to(tl.float32)
    values = _normalised(values, scale_, bias_, column, eps, WIDTH)
    tl.store(values_ + cells, values.to(values_.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["rows"])
def _embed(
    words_, places_, kinds_, ids_, positions_, types_, out_, scale_, bias_, rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, there, column, here = _place(rows, WIDTH, BLOCK, ROWS)
    word = tl.load(ids_ + row, mask=there, other=0)[:, None] * WIDTH + column[None, :]
    place = tl.load(positions_ + row, mask=there, other=0)[:, None] * WIDTH + column[None, :]
    kind = tl.load(types_ + row, mask=there, other=0)[:, None] * WIDTH + column[None, :]
    values = tl.load(words_ + word, mask=here, other=0.0).to(tl.float32)
    values += tl.load(places_ + place, mask=here, other=0.0).to(tl.float32)
    values += tl.load(kinds_ + kind, mask=here, other=0.0).to(tl.float32)
    values = _normalised(values, scale_, bias_, column, eps, WIDTH)
    tl.store(out_ + row[:, None] * WIDTH + column[None, :], values.to(out_.dtype.element_ty), mask=here)


def add_norm(values: Tensor, residual: Tensor, scale: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return the layer norm of values + residual, [rows, width] each, in the place of the values."""
    grid, settings = _settings(values)
    _add[grid](values, residual, scale, bias, len(values), eps, **settings)
    return values


def embed_norm(
    tables: tuple[Tensor, Tensor, Tensor],
    ids: Tensor,
    positions: Tensor,
    types: Tensor,
    scale: Tensor,
    bias: Tensor,
    eps: float,
    kind: torch.dtype,
) -> Tensor:
    """Return the layer norm of the sum of each token's rows of three tables: of words, positions and types."""
    out = torch.empty(len(ids), tables[0].shape[1], dtype=kind, device=ids.device)
    grid, settings = _settings(out)
    _embed[grid](*tables, ids, positions, types, out, scale, bias, len(ids), eps, **settings)
    return out


def _settings(values: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Return the number of programs, and what the kernels are compiled for."""
    rows, width = values.shape
    block = triton.next_power_of_2(width)
    each = max(1, _CELLS // block)
    return (triton.cdiv(rows, each),), {"WIDTH": width, "BLOCK": block, "ROWS": each, "num_warps": 4}
