"""Initial weights: a pretrained encoder or another model, and heads at random, at zero or from a linear probe."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from understill.data.batches import Batches
from understill.data.encode import has_gold
from understill.data.groups import grouping
from understill.evaluate.predict import features
from understill.events import Turn
from understill.losses.contrast import Contrast, Vectors
from understill.models.folder import load_model
from understill.models.heads import Head
from understill.models.multitask import MultiTaskModel, continued, new_model
from understill.models.siamese import Siamese
from understill.pipeline.dataloader import ModelInputs, chosen_rows
from understill.pipeline.plan.parts import ModelPlan
from understill.recipe.schema import Contrastive
from understill.tasks import Task
from understill.train.device import make_accelerator, released
from understill.train.loop import steps
from understill.train.meter import Meter, Pace
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer
from understill.train.probe import MOST, Probe, fit_probe

#: Weight decay of the probe that heads begin with. So strong a decay gives a head its direction and leaves it small,
#: so that the encoder still has something to learn.
DECAY = 1.0
#: The same where the encoder has moved already, in a contrastive stage, or should hardly move.
SETTLED = 0.01
#: Steps of a contrastive stage for each row, and at least and at most so many in all.
STEPS_PER_ROW, FEWEST, MOST_STEPS = 0.75, 12, 160


def first_weights(model: ModelPlan) -> MultiTaskModel:
    """Return a model as it is before its training: an encoder with fresh heads, or another trained model."""
    start, settings = model.start, model.settings
    if start.heads:
        parent = load_model(Path(start.place)).model
        heads = settings.heads
        if heads.pairs == "auto":  # as the other one has them
            heads = heads.model_copy(update={"pairs": parent.spec.pairs, "tasks": parent.spec.tasks})
        return continued(parent, model.tasks, heads, settings.encoder.dropout)
    return new_model(settings.encoder, settings.heads, model.tasks, model.seed, start.place)


def prepare_heads(inputs: ModelInputs, network: MultiTaskModel, batches: Batches) -> Generator[None]:
    """Bring heads, and in a contrastive stage the encoder, to where the training begins."""
    model = inputs.model
    start = model.settings.training.start
    if start in ("auto", "fresh") or model.start.heads:
        return
    if start == "contrastive":
        yield from _contrast(inputs, network, batches)
    device = next(network.parameters()).device
    network.eval()
    for task, head in zip(model.tasks, network.heads.tasks, strict=True):
        if not isinstance(head, Head | Siamese):
            continue
        weight, bias = torch.zeros_like(head.out.weight), torch.zeros_like(head.out.bias)
        if start != "zero" and probeable(network, task):
            probe = _probe(inputs, network, task, DECAY if start == "probe" else SETTLED)
            weight, bias = torch.from_numpy(probe.weight).to(device), torch.from_numpy(probe.bias).to(device)
        with torch.no_grad():
            head.out.weight.copy_(weight)
            head.out.bias.copy_(bias)


def probeable(network: MultiTaskModel, task: Task) -> bool:
    """Tell whether a task's head is one linear layer on vectors, whose outputs are what a probe gives."""
    head = network.heads.tasks[network.number(task.name)]
    linear = isinstance(head, Siamese) or (isinstance(head, Head) and head.dense is None)
    return linear and bool(task.kind.probe) and not (task.kind.scaled and network.spec.regression == "sigmoid")


def _probe(inputs: ModelInputs, network: MultiTaskModel, task: Task, decay: float) -> Probe:
    data = inputs.plan.loaded[task.name].splits["train"]
    rows, chosen = inputs.tokens(data), chosen_rows(data, grouping(data), None, inputs.model.fold)
    places = np.arange(len(rows)) if chosen is None else chosen
    places = places[has_gold(rows.gold[places])]
    some = places[np.linspace(0, len(places) - 1, min(MOST, len(places))).astype(np.int64)]
    values = features(network, rows.take(some), task, inputs.plan.recipe.evaluation.batch)
    return fit_probe(values, _outputs(rows.gold[some], task, network.spec.regression), task, decay)


def _outputs(gold: NDArray[np.float32], task: Task, regression: str) -> NDArray[np.float32]:
    """Return what a head should give for gold values."""
    if not task.kind.scaled or regression == "raw" or task.range is None:
        return gold
    low, high = task.range
    return (gold - low) / (high - low)


def contrast_steps(rows: int, per_row: float = STEPS_PER_ROW) -> int:
    """Return how many steps a contrastive stage takes."""
    return min(max(int(per_row * rows), FEWEST), MOST_STEPS)


def _contrast(inputs: ModelInputs, network: MultiTaskModel, batches: Batches) -> Generator[None]:
    """Draw the texts of a class together and those of different classes apart, before there are heads."""
    model, training = inputs.model, inputs.model.settings.training
    stage = training.contrastive or Contrastive()
    count = stage.steps or contrast_steps(sum(model.rows.values()))
    training = training.model_copy(update={"steps": count, "head_lr": None, "micro_batch": None})
    accelerator = make_accelerator(inputs.plan.recipe.machine, training.precision)
    vectors = Vectors(network.to(accelerator.device)).train()
    first = {name: weight.detach().clone() for name, weight in network.encoder.named_parameters()}
    prepared, optimizer = accelerator.prepare(vectors, make_optimizer(vectors, training))
    objective = Contrast(model.tasks)
    names = [task.name for task in model.tasks]
    guard, meter = NanGuard(len(names), accelerator.device), Meter(names, Pace(count, lambda _: 0))
    for step in steps(
        prepared, objective, batches, optimizer, accelerator, training, seed=model.seed, start=0, guard=guard
    ):
        meter.add(step)
        if meter.due():
            guard.check(names, training)
            inputs.watch(Turn(f"{inputs.title}, contrastive stage"))
            inputs.watch(meter.report(step, batches))
        yield
    guard.check(names, training)
    released(accelerator, prepared)
    # What the encoder knew goes on counting: often the mean of both is better than either (docs/defaults.md).
    with torch.no_grad():
        for name, weight in network.encoder.named_parameters():
            weight.lerp_(first[name], 1 - stage.share)
