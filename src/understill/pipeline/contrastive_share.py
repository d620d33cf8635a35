"""How far a contrastive stage moves the encoder: half of the way, or all of it where the training rows show why."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.data.encode import has_gold
from understill.evaluate.predict import predict
from understill.models.multitask import MultiTaskModel
from understill.pipeline.dataloader import ModelInputs, held_out, make_batches
from understill.pipeline.hyperparameters import Choice, Shape
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
TO_BE_TRIED = f"to be tried on {FOLDS} folds first: the encoder goes half of the way in that stage, or all of it"


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
    began, right = time.monotonic(), {"frozen": np.zeros(0, bool), "contrastive": np.zeros(0, bool)}
    stage = {
        "contrastive": Contrastive(steps=fold_steps(shape.total), share=1.0),
        "batch": min(choice.settings.training.batch, BATCH),
    }
    for number in range(FOLDS):
        title = f"{inputs.title}, fold {number + 1} of {FOLDS}"
        fold = replace(inputs, model=replace(inputs.model, fold=Fold(number, FOLDS, by_class=True)), title=title)
        network = first_weights(fold.model).to(pick_device(inputs.plan.recipe.machine))
        for name, start in (("frozen", "fitted"), ("contrastive", "contrastive")):
            settings = _changed(choice.settings, **stage, start=start)
            tried = replace(fold, model=replace(fold.model, settings=settings))
            batches = make_batches(inputs.plan, tried.model, inputs.tokens, inputs.joined)
            yield from prepare_heads(tried, network, batches)
            right[name] = np.append(right[name], _held_right(tried, network))
    whole = clearly_better(right["contrastive"], right["frozen"])
    steps = contrast_steps(shape.total, STEPS_PER_ROW) if whole else contrast_steps(shape.total)
    settings = _changed(choice.settings, contrastive=Contrastive(steps=steps, share=1.0 if whole else 0.5))
    way = f"{'all' if whole else 'half'} of the way in that stage, of {steps} steps"
    evidence = ", ".join(f"{name} {100 * each.mean():.1f}" for name, each in right.items())
    reason = f"the encoder goes {way} (on {len(right['frozen'])} rows in {FOLDS} folds: {evidence})"
    return Choice(settings, (*choice.reasons, reason), {}, time.monotonic() - began)


def clearly_better(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> bool:
    """Tell whether one has more rows right, by the rows on which only one of the two is right."""
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    return gained - lost > MARGIN * math.sqrt(gained + lost)


def _changed(settings: Settings, **changes: Any) -> Settings:
    return settings.model_copy(update={"training": settings.training.model_copy(update=changes)})


def _held_right(inputs: ModelInputs, network: MultiTaskModel) -> NDArray[np.bool_]:
    """Return which rows of the held-out fold a model has right, those of all tasks."""
    plan, model, parts = inputs.plan, inputs.model, []
    assert model.fold
    network.eval()
    for task in model.tasks:
        data = plan.loaded[task.name].splits["train"]
        rows = inputs.tokens(data)
        held = rows.take(np.flatnonzero(held_out(data, model.fold) & has_gold(rows.gold)))
        parts.append(predict(network, held, task, plan.recipe.evaluation.batch).values == held.gold)
    return np.concatenate(parts)
