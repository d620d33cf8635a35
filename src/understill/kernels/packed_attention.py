"""Attention over packed rows: one small program for each row and head, forwards and backwards.

A row of up to 128 tokens fits into one block, so there is no loop over tiles, and rows of any lengths lie one after
the other without padding between them. Library kernels work in tiles of 128 and more, which short rows leave empty.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Programs for each head that clear the padding behind the rows.
_TAILS = 16


@triton.jit
def _scores(q, k, lane, length, scale):
    """Return the attention of each token of a row to each other, [BLOCK, BLOCK]."""
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where(lane[None, :] < length, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _kept(seed, number, lane, dropout, BLOCK: tl.constexpr):
    """Draw which attention weights survive the dropout; the same both ways, since it only depends on the place.

    The bits are a hash of seed and place (the finaliser of MurmurHash3); Triton's own generator takes longer than all
    else that is done here.
    """
    bits = ((number * BLOCK + lane[:, None]) * BLOCK + lane[None, :]).to(tl.uint32) ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = bits ^ (bits >> 16)
    return (bits >> 8).to(tl.float32) * (1.0 / (1 << 24)) >= dropout


@triton.jit
def _forward(
    q_, k_, v_, out_, starts_, seed_, rows, total, scale, dropout, stride,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, DROP: tl.constexpr, TAILS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    lane, column = tl.arange(0, BLOCK), tl.arange(0, SIZE)
    width = HEADS * SIZE
    if row < rows:
        start = tl.load(starts_ + row)
        length = tl.load(starts_ + row + 1) - start
        here = (lane < length)[:, None]
        cells = (start + lane)[:, None] * stride + head * SIZE + column[None, :]
        q = tl.load(q_ + cells, mask=here, other=0.0)
        k = tl.load(k_ + cells, mask=here, other=0.0)
        v = tl.load(v_ + cells, mask=here, other=0.0)
        weights = _scores(q, k, lane, length, scale)
        if DROP:
            kept = _kept(tl.load(seed_), row * HEADS + head, lane, dropout, BLOCK)
            weights = tl.where(kept, weights / (1 - dropout), 0.0)
        out = tl.dot(weights.to(v.dtype), v)
        tl.store(out_ + (start + lane)[:, None] * width + head * SIZE + column[None, :], out.to(v.dtype), mask=here)
    else:
        # Behind the last row lies padding up to a fixed number of tokens. It must hold numbers: 0 times NaN is NaN.
        nothing = tl.zeros((BLOCK, SIZE), tl.float32).to(out_.dtype.element_ty)
        for begin in range(tl.load(starts_ + rows) + (row - rows) * BLOCK, total, TAILS * BLOCK):
            tail = begin + lane
            cells = tail[:, None] * width + head * SIZE + column[None, :]
            tl.store(out_ + cells, nothing, mask=(tail < total)[:, None])


@triton.jit
def _backward(
    q_, k_, v_, grad_, dq_, dk_, dv_, starts_, seed_, rows, total, scale, dropout, stride,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, DROP: tl.constexpr, TAILS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    lane, column = tl.arange(0, BLOCK), tl.arange(0, SIZE)
    width = HEADS * SIZE
    if row < rows:
        start = tl.load(starts_ + row)
        length = tl.load(starts_ + row + 1) - start
        here = (lane < length)[:, None]
        cells = (start + lane)[:, None] * stride + head * SIZE + column[None, :]
        flat = (start + lane)[:, None] * width + head * SIZE + column[None, :]
        q = tl.load(q_ + cells, mask=here, other=0.0)
        k = tl.load(k_ + cells, mask=here, other=0.0)
        v = tl.load(v_ + cells, mask=here, other=0.0)
        grad = tl.load(grad_ + flat, mask=here, other=0.0)
        weights = _scores(q, k, lane, length, scale)
        slope = tl.dot(grad, tl.trans(v))
        dropped = weights
        if DROP:
            kept = _kept(tl.load(seed_), row * HEADS + head, lane, dropout, BLOCK)
            dropped = tl.where(kept, weights / (1 - dropout), 0.0)
            slope = tl.where(kept, slope / (1 - dropout), 0.0)
        dv = tl.dot(tl.trans(dropped.to(v.dtype)), grad)
        tl.store(dv_ + flat, dv.to(v.dtype), mask=here)
        slope = weights * (slope - tl.sum(weights * slope, 1)[:, None]) * scale
        slope = slope.to(v.dtype)
        tl.store(dq_ + flat, tl.dot(slope, k).to(v.dtype), mask=here)
        tl.store(dk_ + flat, tl.dot(tl.trans(slope), q).to(v.dtype), mask=here)
    else:
        nothing = tl.zeros((BLOCK, SIZE), tl.float32).to(dq_.dtype.element_ty)
        for begin in range(tl.load(starts_ + rows) + (row - rows) * BLOCK, total, TAILS * BLOCK):
            tail = begin + lane
            cells = tail[:, None] * width + head * SIZE + column[None, :]
            there = (tail < total)[:, None]
            tl.store(dq_ + cells, nothing, mask=there)
            tl.store(dk_ + cells, nothing, mask=there)
            tl.store(dv_ + cells, nothing, mask=there)


def forward(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, seed: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    """Return each token's attention over its own row, [tokens, heads, size]."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    settings, grid = _settings(q, starts, longest, dropout)
    rest = (starts, seed, len(starts) - 1, len(q), scale, dropout, q.stride(0))
    _forward[grid](q, k, v, out, *rest, **settings)
    return out


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    dq, dk, dv = (torch.empty(q.shape, dtype=q.dtype, device=q.device) for _ in range(3))
    settings, grid = _settings(q, starts, longest, dropout)
    rest = (starts, seed, len(starts) - 1, len(q), scale, dropout, q.stride(0))
    _backward[grid](q, k, v, grad.contiguous(), dq, dk, dv, *rest, **settings)
    return dq, dk, dv


def _settings(q: Tensor, starts: Tensor, longest: int, dropout: float) -> tuple[dict[str, object], tuple[int, int]]:
    """Return what the kernels are compiled for, and the number of programs."""
    _, heads, size = q.shape
    block = max(16, triton.next_power_of_2(longest))
    grid = (len(starts) - 1 + _TAILS, heads)
    settings = {
        "HEADS": heads,
        "SIZE": size,
        "BLOCK": block,
        "DROP": dropout > 0,
        "TAILS": _TAILS,
        "num_warps": 8 if block == 128 else 4 if block >= 64 else 2,
    }
    return settings, grid
