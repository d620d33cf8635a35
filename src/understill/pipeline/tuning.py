"""Tuning: what a recipe leaves open about a model's training, chosen by rule and by a trial on held-out rows."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understill.data.groups import grouping
from understill.data.tokens import Tokens
from understill.disk import write_json
from understill.evaluate.metrics import primary, score
from understill.evaluate.predict import predict
from understill.events import Tuned, Turn, Watch
from understill.models.encoder import load_config
from understill.models.multitask import MultiTaskModel
from understill.pipeline.initialise import first_weights, prepare_heads
from understill.pipeline.plan import Fold, ModelPlan, Plan
from understill.pipeline.tokenising import Joined, Tokeniser, make_batches
from understill.schema import HeadSpec, HeadsSpec, Settings
from understill.section import Every
from understill.targets.teachers import fold_of
from understill.tasks import Task
from understill.train.device import make_accelerator
from understill.train.fit import fit
from understill.train.loop import Step
from understill.train.objective import Objective

#: A model sees each row this often, and of each task so many rows more: few rows need more passes.
PASSES, MORE = 3, 2400
#: The encoder's learning rate at a width of 384: the first up to so many rows of one task, growing with them up to the
#: second, which several tasks have at once.
RATES, ROWS = (5e-5, 1e-4), 1000
#: That of encoders that lost layers, which have to find together again, and of networks that begin at random.
CUT, RANDOM = 3e-4, 2e-3
#: That of heads for scores, for up to so many classes, and for more.
HEAD_RATES, CLASSES = (3e-4, 1e-3, 3e-3), 10
#: With fewer rows a class, and no more classes than this, a contrastive stage comes first.
FEW, FEW_CLASSES = 16, 20
#: From so many rows on, candidates are tried on four fifths of them and judged on the rest.
TRIED, HELD = 400, Fold(0, 5)
#: The share of the training's steps that all trials take together.
TRIAL = 1 / 3
#: Pairs are read apart below so many rows, where there is no trial.
APART = 5000
#: Dev rows below which the last weights are kept: fewer would choose by chance.
DEV = 100
#: Looks at the dev sets during training.
LOOKS = 5
FILE = "tuned.json"


@dataclass(frozen=True)
class Choice:
    """What was chosen for a model, and why."""

    settings: Settings
    reasons: tuple[str, ...]
    trial: Mapping[str, Mapping[str, float]]  # by candidate and task, on held-out rows
    seconds: float = 0.0  # that the trial took

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "reasons": list(self.reasons),
            "trial": {name: dict(scores) for name, scores in self.trial.items()},
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Candidate:
    """One way to train a model."""

    name: str
    settings: Settings


@dataclass(frozen=True)
class Shape:
    """What the rule goes by."""

    rows: Mapping[str, int]  # of each task
    classes: int  # of the task that has most
    width: int  # of the encoder
    own: bool  # a network that begins at random
    cut: bool  # some of its layers are gone
    taught: bool  # it learns from teachers, or is what such a one is compared with
    steps_per_epoch: int

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())


def tune(
    plan: Plan, model: ModelPlan, title: str, tokens: Tokeniser, joined: Joined, watch: Watch
) -> Generator[None, None, Choice]:
    """Choose what is left open; a choice that was made before a crash holds."""
    kept = model.folder / "work" / FILE
    if kept.exists():
        facts = json.loads(kept.read_text(encoding="utf-8"))
        settings = Settings.model_validate(facts["settings"])
        return Choice(settings, tuple(facts["reasons"]), facts["trial"], facts["seconds"])
    shape = shape_of(plan, model)
    choice = by_rule(model, shape, _dev_rows(model))
    candidates = candidates_of(model, choice.settings, shape)
    if len(candidates) > 1:
        began = time.monotonic()
        trial: dict[str, Mapping[str, float]] = {}
        for each in candidates:
            trial[each.name] = yield from _try(plan, model, each, len(candidates), title, tokens, joined, watch)
        choice = choose(choice, candidates, trial, model.tasks, _held_rows(plan, model))
        choice = replace(choice, seconds=time.monotonic() - began)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, choice.facts())
    watch(Tuned(title, choice.reasons))
    return choice


def foreseen(plan: Plan, model: ModelPlan) -> tuple[Choice, float]:
    """Return what the rule chooses, with what will be tried, and how many times its steps all of it takes."""
    shape = shape_of(plan, model)
    choice = by_rule(model, shape, _dev_rows(model))
    names = [each.name for each in candidates_of(model, choice.settings, shape)]
    if len(names) > 1:
        tried = f"to be tried on held-out rows first: {', '.join(names)}"
        return replace(choice, reasons=(*choice.reasons, tried)), 1 + TRIAL
    return choice, 3.0 if choice.settings.training.start == "contrastive" else 1.0


# The rule -------------------------------------------------------------------------------------------------------------


def shape_of(plan: Plan, model: ModelPlan) -> Shape:
    """Return what the rule goes by."""
    rows = {task.name: plan.loaded[task.name].splits[model.split(task.name)].rows for task in model.tasks}
    if model.fold:
        rows = {name: count - count // model.fold.count for name, count in rows.items()}
    start, layers = model.start, model.settings.encoder.layers
    while start.model:
        start = start.model.start
    own, width, cut = start.words is not None, 384, False
    if not own:
        config = load_config(start.name, start.place)
        width, cut = int(config.hidden_size), layers not in (None, config.num_hidden_layers)
    classes = max(task.outputs for task in model.tasks)
    steps = max(1, sum(rows.values()) // model.settings.training.batch)
    taught = model.lessons is not None or model.role == "baseline"
    return Shape(rows, classes, width, own, cut, taught, steps)


def steps_for(rows: int, tasks: int, batch: int) -> int:
    """Return how many steps are taken for so many rows of so many tasks."""
    return math.ceil((MORE * tasks + PASSES * rows) / batch)


def by_rule(model: ModelPlan, shape: Shape, dev: int) -> Choice:
    """Choose all that is left open by rule; what the recipe gives stays."""
    training, heads, reasons = model.settings.training, model.settings.heads, []
    steps = training.steps or steps_for(shape.total, len(shape.rows), training.batch) * (2 if shape.cut else 1)
    if training.epochs != "auto":
        steps = training.steps or math.ceil(training.epochs * shape.steps_per_epoch)
    start = _start(model, shape) if training.start == "auto" else training.start
    rate, why = _rate(shape)
    changes: dict[str, Any] = {"lr": rate, "start": start, "steps": steps}
    if start == "contrastive" and training.epochs == "auto" and not training.steps:
        changes["steps"] = math.ceil(steps / 4)  # there is little left to do after the stage before
    if training.head_lr is None and not shape.own:
        heads, changes["head_lr"] = _head_rates(model)
    if training.evaluate.unit == "auto":
        changes["evaluate"] = Every(count=max(1, changes["steps"] // LOOKS), unit="steps")
    if training.keep == "auto":
        changes["keep"] = "best" if dev >= DEV else "last"
    seen = "as given" if training.steps else _seen(training.epochs, shape)
    reasons.append(f"{changes['steps']:,} steps of {training.batch} rows: {seen}")
    reasons.append(f"learning rate {rate:.2g}{why}" + _head_reason(heads, changes))
    reasons.append(_BEGINNINGS[start])
    if training.keep == "auto" and dev < DEV:
        reasons.append(f"the last weights are kept: {dev} dev rows are too few to choose by")
    if heads.pairs == "auto" and not model.start.heads:
        heads, reason = _pairs(model, heads, shape)
        reasons += [reason] if reason else []
    settled = training.model_copy(update=changes)
    settings = model.settings.model_copy(update={"training": settled, "heads": heads})
    return Choice(settings, tuple(reasons), {})


_BEGINNINGS = {
    "fresh": "heads begin at random",
    "zero": "heads begin at zero",
    "probe": "heads begin with a linear probe on the frozen encoder",
    "contrastive": f"a contrastive stage first: fewer than {FEW} rows a class",
}


def _seen(epochs: float | str, shape: Shape) -> str:
    if epochs != "auto":
        return f"{epochs:g} passes over {shape.total:,} rows"
    twice = ", twice since layers were taken out" if shape.cut else ""
    return f"{PASSES} passes over {shape.total:,} rows and {MORE * len(shape.rows):,} rows more{twice}"


def _rate(shape: Shape) -> tuple[float, str]:
    """Return the encoder's learning rate, and why."""
    if shape.own:
        return RANDOM, ", since it begins at random"
    scale = 384 / shape.width
    if shape.cut:
        return CUT * scale, ", since layers were taken out"
    if len(shape.rows) > 1:
        return RATES[1] * scale, f" for {len(shape.rows)} tasks"
    grown = min(max(shape.total / ROWS, 1.0), RATES[1] / RATES[0])
    return float(f"{RATES[0] * grown * scale:.2g}"), f" for {shape.total:,} rows"


def _head_rates(model: ModelPlan) -> tuple[HeadsSpec, float]:
    """Return the heads' learning rate; where tasks want different ones, each has its own."""
    heads = model.settings.heads
    rates = {
        task.name: HEAD_RATES[0 if task.kind == "regression" else 1 if task.outputs <= CLASSES else 2]
        for task in model.tasks
    }
    if len(set(rates.values())) > 1:
        known = {name: heads.tasks.get(name) or HeadSpec() for name in rates}
        own = {name: one.model_copy(update={"lr": one.lr or rates[name]}) for name, one in known.items()}
        heads = heads.model_copy(update={"tasks": {**heads.tasks, **own}})
    return heads, max(rates.values())


def _head_reason(heads: HeadsSpec, changes: Mapping[str, Any]) -> str:
    own = ", ".join(f"{one.lr:g} ({name})" for name, one in heads.tasks.items() if one.lr)
    return f", {own or format(changes['head_lr'], 'g')} for heads" if "head_lr" in changes else ""


def _start(model: ModelPlan, shape: Shape) -> str:
    """Return what heads begin with."""
    if shape.own or model.start.heads:
        return "fresh"
    few = all(task.kind == "classification" and not task.pair for task in model.tasks)
    few = few and all(shape.rows[task.name] < FEW * task.outputs for task in model.tasks)
    if few and shape.classes <= FEW_CLASSES and not shape.cut and not shape.taught:
        return "contrastive"
    return "zero" if any(task.pair for task in model.tasks) else "probe"


def _pairs(model: ModelPlan, heads: HeadsSpec, shape: Shape) -> tuple[HeadsSpec, str]:
    """Return the heads with those of pairs settled, and why."""
    names = [task.name for task in model.tasks if task.pair]
    if not names or shape.own:
        return heads.model_copy(update={"pairs": "linear"}), ""
    apart = sum(shape.rows[name] for name in names) < APART
    reason = (
        f"pairs are read {'apart (siamese)' if apart else 'together (cross-encoder)'}: {'fewer' if apart else 'more'}"
    )
    return heads.model_copy(update={"pairs": "siamese" if apart else "linear"}), f"{reason} than {APART:,} rows"


def _dev_rows(model: ModelPlan) -> int:
    """Return the rows of the smallest dev set that weights would be chosen by."""
    loaded = {task.task.name: task for task in model.scored}
    return min(loaded[task.name].splits["dev"].rows for task in model.tasks)


# The trial ------------------------------------------------------------------------------------------------------------


def candidates_of(model: ModelPlan, settings: Settings, shape: Shape) -> list[Candidate]:
    """Return what is tried; a single one where there is nothing to try, or too few rows to judge by."""
    given = model.settings
    plain = given.training.start == "auto" and given.heads.pairs in ("auto", "linear")
    fixed = model.fold or shape.taught or shape.own or shape.cut or model.start.heads or model.augmented
    if fixed or not plain or shape.total < TRIED:
        return [Candidate("the rule", settings)]
    if any(task.pair for task in model.tasks):
        if given.heads.pairs != "auto":
            return [Candidate("the rule", settings)]
        # A cross-encoder has to learn what comparing is, for which a low rate takes too long.
        higher = max(settings.training.rate, RATES[1] * 384 / shape.width)
        return [
            Candidate("siamese", _changed(settings, pairs="siamese")),
            Candidate("cross-encoder", _changed(settings, pairs="linear", lr=higher)),
        ]
    return [
        Candidate("probe first", settings),
        Candidate("heads at zero", _changed(settings, start="zero")),
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
        Objective(model.tasks, settings.heads.regression),
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
    held = np.flatnonzero((fold_of(data, HELD.count) == HELD.number) & ~np.isnan(rows.gold))
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
    beginning = _BEGINNINGS[settings.training.start]
    reasons = [each for each in choice.reasons if each not in _BEGINNINGS.values()]
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
        name: (heads.tasks.get(name) or HeadSpec()).model_copy(update={"kind": kind})
        for name, kind in kinds.items()
        if not (heads.tasks.get(name) and heads.tasks[name].kind)
    }
    pairs = "siamese" if winner is candidates[0] else "linear"
    heads = heads.model_copy(update={"pairs": pairs, "tasks": {**heads.tasks, **own}})
    words = {"siamese": "apart (siamese)", "linear": "together (cross-encoder)"}
    reasons = [each for each in choice.reasons if not each.startswith("pairs are read")]
    reasons += [f"{name}: pairs are read {words[kind]}" for name, kind in kinds.items()]
    reasons[-1] += f" (on {held:,} held-out rows: {said})"
    rate = winner.settings.training.rate
    if rate != choice.settings.training.rate:
        reasons.append(f"learning rate {rate:.2g} for pairs that are read together")
    training = choice.settings.training.model_copy(update={"lr": rate})
    return Choice(choice.settings.model_copy(update={"heads": heads, "training": training}), tuple(reasons), trial)
