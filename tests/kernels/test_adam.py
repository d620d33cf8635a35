"""The optimiser's kernels: torch's AdamW and Adamax with clipping, for weights of any number, size, rate and decay."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: A GPU rounds where Triton's interpreter cuts bits off.
CUT = 0.0 if DEVICE == "cuda" else 2**-7
BETAS = (0.9, 0.99)
#: Large: a decay that cancels a gradient leaves nothing but rounding, which a small one would make full steps of.
EPS = 1e-3
FACTORS = (1.0, 0.5, 0.25)
#: Less than a block, more than one, exactly one, and a single value.
SHAPES = ((7, 3), (5000,), (100, 130), (2048,), (1,), (64, 64))
#: What torch has for each: the optimiser, and its name for the second moment.
THEIRS: dict[str, tuple[Any, str]] = {
    "adamw": (torch.optim.AdamW, "exp_avg_sq"),
    "adamax": (torch.optim.Adamax, "exp_inf"),
}
each_kind = pytest.mark.parametrize("kind", THEIRS)


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    from understill.kernels import adam as module

    return module


class Both:
    """The same weights twice: for torch's optimiser, exactly, and for the kernel. Two of them are used in bfloat16."""

    LOW = (2, 5)

    def __init__(self, kernels: ModuleType, kind: str, clip: float | None) -> None:
        torch.manual_seed(0)
        self.clip = clip
        self.weights = [torch.randn(shape, device=DEVICE) for shape in SHAPES]
        self.reference = [nn.Parameter(weight.double()) for weight in self.weights]
        self.rates = [1e-2 * (number + 1) for number in range(len(SHAPES))]
        decays = [0.1 * number for number in range(len(SHAPES))]
        groups = [
            {"params": [weight], "lr": rate, "weight_decay": decay}
            for weight, rate, decay in zip(self.reference, self.rates, decays, strict=True)
        ]
        make, self.second = THEIRS[kind]
        self.optimizer = make(groups, betas=BETAS, eps=EPS)
        self.copies = [w.bfloat16() if number in self.LOW else None for number, w in enumerate(self.weights)]
        schedule = kernels.schedule_of(FACTORS, [0.0, 1 / 3, 2 / 3], BETAS).to(DEVICE)
        self.slots = [
            kernels.Slot(weight, torch.zeros_like(weight), torch.zeros_like(weight), copy, rate, decay)
            for weight, copy, rate, decay in zip(self.weights, self.copies, self.rates, decays, strict=True)
        ]
        counts = torch.zeros(len(SHAPES), device=DEVICE)
        self.kernel = kernels.Adam(self.slots, counts, schedule, BETAS, EPS, clip, kind == "adamax")
        self.number = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def step(self, grads: list[Tensor | None]) -> tuple[Tensor, Tensor]:
        """Take one step of each; return the norms of their gradients."""
        for weight, grad, rate, group in zip(
            self.reference, grads, self.rates, self.optimizer.param_groups, strict=True
        ):
            weight.grad = None if grad is None else grad.double()
            group["lr"] = rate * FACTORS[int(self.number)]
        norm = nn.utils.clip_grad_norm_(self.reference, float("inf") if self.clip is None else self.clip)
        self.optimizer.step()
        table = self.kernel.table()
        table.copy_(torch.tensor([0 if grad is None else grad.data_ptr() for grad in grads]))
        result = self.kernel.norm(table)
        self.kernel.update(table, self.number, result)
        self.number += 1
        return norm, result

    def draw(self, scale: float = 1.0) -> list[Tensor | None]:
        grads = [scale * torch.randn(shape, device=DEVICE) for shape in SHAPES]
        return [grad.bfloat16() if number in self.LOW else grad for number, grad in enumerate(grads)]


@each_kind
@pytest.mark.parametrize(("clip", "scale"), [(None, 1.0), (1.0, 1.0), (1.0, 1e-3), (50.0, 1.0)])
def test_three_steps_are_those_of_torch(kernels: ModuleType, kind: str, clip: float | None, scale: float) -> None:
    both = Both(kernels, kind, clip)
    before = [weight.clone() for weight in both.weights]
    for _ in FACTORS:
        norm, result = both.step(both.draw(scale))
        torch.testing.assert_close(result.double(), norm, rtol=1e-5, atol=0)
        for weight, expected, copy in zip(both.weights, both.reference, both.copies, strict=True):
            torch.testing.assert_close(weight.double(), expected.detach(), rtol=1e-5, atol=1e-6)
            if copy is not None:
                torch.testing.assert_close(copy, weight.bfloat16(), rtol=CUT, atol=0)
    for slot, expected in zip(both.slots, both.reference, strict=True):
        state = both.optimizer.state[expected]
        torch.testing.assert_close(slot.first.double(), state["exp_avg"], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(slot.second.double(), state[both.second], rtol=1e-5, atol=1e-9)
    assert all((weight - old).abs().max() > 1e-3 for weight, old in zip(both.weights, before, strict=True))


@each_kind
def test_a_weight_without_gradient_stays_as_it_is(kernels: ModuleType, kind: str) -> None:
    both = Both(kernels, kind, 1.0)
    idle = (1, 2)
    before = [both.weights[number].clone() for number in idle]
    for _ in FACTORS:
        grads = [None if number in idle else grad for number, grad in enumerate(both.draw())]
        norm, result = both.step(grads)
        torch.testing.assert_close(result.double(), norm, rtol=1e-5, atol=0)
    for number, old in zip(idle, before, strict=True):
        assert torch.equal(both.weights[number], old)
        assert not both.slots[number].first.any() and not both.slots[number].second.any()
    torch.testing.assert_close(both.weights[0].double(), both.reference[0].detach(), rtol=1e-5, atol=1e-6)


@each_kind
def test_a_weight_that_is_used_late_begins_as_all_others_did(kernels: ModuleType, kind: str) -> None:
    both, late = Both(kernels, kind, 1.0), 3
    for number in range(len(FACTORS)):
        grads = both.draw()
        if number == 0:
            grads[late] = None
        both.step(grads)
    for weight, expected in zip(both.weights, both.reference, strict=True):
        torch.testing.assert_close(weight.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    assert both.kernel.counts.tolist() == [2 if number == late else 3 for number in range(len(SHAPES))]


def test_a_gradient_that_is_no_number_shows_in_the_norm(kernels: ModuleType) -> None:
    both = Both(kernels, "adamw", 1.0)
    for place, value in ((4999, torch.inf), (0, torch.nan)):
        grads = both.draw()
        assert grads[1] is not None
        grads[1][place] = value
        table = torch.tensor([grad.data_ptr() for grad in grads if grad is not None], device=DEVICE)
        assert not both.kernel.norm(table).isfinite()
