"""The NaN guard: the first step whose loss is not finite is kept, and reported with its tasks on request."""

from __future__ import annotations

import pytest
import torch

from understill.errors import TrainingError
from understill.recipe.schema import Training
from understill.train.nan_guard import NanGuard

NAMES = ["a", "b", "c"]
NAN, INF = float("nan"), float("inf")


def test_several_bad_tasks_are_all_named_and_only_the_first_step_counts() -> None:
    guard = NanGuard(3, torch.device("cpu"))
    guard.observe(1, torch.tensor([1.0, 2.0, 3.0]))
    guard.check(NAMES, Training())
    guard.observe(2, torch.tensor([NAN, 2.0, -INF]))
    guard.observe(3, torch.tensor([1.0, NAN, 1.0]))
    with pytest.raises(TrainingError, match="step 2: the loss of a, c is"):
        guard.check(NAMES, Training())


def test_a_gradient_that_is_no_number_counts_against_all_tasks_of_the_batch() -> None:
    guard = NanGuard(3, torch.device("cpu"))
    guard.observe(1, torch.tensor([1.0, 0.0, 2.0]), torch.tensor(3.0))
    guard.observe(2, torch.tensor([1.0, 0.0, 2.0]), torch.tensor(INF))
    with pytest.raises(TrainingError, match="step 2: the loss of a, c"):
        guard.check(NAMES, Training())


def test_a_bad_loss_is_blamed_rather_than_the_gradient_it_leads_to() -> None:
    guard = NanGuard(3, torch.device("cpu"))
    guard.observe(1, torch.tensor([1.0, NAN, 2.0]), torch.tensor(NAN))
    with pytest.raises(TrainingError, match="step 1: the loss of b is"):
        guard.check(NAMES, Training())


def test_what_is_kept_stays_in_the_same_memory_for_steps_that_are_replayed() -> None:
    guard = NanGuard(3, torch.device("cpu"))
    before = guard.step.data_ptr(), guard.tasks.data_ptr()
    number = torch.zeros(1, dtype=torch.long)
    for parts in ([1.0, 1.0, 1.0], [1.0, INF, 1.0], [NAN, 1.0, 1.0]):
        guard.observe(number[0] + 1, torch.tensor(parts), torch.tensor(1.0))
        number += 1
    assert (guard.step.data_ptr(), guard.tasks.data_ptr()) == before
    with pytest.raises(TrainingError, match="step 2: the loss of b is"):
        guard.check(NAMES, Training())
