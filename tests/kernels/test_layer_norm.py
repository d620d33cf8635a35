"""The layer norm kernels: what torch says in double precision, for rows of any number and width."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = 1e-12
widths, counts = st.sampled_from([16, 96, 128, 312, 384, 768, 1024]), st.integers(1, 70)


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    from understill.kernels import layer_norm as module

    return module


def draw(*shape: int, mean: float = 0.0) -> Tensor:
    return (torch.randn(shape) + mean).to(DEVICE)


def expected(values: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(values.double(), scale.shape, scale.double(), bias.double(), EPS).float()


@settings(deadline=None, max_examples=25)
@given(width=widths, count=counts, mean=st.sampled_from([0.0, 30.0]), seed=st.integers(0, 99))
def test_a_sum_is_normalised_as_by_torch(kernels: ModuleType, width: int, count: int, mean: float, seed: int) -> None:
    torch.manual_seed(seed)
    values, residual, scale, bias = draw(count, width, mean=mean), draw(count, width), draw(width), draw(width)
    behind = values.new_full((3, width), torch.nan)
    room = torch.cat([values, behind])
    result = kernels.add_norm(room[:count], residual, scale, bias, EPS)
    torch.testing.assert_close(result, expected(values + residual, scale, bias), rtol=1e-4, atol=1e-4)
    assert room[count:].isnan().all(), "nothing behind the rows is written"


@settings(deadline=None, max_examples=25)
@given(width=widths, count=counts, seed=st.integers(0, 99))
def test_embeddings_are_gathered_and_normalised(kernels: ModuleType, width: int, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    tables = draw(40, width), draw(12, width), draw(2, width)
    places = [torch.randint(len(table), (count,), device=DEVICE) for table in tables]
    scale, bias = draw(width), draw(width)
    result = kernels.embed_norm(tables, *places, scale, bias, EPS, torch.float32)
    total = sum(table[place] for table, place in zip(tables, places, strict=True))
    torch.testing.assert_close(result, expected(total, scale, bias), rtol=1e-4, atol=1e-4)


def test_bfloat16_is_rounded_only_at_the_end(kernels: ModuleType) -> None:
    values, residual, scale, bias = draw(50, 384).bfloat16(), draw(50, 384).bfloat16(), draw(384), draw(384)
    exact = expected(values.double() + residual.double(), scale, bias)
    result = kernels.add_norm(values, residual, scale, bias, EPS)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), exact, rtol=2**-7, atol=1e-5)  # the interpreter cuts bits off
