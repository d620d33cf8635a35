"""Hyperparameters by rule: what is chosen for a model's training by its rows, classes and encoder alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understill.errors import counted
from understill.models.encoder import load_config
from understill.pipeline.plan.parts import ModelPlan, Start
from understill.recipe.schema import EncoderSpec, HeadSpec, HeadsSpec, Settings, Training
from understill.recipe.section import Every

#: A model sees each row this often, and of each task so many rows more: few rows need more passes.
PASSES, EXTRA_ROWS = 3, 2400
#: The encoder's learning rate at a width of 384: the first up to so many rows of one task, growing with them up to the
#: second, which several tasks have at once.
RATES, ROWS = (5e-5, 1e-4), 1000
#: That of encoders that lost layers, where those that are left have to adapt, and of networks that begin at random.
CUT_RATE, RANDOM_RATE = 3e-4, 2e-3
#: That of heads for scores, for up to so many classes, and for more.
HEAD_RATES, CLASSES = (3e-4, 1e-3, 3e-3), 10
#: With fewer rows a class, and no more classes than this, a contrastive stage comes first.
FEW, FEW_CLASSES = 16, 20
#: The same of rows with scores, which have no classes.
FEW_SCORES = 100
#: The batch where the recipe names none.
BATCH = Training.model_fields["batch"].default
#: Steps after that stage, which leaves little to do.
AFTER_CONTRAST = 5
#: Learning rates of the encoder and of heads with as few pairs: the encoder should hardly move.
FEW_PAIRS_RATES = (2e-5, 3e-4)
#: Pairs of classes are read together from so many rows on.
CROSS_ENCODER_FROM = 5000
#: How the reason for their heads begins.
PAIRS = "pairs are read"
#: Dev rows below which the last weights are kept: fewer would choose by chance.
LEAST_DEV = 100
#: Evaluations on the dev sets during training.
EVALUATIONS = 5


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


def shape_of(model: ModelPlan) -> Shape:
    """Return what the rule goes by."""
    rows = model.rows
    if model.fold:
        rows = {name: count - count // model.fold.count for name, count in rows.items()}
    start = model.start.root
    own = start.words is not None
    width, cut = (384, False) if own else _width_and_cut(start, model.settings.encoder)
    classes = max(task.outputs for task in model.tasks)
    steps = max(1, sum(rows.values()) // model.settings.training.batch)
    taught = model.distillation is not None or model.role == "baseline"
    return Shape(rows, classes, width, own, cut, taught, steps)


def _width_and_cut(start: Start, encoder: EncoderSpec) -> tuple[int, bool]:
    """Return the width of a pretrained encoder, and whether some of its layers are taken out."""
    config = load_config(start.name, start.place)
    return int(config.hidden_size), encoder.layers not in (None, config.num_hidden_layers)


def lacks_layers(start: Start, encoder: EncoderSpec) -> bool:
    """Tell whether layers are taken out of what an encoder begins as."""
    return bool(encoder.layers and not encoder.own and _width_and_cut(start.root, encoder)[1])


def changed(settings: Settings, **changes: Any) -> Settings:
    """Return settings with some values of their training changed."""
    return settings.model_copy(update={"training": settings.training.model_copy(update=changes)})


def steps_for(rows: int, tasks: int, batch: int) -> int:
    """Return how many steps are taken for so many rows of so many tasks."""
    return math.ceil((EXTRA_ROWS * tasks + PASSES * rows) / batch)


def rule_steps(training: Training, rows: int, tasks: int, per_epoch: int, cut: bool) -> int:
    """Return the steps that are given, or those of the given epochs, or as many as such rows need; cut models twice."""
    if training.steps:
        return training.steps
    if training.epochs != "auto":
        return math.ceil(training.epochs * per_epoch)
    return steps_for(rows, tasks, training.batch) * (2 if cut else 1)


def by_rule(model: ModelPlan, shape: Shape, dev: int) -> Choice:
    """Choose all that is left open by rule; what the recipe gives stays."""
    training, heads, reasons = model.settings.training, model.settings.heads, []
    steps = rule_steps(training, shape.total, len(shape.rows), shape.steps_per_epoch, shape.cut)
    start = _start(model, shape) if training.start == "auto" else training.start
    rate, why = _rate(shape)
    if start == "fitted":
        rate, why = FEW_PAIRS_RATES[0] * 384 / shape.width, ", because few rows barely improve the encoder"
    changes: dict[str, Any] = {"lr": rate, "start": start, "steps": steps}
    if training.epochs == "auto" and not training.steps:
        if start == "contrastive":
            changes["steps"] = AFTER_CONTRAST
        elif few_pairs(model, shape):
            changes["steps"] = math.ceil(steps / 3)  # more of them fit so few rows and nothing else
    if shape.total < training.batch == BATCH:
        changes["batch"] = shape.total  # a row twice in a batch costs time and teaches nothing
    if training.head_lr is None and not shape.own:
        heads, changes["head_lr"] = (heads, FEW_PAIRS_RATES[1]) if start == "fitted" else _head_rates(model)
    if training.evaluate.unit == "auto":
        evaluations = 1 if start == "contrastive" else EVALUATIONS
        changes["evaluate"] = Every(count=max(1, changes["steps"] // evaluations), unit="steps")
    if training.keep == "auto":
        changes["keep"] = "best" if dev >= LEAST_DEV else "last"
    seen = "as given" if training.steps else _seen(training.epochs, shape, start, few_pairs(model, shape))
    reasons.append(f"{changes['steps']:,} steps of {changes.get('batch', training.batch)} rows: {seen}")
    reasons.append(f"learning rate {rate:.2g}{why}" + _head_reason(heads, changes))
    reasons.append(BEGINNINGS[start])
    if training.keep == "auto" and dev < LEAST_DEV:
        reasons.append(f"the last weights are kept: a dev set of {dev} is too small to choose by")
    if heads.pairs == "auto" and not model.start.heads:
        heads, reason = _pairs(model, heads, shape)
        reasons += [reason] if reason else []
    settled = training.model_copy(update=changes)
    settings = model.settings.model_copy(update={"training": settled, "heads": heads})
    return Choice(settings, tuple(reasons), {})


BEGINNINGS = {
    "fresh": "task heads start with random weights",
    "zero": "task heads start with zero weights",
    "probe": "task heads start as a linear probe on the frozen encoder",
    "fitted": "task heads start as a fully fitted linear probe on the frozen encoder",
    "contrastive": f"a contrastive stage first: fewer than {FEW} rows a class",
}


def _seen(epochs: float | str, shape: Shape, start: str, few: bool) -> str:
    if epochs != "auto":
        return f"{epochs:g} {'pass' if epochs == 1 else 'passes'} over {counted(shape.total, 'row')}"
    if start == "contrastive":
        return "the contrastive stage before leaves little to do"
    if few:
        return f"few, since there are {shape.total} rows of pairs"
    twice = ", twice because layers were removed" if shape.cut else ""
    extra = f"{EXTRA_ROWS * len(shape.rows):,} rows more, since few rows need more passes"
    return f"{PASSES} passes over {shape.total:,} rows and {extra}{twice}"


def _rate(shape: Shape) -> tuple[float, str]:
    """Return the encoder's learning rate, and why."""
    if shape.own:
        return RANDOM_RATE, ", because it is randomly initialised"
    scale = 384 / shape.width
    if shape.cut:
        return CUT_RATE * scale, ", because layers were removed"
    if len(shape.rows) > 1:
        return RATES[1] * scale, f" for {len(shape.rows)} tasks"
    grown = min(max(shape.total / ROWS, 1.0), RATES[1] / RATES[0])
    return float(f"{RATES[0] * grown * scale:.2g}"), f" for {shape.total:,} rows"


def _head_rates(model: ModelPlan) -> tuple[HeadsSpec, float]:
    """Return the heads' learning rate; where tasks want different ones, each has its own."""
    heads = model.settings.heads
    rates = {
        task.name: HEAD_RATES[0 if task.kind.scaled else 1 if task.outputs <= CLASSES else 2] for task in model.tasks
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
    few = all(task.kind.has_classes and not task.pair for task in model.tasks)
    few = few and all(shape.rows[task.name] < FEW * task.outputs for task in model.tasks)
    if few and shape.classes <= FEW_CLASSES and not shape.cut and not shape.taught:
        return "contrastive"
    if few_pairs(model, shape) and not any(task.kind.scaled for task in model.tasks):
        return "fitted"
    pairs = any(task.pair for task in model.tasks)
    return "probe" if shape.classes > CLASSES and not pairs else "zero"


def _pairs(model: ModelPlan, heads: HeadsSpec, shape: Shape) -> tuple[HeadsSpec, str]:
    """Return the heads with those of pairs settled, and why."""
    names = [task.name for task in model.tasks if task.pair]
    if not names or shape.own:
        return heads.model_copy(update={"pairs": "linear"}), ""
    apart = not many_pairs(model, shape)
    reason = f"{PAIRS} {'apart (siamese)' if apart else 'together (cross-encoder)'}: {'fewer' if apart else 'more'}"
    return heads.model_copy(
        update={"pairs": "siamese" if apart else "linear"}
    ), f"{reason} than {CROSS_ENCODER_FROM:,} rows"


def few_pairs(model: ModelPlan, shape: Shape) -> bool:
    """Tell whether all tasks are pairs, with so few rows that fine-tuning soon does more harm than good."""
    return not shape.cut and all(
        task.pair and shape.rows[task.name] < (FEW_SCORES if task.kind.scaled else FEW * task.outputs)
        for task in model.tasks
    )


def many_pairs(model: ModelPlan, shape: Shape) -> bool:
    """Tell whether pairs of classes are so many that reading them together is better, which a short trial hides."""
    return (
        sum(shape.rows[task.name] for task in model.tasks if task.pair and not task.kind.scaled) >= CROSS_ENCODER_FROM
    )


def dev_rows(model: ModelPlan) -> int:
    """Return the rows of the smallest dev set that weights would be chosen by."""
    return min(task.splits["dev"].rows for task in model.own.values())
