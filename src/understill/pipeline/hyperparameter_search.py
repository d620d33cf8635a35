"""Hyperparameter search: what a recipe leaves open about training, chosen by rule and by a trial on held-out rows."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.atomic import read_record, write_record
from understill.data.encode import has_gold
from understill.data.groups import grouping
from understill.data.tokens import Tokens
from understill.evaluate.metrics import best_constant, primary, score
from understill.evaluate.predict import predict
from understill.events import Tuned, Turn
from understill.losses.fused import make_objective
from understill.models.multitask import MultiTaskModel
from understill.pipeline.contrastive_share import FOLDS, TO_BE_TRIED, choose_share, fold_steps, is_open
from understill.pipeline.dataloader import ModelInputs, Tokeniser, held_out, make_batches
from understill.pipeline.hyperparameters import (
    BEGINNINGS,
    PAIRS,
    RATES,
    Choice,
    Shape,
    by_rule,
    changed,
    dev_rows,
    many_pairs,
    shape_of,
)
from understill.pipeline.initial_weights import contrast_steps, first_weights, prepare_heads
from understill.pipeline.plan.parts import Fold, ModelPlan, Plan
from understill.recipe.schema import HeadSpec, Settings
from understill.recipe.section import Every
from understill.tasks import Task
from understill.train.device import make_accelerator, released
from understill.train.fit import fit
from understill.train.loop import Step

log = logging.getLogger(__name__)

#: From so many rows on, candidates are tried on four fifths of them and judged on the rest.
TRIED, HELD = 400, Fold(0, 5)
#: The share of the training's steps that all trials take together.
TRIAL = 1 / 3
#: How many times the steps are taken where the trial was no better than guessing: what is hard takes longer.
LONGER = 3
FILE = "tuned.json"


def tune(inputs: ModelInputs) -> Generator[None, None, Choice]:
    """Choose what is left open; a choice that was made before a crash holds."""
    plan, model = inputs.plan, inputs.model
    kept = model.folder / "work" / FILE
    if (facts := _kept(kept)) is not None:
        settings = Settings.model_validate(facts["settings"])
        return Choice(settings, tuple(facts["reasons"]), facts["trial"], facts["seconds"])
    shape = shape_of(model)
    choice = by_rule(model, shape, dev_rows(model))
    candidates = candidates_of(model, choice.settings, shape)
    if len(candidates) > 1:
        began = time.monotonic()
        trial: dict[str, Mapping[str, float]] = {}
        for name, settings in candidates.items():
            trial[name] = yield from _try(inputs, name, settings, len(candidates))
        held = sum(int(held_out(plan.loaded[task.name].splits["train"], HELD).sum()) for task in model.tasks)
        choice = choose(choice, candidates, trial, model.tasks, held)
        if not any(task.pair for task in model.tasks):  # of pairs it was not measured
            guesses = [_held_guess(plan, task, inputs.tokens) for task in model.tasks]
            choice = longer(choice, model.settings, trial, guesses, held)
        choice = replace(choice, seconds=time.monotonic() - began)
    elif is_open(model, choice.settings, shape):
        choice = yield from choose_share(inputs, choice, shape)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_record(kept, choice.facts())
    inputs.watch(Tuned(inputs.title, choice.reasons))
    return choice


def _kept(path: Path) -> dict[str, Any] | None:
    """Return the choice that was made before; None where there is none that can be read."""
    try:
        return read_record(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s cannot be used (%s); the choice is made again", path, error)
        return None


def foreseen(model: ModelPlan) -> tuple[Choice, float]:
    """Return what the rule chooses, with what will be tried, and how many times its steps all of it takes."""
    shape = shape_of(model)
    choice = by_rule(model, shape, dev_rows(model))
    candidates = candidates_of(model, choice.settings, shape)
    if len(candidates) > 1:
        settled = [each for each in choice.reasons if not _tried(each, model)]
        tried = f"to be tried on held-out rows first: {', '.join(candidates)}"
        return replace(choice, reasons=(*settled, tried), trial={name: {} for name in candidates}), 1 + TRIAL
    training = choice.settings.training
    given = training.contrastive.steps if training.contrastive else None
    before = given or contrast_steps(shape.total) if training.start == "contrastive" else 0
    if is_open(model, choice.settings, shape):
        before += FOLDS * fold_steps(shape.total)
        choice = replace(choice, reasons=(*choice.reasons, TO_BE_TRIED))
    return choice, 1 + before / max(training.steps or 1, 1)


def _tried(reason: str, model: ModelPlan) -> bool:
    """Tell whether a trial decides what the rule gives a reason for: how pairs are read, or else how heads begin."""
    pairs = any(task.pair for task in model.tasks)
    return reason.startswith(PAIRS) if pairs else reason in BEGINNINGS.values()


# The trial ------------------------------------------------------------------------------------------------------------


def candidates_of(model: ModelPlan, settings: Settings, shape: Shape) -> dict[str, Settings]:
    """Return what is tried, by name; a single one where there is nothing to try, or too few rows to judge by."""
    given = model.settings
    plain = given.training.start == "auto" and given.heads.pairs in ("auto", "linear")
    fixed = model.fold or shape.taught or shape.own or shape.cut or model.start.heads or model.augmented
    if fixed or not plain or shape.total < TRIED:
        return {"the rule": settings}
    if any(task.pair for task in model.tasks):
        if given.heads.pairs != "auto" or many_pairs(model, shape):
            return {"the rule": settings}
        # A cross-encoder has to learn what comparing is, for which a low rate takes too long.
        higher = max(settings.training.rate, RATES[1] * 384 / shape.width)
        together = changed(_with_pairs(settings, "linear"), lr=higher)
        return {"siamese": _with_pairs(settings, "siamese"), "cross-encoder": together}
    starts = {"probe first": changed(settings, start="probe"), "heads at zero": changed(settings, start="zero")}
    first = "heads at zero" if settings.training.start == "zero" else "probe first"  # what the rule gives
    faster = changed(settings, start="zero", lr=3 * settings.training.rate)
    return {first: starts[first], **starts, "thrice the rate": faster}


def _with_pairs(settings: Settings, pairs: str) -> Settings:
    return settings.model_copy(update={"heads": settings.heads.model_copy(update={"pairs": pairs})})


def _try(inputs: ModelInputs, name: str, settings: Settings, count: int) -> Generator[None, None, dict[str, float]]:
    """Train a candidate for a while on most rows, and return its scores on the others, by task."""
    plan, model = inputs.plan, inputs.model
    training = settings.training
    steps = max(1, int(training.steps * TRIAL / count)) if training.steps else 1
    settings = changed(settings, steps=steps, evaluate=Every(count=1, unit="never"), keep="last")
    tried, title = replace(model, settings=settings, fold=HELD), f"{inputs.title}, trying {name}"
    folder = model.folder / "work" / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    network, batches = first_weights(tried), make_batches(plan, tried, inputs.tokens, inputs.joined)
    accelerator = make_accelerator(plan.recipe.machine, training.precision)
    network.to(accelerator.device)
    yield from prepare_heads(replace(inputs, model=tried, title=title), network, batches)
    for event in fit(
        network,
        make_objective(model.tasks, settings.heads.regression),
        batches,
        settings.training,
        accelerator=accelerator,
        seed=model.seed,
        folder=folder,
        evaluate=lambda current: (0.0, {}),
        fast=plan.recipe.machine.fast == "auto",
    ):
        if isinstance(event, Step):
            yield
        else:
            inputs.watch(Turn(title))
            inputs.watch(event)
    network = released(accelerator, network).eval()
    shutil.rmtree(folder, ignore_errors=True)
    return {task.name: _held_score(plan, network, task, inputs.tokens) for task in model.tasks}


def _held_score(plan: Plan, network: MultiTaskModel, task: Task, tokens: Tokeniser) -> float:
    """Score a model on the rows of a task that the trial leaves out."""
    part, groups = _held(plan, task, tokens)
    values = predict(network, part, task, plan.recipe.evaluation.batch).values
    scores = score(task, np.asarray(part.gold, np.float64), values, groups)
    return primary(task, scores) if scores else math.nan


def _held_guess(plan: Plan, task: Task, tokens: Tokeniser) -> float:
    """Score the best constant answer on the same rows."""
    part, groups = _held(plan, task, tokens)
    _, scores = best_constant(task, np.asarray(part.gold, np.float64), groups)
    return primary(task, scores) if scores else math.nan


def _held(plan: Plan, task: Task, tokens: Tokeniser) -> tuple[Tokens, NDArray[np.int64] | None]:
    """Return the rows of a task that the trial leaves out, with their groups."""
    data = plan.loaded[task.name].splits["train"]
    rows, groups = tokens(data), grouping(data)
    held = np.flatnonzero(held_out(data, HELD) & has_gold(rows.gold))
    return rows.take(held), None if groups is None else groups[held]


def choose(
    choice: Choice,
    candidates: Mapping[str, Settings],
    trial: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Task],
    held: int,
) -> Choice:
    """Return the choice that a trial leads to: of pairs the better for each task, of rates the first unless beaten.

    A short trial favours what begins quickly, so that another candidate has to win by a standard error of an accuracy.
    """
    first, *others = candidates
    means = _means(trial)
    shown = ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items())
    evidence = f"(on {held:,} held-out rows: {shown})"
    if first == "siamese":
        return _apart_or_together(choice, candidates, trial, tasks, evidence)
    best = max(others, key=lambda name: means[name])
    settings = candidates[best if means[best] > means[first] + _margin(held) else first]
    reasons = [each for each in choice.reasons if each not in BEGINNINGS.values()]
    if settings.training.rate != choice.settings.training.rate:
        reasons.append(f"learning rate {settings.training.rate:.2g} after the trial")
    reasons.append(f"{BEGINNINGS[settings.training.start]} {evidence}")
    return Choice(settings, tuple(reasons), trial)


def _means(trial: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return each candidate's mean over tasks that have a score."""
    return {name: float(np.nanmean(list(scores.values()))) for name, scores in trial.items()}


def _margin(rows: int) -> float:
    """Return a standard error of an accuracy on so many rows."""
    return 0.5 / math.sqrt(max(rows, 1))


def longer(
    choice: Choice,
    given: Settings,
    trial: Mapping[str, Mapping[str, float]],
    guesses: Sequence[float],
    held: int,
) -> Choice:
    """Return the choice with more steps where no candidate was better than guessing, unless the recipe gives them."""
    training, guess = choice.settings.training, float(np.nanmean(guesses))
    left_open = given.training.epochs == "auto" and not given.training.steps
    if not (left_open and training.steps) or max(_means(trial).values()) > guess + _margin(held):
        return choice
    steps, evaluate = LONGER * training.steps, training.evaluate
    if given.training.evaluate.unit == "auto":
        evaluate = evaluate.model_copy(update={"count": LONGER * evaluate.count})
    settings = changed(choice.settings, steps=steps, evaluate=evaluate)
    reason = f"{steps:,} steps, three times as many: no candidate beat the best constant answer, {100 * guess:.1f}"
    return replace(choice, settings=settings, reasons=(*choice.reasons, reason))


def _apart_or_together(
    choice: Choice,
    candidates: Mapping[str, Settings],
    trial: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Task],
    evidence: str,
) -> Choice:
    """Let each pair task have the head that did better on it; the learning rate is that of the better model."""
    apart, together = (trial[name] for name in ("siamese", "cross-encoder"))
    pairs = [task.name for task in tasks if task.pair]
    kinds = {name: "siamese" if apart[name] >= together[name] else "linear" for name in pairs}
    usual = "siamese" if list(kinds.values()).count("siamese") * 2 >= len(kinds) else "linear"
    heads = choice.settings.heads
    specs = {name: heads.tasks.get(name) or HeadSpec() for name in pairs}
    own = {name: spec.model_copy(update={"kind": kinds[name]}) for name, spec in specs.items() if not spec.kind}
    heads = heads.model_copy(update={"pairs": usual, "tasks": {**heads.tasks, **own}})
    words = {"siamese": "apart (siamese)", "linear": "together (cross-encoder)"}
    reasons = [each for each in choice.reasons if not each.startswith(PAIRS)]
    reasons += [f"{name}: {PAIRS} {words[head]}" for name, head in kinds.items()]
    reasons[-1] += f" {evidence}"
    rate = candidates["siamese" if usual == "siamese" else "cross-encoder"].training.rate
    if rate != choice.settings.training.rate:
        reasons.append(f"learning rate {rate:.2g} for pairs that are read together")
    settings = changed(choice.settings.model_copy(update={"heads": heads}), lr=rate)
    return Choice(settings, tuple(reasons), trial)
