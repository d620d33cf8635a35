"""Tuning: what a recipe leaves open about a model's training, chosen by rule and by a trial on held-out rows."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from understill.data.encode import has_gold
from understill.data.groups import grouping
from understill.data.tokens import Tokens
from understill.disk import read_record, write_record
from understill.evaluate.metrics import primary, score
from understill.evaluate.predict import predict
from understill.events import Tuned, Turn, Watch
from understill.losses.choose import make_objective
from understill.models.multitask import MultiTaskModel
from understill.pipeline.initialise import first_weights, prepare_heads
from understill.pipeline.plan import Fold, ModelPlan, Plan
from understill.pipeline.rule import BEGINNINGS, RATES, Choice, Shape, by_rule, dev_rows, many_pairs, shape_of
from understill.pipeline.tokenising import Joined, Tokeniser, make_batches
from understill.recipe.schema import HeadSpec, Settings
from understill.recipe.section import Every
from understill.tasks import Task
from understill.teachers.folds import fold_of
from understill.train.device import make_accelerator
from understill.train.fit import fit
from understill.train.loop import Step

log = logging.getLogger(__name__)

#: From so many rows on, candidates are tried on four fifths of them and judged on the rest.
TRIED, HELD = 400, Fold(0, 5)
#: The share of the training's steps that all trials take together.
TRIAL = 1 / 3
FILE = "tuned.json"


@dataclass(frozen=True)
class Candidate:
    """One way to train a model."""

    name: str
    settings: Settings


def tune(
    plan: Plan, model: ModelPlan, title: str, tokens: Tokeniser, joined: Joined, watch: Watch
) -> Generator[None, None, Choice]:
    """Choose what is left open; a choice that was made before a crash holds."""
    kept = model.folder / "work" / FILE
    if (facts := _kept(kept)) is not None:
        settings = Settings.model_validate(facts["settings"])
        return Choice(settings, tuple(facts["reasons"]), facts["trial"], facts["seconds"])
    shape = shape_of(plan, model)
    choice = by_rule(model, shape, dev_rows(model))
    candidates = candidates_of(model, choice.settings, shape)
    if len(candidates) > 1:
        began = time.monotonic()
        trial: dict[str, Mapping[str, float]] = {}
        for each in candidates:
            trial[each.name] = yield from _try(plan, model, each, len(candidates), title, tokens, joined, watch)
        choice = choose(choice, candidates, trial, model.tasks, _held_rows(plan, model))
        choice = replace(choice, seconds=time.monotonic() - began)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_record(kept, choice.facts())
    watch(Tuned(title, choice.reasons))
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


def foreseen(plan: Plan, model: ModelPlan) -> tuple[Choice, float]:
    """Return what the rule chooses, with what will be tried, and how many times its steps all of it takes."""
    shape = shape_of(plan, model)
    choice = by_rule(model, shape, dev_rows(model))
    names = [each.name for each in candidates_of(model, choice.settings, shape)]
    if len(names) > 1:
        tried = f"to be tried on held-out rows first: {', '.join(names)}"
        return replace(choice, reasons=(*choice.reasons, tried)), 1 + TRIAL
    return choice, 3.0 if choice.settings.training.start == "contrastive" else 1.0


# The trial ------------------------------------------------------------------------------------------------------------


def candidates_of(model: ModelPlan, settings: Settings, shape: Shape) -> list[Candidate]:
    """Return what is tried; a single one where there is nothing to try, or too few rows to judge by."""
    given = model.settings
    plain = given.training.start == "auto" and given.heads.pairs in ("auto", "linear")
    fixed = model.fold or shape.taught or shape.own or shape.cut or model.start.heads or model.augmented
    if fixed or not plain or shape.total < TRIED:
        return [Candidate("the rule", settings)]
    if any(task.pair for task in model.tasks):
        if given.heads.pairs != "auto" or many_pairs(model, shape):
            return [Candidate("the rule", settings)]
        # A cross-encoder has to learn what comparing is, for which a low rate takes too long.
        higher = max(settings.training.rate, RATES[1] * 384 / shape.width)
        return [
            Candidate("siamese", _changed(settings, pairs="siamese")),
            Candidate("cross-encoder", _changed(settings, pairs="linear", lr=higher)),
        ]
    probe = Candidate("probe first", _changed(settings, start="probe"))
    zero = Candidate("heads at zero", _changed(settings, start="zero"))
    rule_first = [zero, probe] if settings.training.start == "zero" else [probe, zero]
    return [
        *rule_first,
        Candidate("thrice the rate", _changed(settings, start="zero", lr=3 * settings.training.rate)),
    ]


def _changed(settings: Settings, pairs: str | None = None, **changes: Any) -> Settings:
    heads = settings.heads.model_copy(update={"pairs": pairs}) if pairs else settings.heads
    return settings.model_copy(update={"heads": heads, "training": settings.training.model_copy(update=changes)})


def _try(
    plan: Plan,
    model: ModelPlan,
    candidate: Candidate,
    count: int,
    title: str,
    tokens: Tokeniser,
    joined: Joined,
    watch: Watch,
) -> Generator[None, None, dict[str, float]]:
    """Train a candidate for a while on most rows, and return its scores on the others, by task."""
    training = candidate.settings.training
    steps = max(1, int(training.steps * TRIAL / count)) if training.steps else 1
    short = training.model_copy(update={"steps": steps, "evaluate": Every(count=1, unit="never"), "keep": "last"})
    settings = candidate.settings.model_copy(update={"training": short})
    tried = replace(model, settings=settings, fold=HELD)
    folder = model.folder / "work" / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    network, batches = first_weights(tried), make_batches(plan, tried, tokens, joined)
    accelerator = make_accelerator(plan.recipe.machine, short.precision)
    network.to(accelerator.device)
    name = f"{title}, trying {candidate.name}"
    yield from prepare_heads(plan, tried, network, tokens, batches, name, watch)
    for event in fit(
        network,
        make_objective(model.tasks, settings.heads.regression),
        batches,
        short,
        accelerator=accelerator,
        seed=model.seed,
        folder=folder,
        evaluate=lambda current: (0.0, {}),
        fast=plan.recipe.machine.fast == "auto",
    ):
        if isinstance(event, Step):
            yield
        else:
            watch(Turn(name))
            watch(event)
    network = accelerator.unwrap_model(network, keep_fp32_wrapper=False).eval()
    shutil.rmtree(folder, ignore_errors=True)
    return {task.name: _held_score(plan, network, task, tokens) for task in model.tasks}


def _held_score(plan: Plan, network: MultiTaskModel, task: Task, tokens: Tokeniser) -> float:
    """Score a model on the rows of a task that the trial left out."""
    loaded = plan.loaded[task.name]
    data, rows = loaded.splits["train"], tokens(loaded, "train")
    held = np.flatnonzero((fold_of(data, HELD.count) == HELD.number) & has_gold(rows.gold))
    groups = grouping(data)
    part: Tokens = rows.take(held)
    values = predict(network, part, task, plan.recipe.evaluation.batch).values
    scores = score(task, np.asarray(part.gold, np.float64), values, None if groups is None else groups[held])
    return primary(task, scores) if scores else math.nan


def _held_rows(plan: Plan, model: ModelPlan) -> int:
    return sum(
        int((fold_of(plan.loaded[task.name].splits["train"], HELD.count) == HELD.number).sum()) for task in model.tasks
    )


def choose(
    choice: Choice,
    candidates: Sequence[Candidate],
    trial: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Task],
    held: int,
) -> Choice:
    """Return the choice that a trial leads to: of pairs the better for each task, of rates the first unless beaten.

    A short trial favours what begins quickly, so that another candidate has to win by a standard error of an accuracy.
    """
    first, *others = candidates
    means = {name: float(np.nanmean(list(scores.values()))) for name, scores in trial.items()}
    said = ", ".join(f"{name} {100 * means[name]:.1f}" for name in means)
    if first.name == "siamese":
        return _apart_or_together(choice, candidates, trial, tasks, said, held)
    margin = 0.5 / math.sqrt(max(held, 1))
    best = max(others, key=lambda each: means[each.name])
    winner = best if means[best.name] > means[first.name] + margin else first
    settings = winner.settings
    beginning = BEGINNINGS[settings.training.start]
    reasons = [each for each in choice.reasons if each not in BEGINNINGS.values()]
    if settings.training.rate != choice.settings.training.rate:
        reasons.append(f"learning rate {settings.training.rate:.2g} after the trial")
    reasons.append(f"{beginning} (on {held:,} held-out rows: {said})")
    return Choice(settings, tuple(reasons), trial)


def _apart_or_together(
    choice: Choice,
    candidates: Sequence[Candidate],
    trial: Mapping[str, Mapping[str, float]],
    tasks: Sequence[Task],
    said: str,
    held: int,
) -> Choice:
    """Let each pair task have the head that did better on it; the learning rate is that of the better model."""
    apart, together = (trial[each.name] for each in candidates)
    kinds = {
        task.name: "siamese" if apart[task.name] >= together[task.name] else "linear" for task in tasks if task.pair
    }
    winner = candidates[0] if list(kinds.values()).count("siamese") * 2 >= len(kinds) else candidates[1]
    heads = choice.settings.heads
    own = {
        name: (heads.tasks.get(name) or HeadSpec()).model_copy(update={"kind": head})
        for name, head in kinds.items()
        if not (heads.tasks.get(name) and heads.tasks[name].kind)
    }
    pairs = "siamese" if winner is candidates[0] else "linear"
    heads = heads.model_copy(update={"pairs": pairs, "tasks": {**heads.tasks, **own}})
    words = {"siamese": "apart (siamese)", "linear": "together (cross-encoder)"}
    reasons = [each for each in choice.reasons if not each.startswith("pairs are read")]
    reasons += [f"{name}: pairs are read {words[head]}" for name, head in kinds.items()]
    reasons[-1] += f" (on {held:,} held-out rows: {said})"
    rate = winner.settings.training.rate
    if rate != choice.settings.training.rate:
        reasons.append(f"learning rate {rate:.2g} for pairs that are read together")
    training = choice.settings.training.model_copy(update={"lr": rate})
    return Choice(choice.settings.model_copy(update={"heads": heads, "training": training}), tuple(reasons), trial)
