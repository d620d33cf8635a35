"""Trouble: the first step whose loss is no number is kept, and told with its tasks when somebody asks."""

from __future__ import annotations

import pytest
import torch

from understill.errors import TrainingError
from understill.recipe.schema import Training
from understill.train.trouble import Trouble

NAMES = ["a", "b", "c"]
NAN, INF = float("nan"), float("inf")


def test_several_bad_tasks_are_all_named_and_only_the_first_step_counts() -> None:
    trouble = Trouble(3, torch.device("cpu"))
    trouble.look(1, torch.tensor([1.0, 2.0, 3.0]))
    trouble.check(NAMES, Training())
    trouble.look(2, torch.tensor([NAN, 2.0, -INF]))
    trouble.look(3, torch.tensor([1.0, NAN, 1.0]))
    with pytest.raises(TrainingError, match="step 2: the loss of a, c is"):
        trouble.check(NAMES, Training())


def test_a_gradient_that_is_no_number_counts_as_trouble_of_the_batch() -> None:
    trouble = Trouble(3, torch.device("cpu"))
    trouble.look(1, torch.tensor([1.0, 0.0, 2.0]), torch.tensor(3.0))
    trouble.look(2, torch.tensor([1.0, 0.0, 2.0]), torch.tensor(INF))
    with pytest.raises(TrainingError, match="step 2: the loss of a, c"):
        trouble.check(NAMES, Training())


def test_a_bad_loss_is_blamed_rather_than_the_gradient_it_leads_to() -> None:
    trouble = Trouble(3, torch.device("cpu"))
    trouble.look(1, torch.tensor([1.0, NAN, 2.0]), torch.tensor(NAN))
    with pytest.raises(TrainingError, match="step 1: the loss of b is"):
        trouble.check(NAMES, Training())


def test_what_is_kept_stays_in_the_same_memory_for_steps_that_are_replayed() -> None:
    trouble = Trouble(3, torch.device("cpu"))
    before = trouble.step.data_ptr(), trouble.tasks.data_ptr()
    number = torch.zeros(1, dtype=torch.long)
    for parts in ([1.0, 1.0, 1.0], [1.0, INF, 1.0], [NAN, 1.0, 1.0]):
        trouble.look(number[0] + 1, torch.tensor(parts), torch.tensor(1.0))
        number += 1
    assert (trouble.step.data_ptr(), trouble.tasks.data_ptr()) == before
    with pytest.raises(TrainingError, match="step 2: the loss of b is"):
        trouble.check(NAMES, Training())
