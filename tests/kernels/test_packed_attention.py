"""The attention kernels: what plain torch says of each row, forwards and backwards, with dropout and without."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from understill.models import attention

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Triton's interpreter, which runs the kernels without a GPU, works in single precision as well.
KIND = torch.bfloat16 if DEVICE == "cuda" else torch.float32
SHARP = 5e-3


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    from understill.kernels import packed_attention as module

    return module


class Rows:
    """Made-up packed rows."""

    def __init__(self, lengths: list[int], tail: int = 0, heads: int = 2, size: int = 16) -> None:
        generator = torch.Generator().manual_seed(sum(lengths))
        self.end = sum(lengths)
        shape = (self.end + tail, heads, size)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(DEVICE, KIND)

        # As views of one product, as a layer that computes all three at once gives them.
        self.q, self.k, self.v = draw(shape[0], 3, heads, size).unbind(1)
        self.grad = draw(*shape)
        self.starts = torch.tensor([0, *lengths], device=DEVICE).cumsum(0, dtype=torch.int32)
        self.longest, self.scale = max(lengths), size**-0.5
        self.seed = torch.tensor([1234], device=DEVICE)

    def spans(self) -> list[slice]:
        ends = self.starts.tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    def arguments(self, dropout: float = 0.0) -> tuple[Any, ...]:
        return self.starts, self.seed, self.longest, dropout, self.scale

    def expected(self, kept: list[Tensor] | None = None) -> tuple[Tensor, ...]:
        """Return output and gradients in single precision; `kept` [heads, length, length] scales each row's weights."""
        q, k, v = (each.detach().float().requires_grad_() for each in (self.q, self.k, self.v))
        out = torch.zeros_like(self.grad, dtype=torch.float32)
        for number, span in enumerate(self.spans()):
            weights = (torch.einsum("ihd,jhd->hij", q[span], k[span]) * self.scale).softmax(-1)
            weights = weights if kept is None else weights * kept[number]
            out[span] = torch.einsum("hij,jhd->ihd", weights, v[span])
        return out.detach(), *torch.autograd.grad(out, (q, k, v), self.grad.float())


def apart(result: Tensor, expected: Tensor) -> float:
    return float((result.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("lengths", "size"),
    [([1], 16), ([5, 16, 1, 9], 16), ([17, 3, 30], 32), ([33, 60], 64), ([128, 2, 100], 32), ([16, 16], 128)],
    ids=str,
)
def test_output_and_gradients_are_those_of_plain_attention(kernels: ModuleType, lengths: list[int], size: int) -> None:
    rows = Rows(lengths, tail=5, size=size)
    out = kernels.forward(rows.q, rows.k, rows.v, *rows.arguments())
    slopes = kernels.backward(rows.grad, rows.q, rows.k, rows.v, *rows.arguments())
    for result, expected in zip((out, *slopes), rows.expected(), strict=True):
        assert result.dtype == KIND and result.shape == rows.q.shape
        if expected.norm() > 1e-6:  # a row of one token attends to itself, whatever its query
            assert apart(result, expected) < SHARP


@pytest.mark.parametrize("tail", [0, 1, 700])  # the last takes each program more than one round
def test_what_lies_behind_the_rows_is_zero(kernels: ModuleType, tail: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([3, 14], tail=tail)

    def dirty(shape: Any, **settings: Any) -> Tensor:
        return torch.full(shape, torch.nan, **settings)

    monkeypatch.setattr(torch, "empty", dirty)
    out = kernels.forward(rows.q, rows.k, rows.v, *rows.arguments(0.1))
    slopes = kernels.backward(rows.grad, rows.q, rows.k, rows.v, *rows.arguments(0.1))
    for result in (out, *slopes):
        assert result[: rows.end].isfinite().all(), "every place of a row was written"
        assert (result[rows.end :] == 0).all()


def masks(kernels: ModuleType, rows: Rows, dropout: float) -> list[Tensor]:
    """Return which weights of each row survive: seen by values that tell the tokens of a row apart."""
    telling = torch.zeros_like(rows.v)
    for span in rows.spans():
        telling[span] = torch.eye(rows.v.shape[2], device=DEVICE, dtype=KIND)[: span.stop - span.start].unsqueeze(1)
    out = kernels.forward(rows.q, rows.k, telling, *rows.arguments(dropout))
    return [out[span, :, : span.stop - span.start].transpose(0, 1) > 0 for span in rows.spans()]


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_forwards_is_that_backwards(kernels: ModuleType, dropout: float) -> None:
    rows = Rows([16, 7, 12, 1], tail=3)
    rows.q, rows.k, rows.v = (each.contiguous() for each in (rows.q, rows.k, rows.v))
    kept = [mask.float() / (1 - dropout) for mask in masks(kernels, rows, dropout)]
    out = kernels.forward(rows.q, rows.k, rows.v, *rows.arguments(dropout))
    slopes = kernels.backward(rows.grad, rows.q, rows.k, rows.v, *rows.arguments(dropout))
    for result, expected in zip((out, *slopes), rows.expected(kept), strict=True):
        assert apart(result, expected) < SHARP


def test_dropout_drops_its_share_anew_for_every_place_head_row_and_seed(kernels: ModuleType) -> None:
    rows = Rows([16] * 40)
    rows.q, rows.k, rows.v = (each.contiguous() for each in (rows.q, rows.k, rows.v))
    one = torch.stack(masks(kernels, rows, 0.25)).float()  # [rows, heads, 16, 16]
    assert torch.equal(one, torch.stack(masks(kernels, rows, 0.25)).float())
    rows.seed = rows.seed + 1
    two = torch.stack(masks(kernels, rows, 0.25)).float()

    def share(values: Tensor) -> float:
        return float(values.mean())

    # Five times the spread of a share of so many draws.
    near = 5 * (0.25 * 0.75 / one.numel()) ** 0.5
    assert abs(share(one) - 0.75) < near and abs(share(two) - 0.75) < near
    both = 0.75**2
    assert abs(share(one * two) - both) < 2 * near
    assert abs(share(one[1:] * one[:-1]) - both) < 2 * near
    assert abs(share(one[:, 0] * one[:, 1]) - both) < 3 * near
    assert abs(share(one[..., 1:] * one[..., :-1]) - both) < 2 * near
    assert abs(share(one[..., 1:, :] * one[..., :-1, :]) - both) < 2 * near


def test_torch_differentiates_through_the_kernels(kernels: ModuleType) -> None:
    rows = Rows([9, 16, 4], tail=2)
    leaves = [each.detach().clone().requires_grad_() for each in (rows.q, rows.k, rows.v)]
    out = attention._own(*leaves, *rows.arguments())
    slopes = torch.autograd.grad(out, leaves, rows.grad)
    for result, expected in zip((out.detach(), *slopes), rows.expected(), strict=True):
        assert apart(result, expected) < SHARP
    # The fallback on a CPU says the same, so either may serve as the other's reference.
    other = attention._padded(rows.q.float(), rows.k.float(), rows.v.float(), rows.starts, 16, 0.0, rows.scale)
    assert apart(out.detach(), other) < SHARP


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize(("longest", "kind"), [(128, torch.bfloat16), (256, torch.bfloat16), (128, torch.float16)])
def test_whichever_kernel_serves_the_rows_the_answer_is_the_same(
    kernels: ModuleType, longest: int, kind: torch.dtype
) -> None:
    assert attention.works(2, 32, longest)  # which also finds out whether our own kernels can be used
    rows = Rows([40, 128, 7], tail=9, size=32)
    q, k, v = (each.to(kind).transpose(0, 1).unsqueeze(0) for each in (rows.q, rows.k, rows.v))
    out, _ = attention.attend(torch.nn.Module(), q, k, v, None, starts=rows.starts, longest=longest)
    assert apart(out[0, : rows.end], rows.expected()[0][: rows.end]) < SHARP
