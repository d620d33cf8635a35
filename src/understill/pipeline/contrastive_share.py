"""How far a contrastive stage moves the encoder: half of the way, or all of it where the training rows show why."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understill.data.encode import has_gold
from understill.evaluate.predict import predict
from understill.pipeline.dataloader import ModelInputs, held_out, make_batches
from understill.pipeline.hyperparameters import Choice, Shape, changed
from understill.pipeline.initial_weights import contrast_steps, first_weights, prepare_heads
from understill.pipeline.plan.parts import Fold, ModelPlan
from understill.recipe.schema import Contrastive, Settings
from understill.train.device import pick_device

#: From so many rows on, each is held out once, in one of so many folds.
ROWS, FOLDS = 32, 3
#: The most steps of the stage in a fold, and rows of each: a large effect shows in half the time.
MOST_STEPS, BATCH = 50, 16
#: The whole way is taken where it is better by more than so many standard errors of the paired difference.
MARGIN = 2.0
#: Steps of that stage for each row.
STEPS_PER_ROW = 1.5
TO_BE_TRIED = (
    f"to be tried on {FOLDS} folds first: the encoder's weights move half of the way towards the end of the "
    "contrastive stage, or all of it"
)


def is_open(model: ModelPlan, settings: Settings, shape: Shape) -> bool:
    """Tell whether the share is to be chosen: the rule takes a contrastive stage, and there are rows to judge by."""
    given = model.settings.training
    by_rule = given.start == "auto" and settings.training.start == "contrastive"
    fixed = given.contrastive or model.fold or model.augmented
    return by_rule and not fixed and shape.total >= ROWS


def fold_steps(rows: int) -> int:
    """Return the steps of the stage in one fold of so many rows in all."""
    return min(contrast_steps(rows - rows // FOLDS), MOST_STEPS)


def choose_share(inputs: ModelInputs, choice: Choice, shape: Shape) -> Generator[None, None, Choice]:
    """Compare probes on the frozen encoder and at the end of a contrastive stage, on rows that neither has seen."""
    began, frozen, moved = time.monotonic(), np.zeros(0, bool), np.zeros(0, bool)
    stage = Contrastive(steps=fold_steps(shape.total), share=1.0)
    short = changed(choice.settings, contrastive=stage, batch=min(choice.settings.training.batch, BATCH))
    for number in range(FOLDS):
        frozen = np.append(frozen, (yield from _held_right(inputs, changed(short, start="fitted"), number)))
    for number in range(FOLDS):
        # Where the rows that are left, all right, would not be enough, they need not be tried.
        if not clearly_better(np.append(moved, np.ones(len(frozen) - len(moved), bool)), frozen):
            break
        moved = np.append(moved, (yield from _held_right(inputs, short, number)))
    whole = len(moved) == len(frozen) and clearly_better(moved, frozen)
    steps = contrast_steps(shape.total, STEPS_PER_ROW) if whole else contrast_steps(shape.total)
    settings = changed(choice.settings, contrastive=Contrastive(steps=steps, share=1.0 if whole else 0.5))
    return Choice(settings, (*choice.reasons, _reason(frozen, moved, whole)), {}, time.monotonic() - began)


def _reason(frozen: NDArray[np.bool_], moved: NDArray[np.bool_], whole: bool) -> str:
    count = len(moved) or len(frozen)
    parts = {"frozen": frozen[:count], "moved all of the way": moved}
    scores = ", ".join(f"{name} {100 * part.mean():.1f}" for name, part in parts.items() if len(part))
    way = "all of the way" if whole else "half of the way"
    evidence = f"(on {count} held-out rows: {scores})"
    return f"the encoder's weights move {way} towards the end of the contrastive stage {evidence}"


def clearly_better(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> bool:
    """Tell whether one has more rows right, by the rows on which only one of the two is right."""
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    return gained - lost > MARGIN * math.sqrt(gained + lost)


def _held_right(inputs: ModelInputs, settings: Settings, number: int) -> Generator[None, None, NDArray[np.bool_]]:
    """Prepare a model on the rows outside a fold, and return which of the fold's rows it has right, of all tasks."""
    plan, fold = inputs.plan, Fold(number, FOLDS, by_class=True)
    model, parts = replace(inputs.model, settings=settings, fold=fold), []
    network = first_weights(model).to(pick_device(plan.recipe.machine))
    batches = make_batches(plan, model, inputs.tokens, inputs.joined)
    title = f"{inputs.title}, fold {number + 1} of {FOLDS}"
    yield from prepare_heads(replace(inputs, model=model, title=title), network, batches)
    for task in model.tasks:
        data = plan.loaded[task.name].splits["train"]
        rows = inputs.tokens(data)
        held = rows.take(np.flatnonzero(held_out(data, fold) & has_gold(rows.gold)))
        parts.append(predict(network, held, task, plan.recipe.evaluation.batch).values == held.gold)
    return np.concatenate(parts)
