"""Attention over packed rows, as one of Hugging Face's attention functions."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from understill import kernels
from understill.models.dropout import drop

log = logging.getLogger(__name__)

#: Under this name the function stands in a network's configuration.
NAME = "understill"
#: What our own kernel takes: the most tokens of a row, and the sizes of a head.
LONGEST, SIZES = 128, (16, 32, 64, 128)

#: What torch's kernel for rows that lie one after the other computes in.
HALVES = (torch.bfloat16, torch.float16)

_own_kernels = False


@cache
def works(heads: int, size: int, longest: int) -> bool:
    """Tell whether rows can be attended to packed, on the current CUDA device and in bfloat16, by trying it once.

    It depends on the card, on how torch was built, on Triton and on the size of the heads.
    """
    global _own_kernels  # `attend` may be traced, so it cannot find out by itself
    _own_kernels = not kernels.fault()
    tokens = torch.zeros(1, heads, 256, size, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    starts = torch.tensor([0, 1, 3], dtype=torch.int32, device="cuda")
    try:
        out, _ = attend(nn.Module(), tokens, tokens, tokens, None, dropout=0.1, starts=starts, longest=longest)
        out.sum().backward()
        return bool(torch.isfinite(tokens.grad).all()) if tokens.grad is not None else False
    except Exception as error:  # Triton and torch have many ways to say no
        log.info("rows are padded: %s", str(error).strip().partition("\n")[0])
        return False


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    starts: Tensor | None = None,
    longest: int = 0,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attend within each packed row where `starts` says how the rows lie; else as torch does.

    Queries, keys and values are [1, heads, tokens, size]; the answer is [1, tokens, heads, size].
    """
    if starts is None and dropout and not query.is_cuda:
        return _dropping(query, key, value, attention_mask, dropout, scaling), None
    if starts is None:
        attended: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
        return attended
    q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
    scale = q.shape[2] ** -0.5 if scaling is None else scaling
    if not q.is_cuda or q.dtype not in HALVES:
        return _padded(q, k, v, starts, longest, dropout, scale).unsqueeze(0), None
    if _own_kernels and q.dtype == torch.bfloat16 and longest <= LONGEST and q.shape[2] in SIZES:
        seed = torch.randint(2**31 - 1, (1,), device=q.device) if dropout else starts
        return _own(q, k, v, starts, seed, longest, dropout, scale).unsqueeze(0), None
    return _flash(q, k, v, starts, longest, dropout, scale).unsqueeze(0), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@torch.library.custom_op("understill::packed_attention", mutates_args=())
def _own(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, seed: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    """Attend by our own kernel."""
    from understill.kernels import packed_attention

    return packed_attention.forward(q, k, v, starts, seed, longest, dropout, scale)


_own.register_fake(lambda q, *_: q.new_empty(q.shape))


@torch.library.custom_op("understill::packed_attention_backward", mutates_args=())
def _own_back(
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
    """Return the gradients by our own kernel."""
    from understill.kernels import packed_attention

    return packed_attention.backward(grad, q, k, v, starts, seed, longest, dropout, scale)


_own_back.register_fake(lambda grad, q, *_: tuple(q.new_empty(q.shape) for _ in range(3)))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5:]


def _gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (*_own_back(grad, *ctx.saved_tensors, *ctx.settings), None, None, None, None, None)


_own.register_autograd(_gradients, setup_context=_keep)


def _flash(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, dropout: float, scale: float) -> Tensor:
    """Attend by torch's kernel for rows of any length; the padding behind them is a row of its own."""
    ends = torch.cat([starts, starts.new_full((1,), len(q))])
    bound = max(longest, 256, len(q) // 8)  # the padding is shorter, see `room`
    out: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, ends, ends, bound, bound, dropout, False, False, scale=scale
    )[0]
    return out


def _dropping(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scaling: float | None
) -> Tensor:
    """Attend with dropout on a CPU, where torch spends more on drawing it than on all the rest."""
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    scores = query @ key.transpose(2, 3) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (drop(scores.softmax(-1), dropout) @ value).transpose(1, 2).contiguous()


def _padded(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, dropout: float, scale: float) -> Tensor:
    """Attend by torch's kernel for padded rows: the reference, and what runs on a CPU and in float32."""
    cells = torch.arange(longest, device=q.device)
    there = cells < starts.diff().unsqueeze(1)
    places = (starts[:-1].unsqueeze(1) + cells).clamp(max=len(q) - 1)
    query, key, value = (each[places].transpose(1, 2) for each in (q, k, v))  # [n, heads, longest, size]
    mask = there[:, None, None, :]
    if dropout:
        out = _dropping(query, key, value, mask, dropout, scale)[there]
    else:
        out = functional.scaled_dot_product_attention(query, key, value, mask, scale=scale).transpose(1, 2)[there]
    return functional.pad(out, (0, 0, 0, 0, 0, len(q) - len(out)))
