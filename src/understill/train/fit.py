"""Fitting: the training loop with evaluation, the best weights, early stopping, checkpoints and reports."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from accelerate import Accelerator

from understill.data.batches import Batches
from understill.errors import Interrupted, TrainingError, UserError
from understill.events import Evaluated, Fitted, Report, Resumed, Scores
from understill.losses.objective import Objective
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Training
from understill.recipe.section import Every
from understill.train.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from understill.train.loop import Step, steps, total_steps
from understill.train.meter import Meter, Pace
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer
from understill.train.signals import SIGNALS
from understill.train.world import ALONE, World

#: Minutes until the first checkpoint, and of training that a last one keeps from being lost while the model is scored;
#: for each model that is trained at the same time, since all of them wait while one is written.
_SOON = 1.0

Event = Step | Report | Resumed | Evaluated | Fitted


@dataclass
class FitState:
    """What a checkpoint holds besides weights and optimiser."""

    step: int = 0
    best_step: int = -1
    best_score: float = float("-inf")
    stale: int = 0  # evaluations since the best
    stopped: bool = False
    seconds: float = 0.0  # spent so far
    history: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)  # the lines of the log
    scaler: dict[str, Any] = field(default_factory=dict)  # fp16's loss scale
    micro_batch: int | None = None  # rows per forward pass, fewer after memory ran out


def is_due(every: Every, step: int, steps_per_epoch: int) -> bool:
    """Tell whether something that happens every so often happens after this step."""
    return times_due(every, step, steps_per_epoch) > times_due(every, step - 1, steps_per_epoch)


def times_due(every: Every, step: int, steps_per_epoch: int) -> int:
    """Return how often something that happens every so often has happened by this step."""
    if every.unit in ("never", "minutes"):
        return 0
    period = every.count * (1 if every.unit == "steps" else steps_per_epoch)
    # 0.07 epochs of 100 steps are 7 steps, not 7.000000000000001.
    return int(step / period + 1e-9)


class _Fit:
    """One model's training, from its first step or its last checkpoint to the end."""

    def __init__(
        self,
        model: MultiTaskModel,
        objective: Objective,
        batches: Batches,
        training: Training,
        accelerator: Accelerator,
        folder: Path,
        evaluate: Callable[[MultiTaskModel], tuple[float, Scores]],
        fast: bool,
        together: int,
        world: World,
    ) -> None:
        self.together, self.world = together, world
        self.model, self.batches, self.training, self.accelerator = model, batches, training, accelerator
        self.folder, self.evaluate, self.fast = folder, evaluate, fast
        self.names = [task.name for task in model.tasks]
        optimizer = make_optimizer(model.to(accelerator.device), training)
        self.objective = objective.to(accelerator.device)
        self.prepared, self.optimizer = accelerator.prepare(model, optimizer)
        world.copy_weights(model)
        self.state = self._resume()
        self.held = self.state.best_step  # the best weights that the checkpoint on disk refers to
        self.best: dict[str, torch.Tensor] | None = None  # better ones, not yet written
        self.guard = NanGuard(len(self.names), accelerator.device)
        self.log = folder / "log.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if world.leads:  # lines of steps that are about to be taken again are not kept
            self.log.write_text("".join(f"{json.dumps(line)}\n" for line in self.state.reports), encoding="utf-8")

    @property
    def total(self) -> int:
        """The number of steps in all."""
        return total_steps(self.training, self.batches.steps_per_epoch)

    def run(self, seed: int) -> Generator[Event]:
        """Take the steps that are left."""
        began, before = time.monotonic(), self.state.seconds
        if self.state.step:
            yield Resumed(self.state.step, self.total)
        if not self.state.stopped and self.state.step < self.total:
            with closing(self._train(seed)) as events:
                for event in events:
                    self.state.seconds = before + time.monotonic() - began
                    yield event
        state = self.state
        if self.best is not None:
            self.model.load_state_dict(self.best)
        elif self.world.leads and self.training.keeps_best and state.best_step >= 0:
            load_weights(_best_file(self.folder, state.best_step), self.model)
        self.model.eval()
        yield Fitted(state.step, self.total, state.best_step, state.history, state.seconds)

    def _train(self, seed: int) -> Generator[Step | Report | Evaluated]:
        state, training, epoch = self.state, self.training, self.batches.steps_per_epoch
        pace = Pace(self.total, self._evaluations_left)
        meter, saved, first = Meter(self.names, pace, self.objective.parts), time.monotonic(), True
        self.model.train()
        for step in steps(
            self.prepared,
            self.objective,
            self.batches,
            self.optimizer,
            self.accelerator,
            training,
            seed=seed,
            start=state.step,
            guard=self.guard,
            micro=state.micro_batch,
            fast=self.fast,
            world=self.world,
        ):
            meter.add(step)
            state.step, state.micro_batch = step.number, step.micro_batch
            last = step.number == step.total
            if (self.world.leads and meter.due()) or last:
                report = meter.report(step, self.batches)
                self._stop_at_nan()
                self._write_log(report)
                yield report
            if is_due(training.evaluate, step.number, epoch) or (last and training.evaluate.unit != "never"):
                self._stop_at_nan()
                began = time.monotonic()
                evaluated = self._evaluate()
                pace.evaluation = time.monotonic() - began
                meter.rest(pace.evaluation)
                yield evaluated
            state.stopped = bool(training.patience and state.stale >= training.patience)
            soon = _SOON * self.together if first or last or state.stopped else math.inf
            ended = last or state.stopped
            if self.world.leads and _save_due(training.checkpoint, step.number, epoch, saved, soon, ended):
                self._stop_at_nan()
                began = time.monotonic()
                self._save()
                saved, first = time.monotonic(), False
                meter.rest(saved - began)
            if step.signal:
                self._interrupt(step.signal)
            try:
                yield step
            except GeneratorExit:  # of models that are trained in turns another one was first to see a signal
                if SIGNALS.number:
                    self._save()
                raise
            if state.stopped:
                break
        if SIGNALS.number:  # since the last step
            self._interrupt(SIGNALS.number)

    def _interrupt(self, number: int) -> None:
        """Write a checkpoint and end the program as a signal demands."""
        self._stop_at_nan()
        self._save()
        state = self.state
        what = f"stopped by {Signals(number).name} after step {state.step:,} of {self.total:,}, with a checkpoint"
        raise Interrupted(number, f"{what}; the same command goes on from there")

    def _evaluations_left(self, step: int) -> int:
        """Count the evaluations from after this step on, with that at the end."""
        every, epoch = self.training.evaluate, self.batches.steps_per_epoch
        at_the_end = every.unit != "never" and not is_due(every, self.total, epoch)
        return times_due(every, self.total, epoch) - times_due(every, step - 1, epoch) + at_the_end

    def _stop_at_nan(self) -> None:
        if self.world.leads:  # which says it for all
            self.guard.check(self.names, self.training)

    def _write_log(self, report: Report) -> None:
        line = {key: getattr(report, key) for key in ("step", "epoch", "loss", "parts", "rate")}
        line |= {} if report.mix is None else {"lambda": report.mix}
        self.state.reports.append(line)
        if not self.world.leads:
            return
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _evaluate(self) -> Evaluated:
        """Score the model, and keep its weights when they are the best so far."""
        state = self.state
        self.model.eval()
        score, scores = self.evaluate(self.model)
        if self.world.leads and not math.isfinite(score):
            raise TrainingError(
                f"step {state.step}: the dev score is not a number; lower the learning rate, training.lr"
            )
        best = score > state.best_score
        if best:
            state.best_step, state.best_score, state.stale = state.step, score, 0
            if self.training.keeps_best:
                self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        else:
            state.stale += 1
        state.history.append({"step": state.step, "score": score, "scores": scores})
        self.model.train()
        return Evaluated(state.step, score, scores, best and self.training.keeps_best)

    def _save(self) -> None:
        if not self.world.leads:
            return
        state, scaler = self.state, self.accelerator.scaler
        state.scaler = scaler.state_dict() if scaler else {}
        best = _best_file(self.folder, state.best_step)
        if self.best is not None and state.best_step != self.held:
            # Named by step: a crash before the checkpoint is whole leaves the best which the old one refers to.
            save_weights(best, self.best)
        beside = [best] if best.exists() else []
        save_checkpoint(self.folder, state.step, self.model, self.optimizer.optimizer, vars(state), beside)
        self.held = state.best_step
        for path in set(self.folder.glob("best-*.safetensors")) - {best}:
            path.unlink(missing_ok=True)

    def _resume(self) -> FitState:
        facts = load_checkpoint(self.folder, self.model, self.optimizer.optimizer, vars(FitState()))
        state = FitState(**facts) if facts else FitState()
        if len(set(self.world.gather(state.step))) > 1:
            what = "not all processes can read the same checkpoint"
            raise UserError(f"{self.folder}: {what} → set output.folder to a folder that all machines share")
        if self.accelerator.scaler and state.scaler:
            self.accelerator.scaler.load_state_dict(state.scaler)
        return state


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
    fast: bool = False,
    together: int = 1,
    world: World = ALONE,
) -> Generator[Event]:
    """Train, or go on training from the checkpoint in `folder`; afterwards the model holds the weights to keep.

    Every step is given, so that several models can be trained in turns; `together` says how many there may be.
    `world` is this process's place among those that train the model; the first of them writes.
    """
    return _Fit(model, objective, batches, training, accelerator, folder, evaluate, fast, together, world).run(seed)


def _best_file(folder: Path, step: int) -> Path:
    return folder / f"best-{step}.safetensors"


def _save_due(every: Every, step: int, steps_per_epoch: int, saved: float, soon: float, last: bool) -> bool:
    if every.unit == "minutes":
        # The finished model is saved at once, so a checkpoint before it is worth its time only after a long while.
        return time.monotonic() - saved >= min(every.count, soon) * 60
    return last or is_due(every, step, steps_per_epoch)
