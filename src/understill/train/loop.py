"""The training loop: one generator of steps for all models, teachers and students alike."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from understill.data.batch import Batch
from understill.data.batches import Batches
from understill.errors import UserError
from understill.losses.objective import Objective
from understill.models.memory import give_back, out_of_memory
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Training
from understill.train.cuda_graph import FastSteps, lacking, why_not
from understill.train.nan_guard import NanGuard
from understill.train.optim import rate_factor, set_rates
from understill.train.world import ALONE, World

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """One update of the weights; tensors stay on the device, and hold until the next step is taken."""

    number: int  # steps done so far, this one included
    total: int
    epoch: float
    rate: float  # of the head
    rows: int
    parts: Tensor  # [parts, tasks] summed loss, in the order of the objective's parts
    counts: Tensor  # [parts, tasks] rows: all, and those that have each part
    micro_batch: int
    mix: float | None  # λ of teacher annealing
    signal: int = 0  # that a process got which takes part


def total_steps(training: Training, steps_per_epoch: int) -> int:
    """Return how many updates a recipe asks for."""
    return training.steps or max(1, math.ceil(training.passes * steps_per_epoch))


def steps(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    accelerator: Accelerator,
    training: Training,
    *,
    seed: int,
    start: int,
    guard: NanGuard,
    micro: int | None = None,
    fast: bool = False,
    world: World = ALONE,
) -> Iterator[Step]:
    """Train from step `start` to the end, one update at a time, by whole recorded steps where `fast` is possible.

    Everything random in a step (its rows, its dropout) follows from the seed and the step's number alone,
    so a run that starts again from a checkpoint takes the very same steps. Several processes share a step's rows, and
    only their dropout is another.
    """
    total = total_steps(training, batches.steps_per_epoch)
    if fast and not (micro and micro < training.batch):
        for step in _fast_steps(model, objective, batches, optimizer, accelerator, training, seed, start, guard, world):
            start = step.number
            yield step
    micro = micro or training.micro_batch or training.batch
    for number in range(start, total):
        progress = number / total
        gathered = batches.part(number, world.rank, world.size)
        batch = _move(gathered, accelerator.device)
        set_rates(optimizer, factor := rate_factor(number, total, training))
        while True:
            torch.manual_seed(_step_seed(seed, number, world.rank))
            pieces = [batch.part(rows) for rows in gathered.cut(micro)]
            only, denominator = batches.only(number), float(batches.batch) if training.reduction == "mean" else 1.0
            outcome = _gradients(model, objective, pieces, accelerator, denominator, progress, only, number == start)
            if outcome is not None:
                break
            # Out of memory: nothing was updated yet, so the step is simply taken again in smaller pieces.
            micro = _halve(min(micro, batches.batch), max(map(len, pieces)), optimizer)
        parts, counts = outcome
        signal = world.add_up(model.parameters(), parts, counts)
        norm = accelerator.clip_grad_norm_(model.parameters(), training.clip) if training.clip else None
        # In fp16 a gradient that overflows is usual: the scaler leaves the step out and lowers its scale.
        guard.observe(number + 1, parts[0], None if accelerator.scaler else norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        epoch = (number + 1) / batches.steps_per_epoch
        rate, mix = training.rate * factor, objective.mix(progress)
        yield Step(number + 1, total, epoch, rate, batches.count(number), parts, counts, micro, mix, signal)


def _fast_steps(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    accelerator: Accelerator,
    training: Training,
    seed: int,
    start: int,
    guard: NanGuard,
    world: World,
) -> Iterator[Step]:
    """Take steps on the fast path: all of them, none where it does not apply, or as many as memory allows.

    Several processes leave it together.
    """
    reason = why_not(model, accelerator, training) if isinstance(model, MultiTaskModel) else "the model is wrapped"
    reason = next(filter(None, world.gather(reason)), "")
    if reason:
        log.info("not on the fast path: %s", reason)
        return
    if objective.why_plain:
        log.warning("training by the plain loop, which is slower than the fast path: %s", objective.why_plain)
        return
    assert isinstance(model, MultiTaskModel)
    total = total_steps(training, batches.steps_per_epoch)
    inner = getattr(optimizer, "optimizer", optimizer)
    path = None
    try:
        for number in range(start, total):
            what = ""
            try:
                path = path or FastSteps(
                    model, objective, batches, inner, training, guard, start=start, total=total, world=world
                )
                parts, counts = path.take(number, _step_seed(seed, number, world.rank), first=number == start)
            except Exception as error:
                # The first steps of each size compile and record, for which memory or a tool may be missing. Where that
                # shows before the step's update, the plain loop can take the very same step; all else is raised.
                if not lacking(error) or (path and path.updated):
                    raise
                what = str(error).strip().partition("\n")[0] or type(error).__name__
            signal, failed = world.agree(bool(what))
            if failed:
                log.warning(
                    "the fast path cannot go on (%s): training goes on without it", what or "in another process"
                )
                if path:
                    path.release()
                return
            assert path
            if world.size > 1:
                path.update()
            epoch, rate = (number + 1) / batches.steps_per_epoch, training.rate * rate_factor(number, total, training)
            mix = objective.mix(number / total)
            rows = batches.batch
            yield Step(number + 1, total, epoch, rate, rows, parts, counts, rows, mix, signal)
    finally:
        if path:
            path.close()


def _move(batch: Batch, device: torch.device) -> Batch:
    """Bring a batch to the device; a GPU fetches it by itself while the last step still runs."""
    return batch.pinned().to(device, non_blocking=True) if device.type == "cuda" else batch.to(device)


def _gradients(
    model: nn.Module,
    objective: Objective,
    pieces: Sequence[Batch],
    accelerator: Accelerator,
    denominator: float,
    progress: float,
    only: int | None,
    first: bool,
) -> tuple[Tensor, Tensor] | None:
    """Add up the gradients of one batch, piece by piece; None when memory ran out."""
    parts = torch.zeros(len(objective.parts), len(objective.tasks), device=accelerator.device)
    counts = torch.zeros_like(parts)
    try:
        for piece in pieces:
            logits = model(piece, only)
            if first:
                objective.check(logits, piece)
            loss = objective(logits, piece, denominator, progress)
            accelerator.backward(loss.total)
            parts += loss.parts
            counts += loss.counts
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return None
    return parts, counts


def _halve(micro: int, rows: int, optimizer: torch.optim.Optimizer) -> int:
    """Give memory back and return half the number of rows, or queries, per forward pass, which were so many rows."""
    optimizer.zero_grad(set_to_none=True)
    give_back()
    if micro == 1:
        least, fix = "one row", "use a smaller encoder or encoder.max_length"
        if rows > 1:
            least, fix = f"one query of {rows} candidates", f"{fix}, or set tasks.NAME.candidates"
        raise UserError(f"out of memory even with {least} at a time: {fix}")
    log.warning("out of memory with %d rows per forward pass: going on with %d", rows, (rows + 1) // 2)
    return (micro + 1) // 2


def _step_seed(seed: int, number: int, rank: int = 0) -> int:
    state = np.random.SeedSequence((seed, number, rank) if rank else (seed, number)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
