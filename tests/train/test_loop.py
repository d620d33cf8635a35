"""The loop: pieces add up to the batch, memory that runs out changes nothing, and a loss that is no number is named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import TASKS, liven, same, some_batches, some_model, weights_of
from understill.data.batches import Batches
from understill.errors import TrainingError, UserError
from understill.losses.fused import FusedObjective
from understill.models.memory import out_of_memory
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Anneal, Distil, Machine, Training
from understill.train.device import make_accelerator
from understill.train.loop import Step, steps, total_steps
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer, rate_factor

NAMES = [task.name for task in TASKS]


def training(**settings: Any) -> Training:
    return Training(**{"steps": 4, "batch": 8, "lr": 1e-3, "evaluate": "never", **settings})


def train(
    model: MultiTaskModel,
    settings: Training,
    *,
    batches: Batches | None = None,
    seed: int = 0,
    guard: NanGuard | None = None,
    see: Callable[[MultiTaskModel], None] | None = None,
    objective: FusedObjective | None = None,
) -> Iterator[Step]:
    """Train; `see` looks at the model after gradients are clipped and before each update."""
    accelerator = make_accelerator(Machine(device="cpu", threads=1), "fp32")
    prepared, optimizer = accelerator.prepare(model, make_optimizer(model, settings))
    if see:
        optimizer.optimizer.register_step_pre_hook(lambda *_: see(model))
    guard = guard or NanGuard(len(TASKS), torch.device("cpu"))
    return steps(
        prepared.train(),
        objective or FusedObjective(TASKS, "sigmoid"),
        batches or some_batches(),
        optimizer,
        accelerator,
        settings,
        seed=seed,
        start=0,
        guard=guard,
    )


def gradients(tiny: Path, **settings: Any) -> list[torch.Tensor]:
    """All gradients of the first update as it is made."""
    seen: list[torch.Tensor] = []
    model = some_model(tiny, dropout=0.0)
    run = train(model, training(steps=1, **settings), see=lambda m: seen.extend(p.grad.clone() for p in m.parameters()))
    list(run)
    return seen


def norm(values: list[torch.Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in values]).double().norm())


# What a step is ------------------------------------------------------------------------------------------------------


def test_steps_say_what_was_done(tiny: Path) -> None:
    settings, batches = training(steps=3, warmup=0.5), some_batches()
    done = list(train(some_model(tiny), settings))
    assert [step.number for step in done] == [1, 2, 3]
    assert {step.total for step in done} == {3}
    assert [step.epoch for step in done] == [number / batches.steps_per_epoch for number in (1, 2, 3)]
    assert [step.rate for step in done] == [1e-3 * rate_factor(number, 3, settings) for number in range(3)]
    for number, step in enumerate(done):
        expected = torch.bincount(batches[number].task, minlength=3)
        assert torch.equal(step.counts[0].long(), expected)
        assert step.rows == 8 == step.micro_batch
        assert (step.parts[0] > 0).tolist() == (expected > 0).tolist()
        assert step.mix is None


def test_the_loss_of_the_first_step_is_that_of_the_fresh_model(tiny: Path) -> None:
    model = some_model(tiny, dropout=0.0)
    batch = some_batches()[0]
    expected = FusedObjective(TASKS, "sigmoid")(model(batch), batch).parts
    torch.testing.assert_close(next(train(model, training())).parts, expected)


def test_training_lowers_the_loss(tiny: Path) -> None:
    model = some_model(tiny, dropout=0.0)
    liven(model)
    done = list(train(model, training(steps=60, lr=1e-2), batches=some_batches(rows=8)))
    first, last = (sum(float(step.parts[0].sum()) for step in part) for part in (done[:10], done[-10:]))
    assert last < 0.5 * first


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"steps": 5}, 5), ({"epochs": 2}, 20), ({"epochs": 0.25}, 3), ({"epochs": 0.001}, 1)],
)
def test_steps_or_epochs_decide_how_long(settings: dict[str, Any], expected: int) -> None:
    assert total_steps(Training(**settings), 10) == expected


def test_what_is_random_follows_from_the_seed_and_the_step_alone(tiny: Path) -> None:
    def after(noise: int, seed: int = 0) -> dict[str, torch.Tensor]:
        model = some_model(tiny, dropout=0.3)
        for step in train(model, training(), seed=seed):
            torch.manual_seed(noise + step.number)  # somebody else draws random numbers in between
        return weights_of(model)

    assert same(after(1), after(2))
    assert not same(after(1), after(1, seed=1))


def test_every_step_draws_its_own_dropout(tiny: Path) -> None:
    model, seeds = some_model(tiny), []
    model.encoder.register_forward_pre_hook(lambda *_: seeds.append(torch.initial_seed()))
    list(train(model, training(steps=6)))
    assert len(set(seeds)) == 6


@pytest.mark.parametrize("micro", [8, 3])
def test_annealing_goes_by_the_steps_already_done(micro: int, tiny: Path) -> None:
    anneal = Anneal(start=0.25, end=0.75, shape="quadratic")
    objective, seen = FusedObjective(TASKS, "sigmoid", Distil(anneal=anneal)), []
    objective.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[3]))
    done = list(train(some_model(tiny), training(micro_batch=micro), objective=objective))
    # The first step is all start; every piece of a step has the progress of that step.
    pieces = -(-8 // micro)
    assert seen == [progress for progress in (0.0, 0.25, 0.5, 0.75) for _ in range(pieces)]
    assert [step.mix for step in done] == [anneal.at(progress) for progress in (0.0, 0.25, 0.5, 0.75)]


# Accumulation, reduction, clipping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("micro", [1, 2, 3])
def test_pieces_add_up_to_the_whole_batch(micro: int, reduction: str, tiny: Path) -> None:
    whole, pieces = some_model(tiny, dropout=0.0), some_model(tiny, dropout=0.0)
    # A large eps, since Adam blows up the rounding of gradients that are nothing but rounding.
    settings = {"reduction": reduction, "eps": 1e-2}
    one = list(train(whole, training(**settings)))
    two = list(train(pieces, training(micro_batch=micro, **settings)))
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(value, weights_of(pieces)[name], rtol=0, atol=1e-6)
    for left, right in zip(one, two, strict=True):
        torch.testing.assert_close(left.parts, right.parts, rtol=1e-4, atol=1e-5)
        assert torch.equal(left.counts, right.counts)
    assert not same(weights_of(whole), weights_of(some_model(tiny, dropout=0.0)))


def test_a_sum_has_the_gradient_of_the_mean_times_the_rows(tiny: Path) -> None:
    mean, total = (gradients(tiny, clip=None, reduction=kind) for kind in ("mean", "sum"))
    assert norm(mean) > 0.1
    for one, two in zip(mean, total, strict=True):
        torch.testing.assert_close(one * 8, two, rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_norm_and_keeps_the_direction(tiny: Path) -> None:
    free = gradients(tiny, clip=None, reduction="sum")
    clipped = gradients(tiny, clip=0.5, reduction="sum")
    assert norm(free) > 1
    assert norm(clipped) == pytest.approx(0.5, rel=1e-4)
    for one, two in zip(free, clipped, strict=True):
        torch.testing.assert_close(one * (0.5 / norm(free)), two, rtol=1e-3, atol=1e-6)


def test_once_clipped_a_sum_is_as_good_as_a_mean_and_pieces_as_good_as_the_whole(tiny: Path) -> None:
    limit = 0.01
    expected = gradients(tiny, clip=limit, reduction="mean")
    for other in (
        gradients(tiny, clip=limit, reduction="sum"),
        gradients(tiny, clip=limit, reduction="sum", micro_batch=2),
    ):
        for one, two in zip(expected, other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-7)


def test_a_small_gradient_is_not_clipped(tiny: Path) -> None:
    for one, two in zip(gradients(tiny, clip=None), gradients(tiny, clip=1e6), strict=True):
        assert torch.equal(one, two)


# Out of memory -------------------------------------------------------------------------------------------------------


def scarce(model: MultiTaskModel, when: Callable[[int, int], bool]) -> None:
    """Let the model run out of memory when `when(call, rows)` says so."""
    calls = 0

    def look(_: Any, inputs: tuple[Any, ...]) -> None:
        nonlocal calls
        calls += 1
        if when(calls, len(inputs[0])):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    model.encoder.register_forward_pre_hook(look)


def test_running_out_of_memory_halves_the_pieces_and_says_so(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, whole, pieces = (some_model(tiny, dropout=0.0) for _ in range(3))
    scarce(model, lambda _, rows: rows > 2)
    settings = {"eps": 1e-2}
    with caplog.at_level(logging.WARNING):
        done = list(train(model, training(**settings)))
    assert [step.micro_batch for step in done] == [2, 2, 2, 2]
    assert [record.message for record in caplog.records] == [
        "out of memory with 8 rows per forward pass: going on with 4",
        "out of memory with 4 rows per forward pass: going on with 2",
    ]
    list(train(pieces, training(micro_batch=2, **settings)))
    assert same(weights_of(model), weights_of(pieces))
    list(train(whole, training(**settings)))
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(value, weights_of(model)[name], rtol=0, atol=1e-6)


def test_gradients_of_a_step_that_ran_out_of_memory_half_way_are_dropped(tiny: Path) -> None:
    # Dropout is on: the step that is taken again draws the same numbers as one that never failed.
    model, expected = some_model(tiny, dropout=0.3), some_model(tiny, dropout=0.3)
    scarce(model, lambda call, _: call == 2)
    done = list(train(model, training(micro_batch=4)))
    assert [step.micro_batch for step in done] == [2, 2, 2, 2]
    list(train(expected, training(micro_batch=2)))
    assert same(weights_of(model), weights_of(expected))


def test_only_as_much_as_needed_is_given_up(tiny: Path) -> None:
    model = some_model(tiny)
    scarce(model, lambda call, rows: call > 2 and rows > 5)  # memory gets scarce at the third step
    assert [step.micro_batch for step in train(model, training())] == [8, 8, 4, 4]


def test_one_row_that_does_not_fit_is_the_end(tiny: Path) -> None:
    model = some_model(tiny)
    scarce(model, lambda *_: True)
    with pytest.raises(UserError, match="out of memory even with one row"):
        list(train(model, training()))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("no room"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 8 bytes"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_lack_of_memory_is_told_from_other_failures(error: RuntimeError, expected: bool) -> None:
    assert out_of_memory(error) == expected


def test_any_other_failure_is_not_hidden(tiny: Path) -> None:
    model = some_model(tiny)

    def fail(*_: Any) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    model.encoder.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        list(train(model, training()))


# A loss that is no number --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "step", "value"), [(0, 2, "nan"), (1, 3, "inf"), (1, 1, "nan"), (2, 2, "nan"), (0, 2, "-inf")]
)
def test_the_first_bad_step_and_its_task_are_named(task: int, step: int, value: str, tiny: Path) -> None:
    assert (some_batches()[step - 1].task == task).any()
    model, guard = some_model(tiny), NanGuard(len(TASKS), torch.device("cpu"))
    calls = 0

    def spoil(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            with torch.no_grad():
                model.heads.tasks[task].out.bias.fill_(float(value))

    model.encoder.register_forward_pre_hook(spoil)
    for done in train(model, training(steps=6), guard=guard):
        if done.number < step:
            guard.check(NAMES, training())  # nothing yet
    with pytest.raises(TrainingError, match=rf"step {step}: the loss of {NAMES[task]} is no longer a number") as caught:
        guard.check(NAMES, training())
    assert "training.lr (now 0.001)" in str(caught.value)


def test_targets_are_checked_before_the_first_update(tiny: Path) -> None:
    model = some_model(tiny)
    before = weights_of(model)
    settings = training()
    accelerator = make_accelerator(Machine(device="cpu"), "fp32")
    prepared, optimizer = accelerator.prepare(model, make_optimizer(model, settings))
    batches = some_batches()
    for stream in batches.streams:
        stream.sources[0].gold[:] = 7.0
    objective, guard = FusedObjective(TASKS, "sigmoid"), NanGuard(3, torch.device("cpu"))
    run = steps(prepared, objective, batches, optimizer, accelerator, settings, seed=0, start=0, guard=guard)
    with pytest.raises(TrainingError, match=r"gold 7\.0 is not one of its classes"):
        next(run)
    assert same(weights_of(model), before)
