"""Fitting: the loop's steps, with evaluation, the best weights, early stopping, checkpoints and reports around them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from understill.data.batch import Batches
from understill.models.multitask import MultiTaskModel
from understill.recipe import Every, Training
from understill.train.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from understill.train.loop import Step, Trouble, steps, total_steps
from understill.train.objective import Objective
from understill.train.optim import make_optimizer

#: Seconds between two readings of the loss; reading makes a GPU wait.
REPORT_SECONDS = 0.5

Scores = dict[str, dict[str, float]]  # by "task/split", then by metric


@dataclass(frozen=True)
class Report:
    """How training is going."""

    step: int
    total: int
    epoch: float
    loss: float
    parts: dict[str, float]  # mean loss of each task's rows
    rate: float
    rows_per_second: float
    seconds_left: float
    padding: float  # share of token places that held nothing
    micro_batch: int


@dataclass(frozen=True)
class Evaluated:
    """A look at the dev sets during training."""

    step: int
    score: float  # mean primary metric
    scores: Scores
    best: bool


@dataclass(frozen=True)
class Fitted:
    """Training is over, and the model holds the weights to keep."""

    step: int
    total: int
    best_step: int  # -1 when nothing was evaluated
    history: list[dict[str, Any]]

    @property
    def early(self) -> bool:
        """Whether it stopped because the dev score had stopped rising."""
        return self.step < self.total


@dataclass
class Progress:
    """What has to survive a crash besides weights and optimiser."""

    step: int = 0
    best_step: int = -1
    best_score: float = float("-inf")
    stale: int = 0  # evaluations since the best
    stopped: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)  # fp16's loss scale
    micro_batch: int | None = None  # rows per forward pass, fewer after memory ran out


class Meter:
    """Adds up what happened between two reports."""

    def __init__(self, tasks: list[str], start: int) -> None:
        self.tasks = tasks
        self.began = time.monotonic()
        self.start = start
        self._clear()

    def _clear(self) -> None:
        self.since = time.monotonic()
        self.rows = self.steps = 0
        self.parts: torch.Tensor | None = None
        self.counts: torch.Tensor | None = None

    def add(self, step: Step) -> None:
        """Count one step."""
        self.rows += step.rows
        self.steps += 1
        self.parts = step.parts if self.parts is None else self.parts + step.parts
        self.counts = step.counts if self.counts is None else self.counts + step.counts

    def due(self) -> bool:
        """Tell whether it is time to report."""
        return time.monotonic() - self.since >= REPORT_SECONDS

    def report(self, step: Step, batches: Batches) -> Report:
        """Read the sums, which waits for the device, and start anew."""
        assert self.parts is not None and self.counts is not None
        sums, counts = self.parts.tolist(), self.counts.tolist()
        now = time.monotonic()
        left = (now - self.began) / (step.number - self.start) * (step.total - step.number)
        report = Report(
            step.number,
            step.total,
            step.epoch,
            sum(sums) / max(1.0, sum(counts)),
            {name: total / count for name, total, count in zip(self.tasks, sums, counts, strict=True) if count},
            step.rate,
            self.rows / max(1e-9, now - self.since),
            left,
            batches.padding_share(step.number - self.steps, step.number),
            step.micro_batch,
        )
        self._clear()
        return report


def is_due(every: Every, step: int, steps_per_epoch: int) -> bool:
    """Tell whether something that happens every so often happens after this step."""
    if every.unit in ("never", "minutes"):
        return False
    period = every.count * (steps_per_epoch if every.unit == "epochs" else 1)
    # 0.07 epochs of 100 steps are 7 steps, not 7.000000000000001.
    return int(step / period + 1e-9) > int((step - 1) / period + 1e-9)


def fit(
    model: MultiTaskModel,
    objective: Objective,
    batches: Batches,
    training: Training,
    *,
    accelerator: Accelerator,
    seed: int,
    folder: Path,
    evaluate: Callable[[MultiTaskModel], tuple[float, Scores]],
) -> Iterator[Report | Evaluated | Fitted]:
    """Train, or go on training from the checkpoint in `folder`; afterwards the model holds the weights to keep."""
    optimizer = make_optimizer(model.to(accelerator.device), training)
    objective = objective.to(accelerator.device)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    state = _resume(folder, model, optimizer, accelerator)
    total = total_steps(training, batches.steps_per_epoch)
    trouble = Trouble(len(model.tasks), accelerator.device)
    names = [task.name for task in model.tasks]
    meter, saved = Meter(names, state.step), time.monotonic()
    held = state.best_step  # the best weights that the checkpoint on disk refers to
    log_file = folder / "log.jsonl"
    _trim_log(log_file, state.step)
    if not state.stopped and state.step < total:
        model.train()
        for step in steps(
            prepared,
            objective,
            batches,
            optimizer,
            accelerator,
            training,
            seed=seed,
            start=state.step,
            trouble=trouble,
            micro=state.micro_batch,
        ):
            meter.add(step)
            state.step, state.micro_batch = step.number, step.micro_batch
            last = step.number == step.total
            if meter.due() or last:
                report = meter.report(step, batches)
                trouble.check(names, training)
                _write_log(log_file, report)
                yield report
            if is_due(training.evaluate, step.number, batches.steps_per_epoch) or (
                last and training.evaluate.unit != "never"
            ):
                trouble.check(names, training)
                yield _evaluate(model, state, folder, evaluate, training)
                _drop_old_best(folder, {held, state.best_step})
                model.train()
            state.stopped = bool(training.patience and state.stale >= training.patience)
            if _save_due(training.checkpoint, step.number, batches.steps_per_epoch, saved) or last or state.stopped:
                trouble.check(names, training)
                state.scaler = accelerator.scaler.state_dict() if accelerator.scaler else {}
                save_checkpoint(folder, step.number, model, optimizer.optimizer, vars(state))
                held, saved = state.best_step, time.monotonic()
                _drop_old_best(folder, {held})
            if state.stopped:
                break
    if training.keep == "best" and state.best_step >= 0:
        load_weights(_best_file(folder, state.best_step), model)
    model.eval()
    yield Fitted(state.step, total, state.best_step, state.history)


def _resume(folder: Path, model: MultiTaskModel, optimizer: Any, accelerator: Accelerator) -> Progress:
    facts = load_checkpoint(folder, model, optimizer.optimizer, vars(Progress()))
    if facts is None:
        return Progress()
    state = Progress(**facts)
    if accelerator.scaler and state.scaler:
        accelerator.scaler.load_state_dict(state.scaler)
    return state


def _evaluate(
    model: MultiTaskModel,
    state: Progress,
    folder: Path,
    evaluate: Callable[[MultiTaskModel], tuple[float, Scores]],
    training: Training,
) -> Evaluated:
    """Score the model, and keep its weights when they are the best so far."""
    model.eval()
    score, scores = evaluate(model)
    best = score > state.best_score
    if best:
        state.best_step, state.best_score, state.stale = state.step, score, 0
        if training.keep == "best":
            # Named by step: a crash before the next checkpoint leaves the older best, which that checkpoint refers to.
            save_weights(_best_file(folder, state.step), model)
    else:
        state.stale += 1
    state.history.append({"step": state.step, "score": score, "scores": scores})
    return Evaluated(state.step, score, scores, best)


def _best_file(folder: Path, step: int) -> Path:
    return folder / f"best-{step}.safetensors"


def _drop_old_best(folder: Path, keep: set[int]) -> None:
    for path in folder.glob("best-*.safetensors"):
        if path not in {_best_file(folder, step) for step in keep}:
            path.unlink(missing_ok=True)


def _save_due(every: Every, step: int, steps_per_epoch: int, saved: float) -> bool:
    if every.unit == "minutes":
        return time.monotonic() - saved >= every.count * 60
    return is_due(every, step, steps_per_epoch)


def _trim_log(path: Path, step: int) -> None:
    """Make sure the log is there, without lines of steps that are about to be taken again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError):
                continue  # a line cut short by a crash
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _write_log(path: Path, report: Report) -> None:
    values = {
        "step": report.step,
        "epoch": report.epoch,
        "loss": report.loss,
        "parts": report.parts,
        "rate": report.rate,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
