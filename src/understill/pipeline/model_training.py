"""The train stage: a model trained step by step and saved; and the evaluate stage: the saved model scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from understill.atomic import write_json
from understill.data.batches import Batches
from understill.events import Evaluated, Fitted, Report, Resumed, Scored, Scores, TrainingState, Turn, Watch
from understill.losses.fused import make_objective
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model, save_scores
from understill.models.multitask import MultiTaskModel
from understill.pipeline.dataloader import ModelInputs, Tokeniser, make_batches, tokeniser_of
from understill.pipeline.evaluation import dev_score, score_model
from understill.pipeline.hyperparameter_search import tune
from understill.pipeline.hyperparameters import Choice
from understill.pipeline.initial_weights import first_weights, prepare_heads
from understill.pipeline.plan.parts import ModelPlan, Plan, Role, Wanted, cache_folder, max_length
from understill.pipeline.soft_targets import join_targets
from understill.train.device import make_accelerator, pick_device, released
from understill.train.fit import Event, fit
from understill.train.interleave import slots_on
from understill.train.loop import Step
from understill.train.signals import SIGNALS
from understill.train.world import world

#: What belongs to a trained model, beside its checkpoints, and what to one that is scored.
TRAINED = ("done.json", "log.jsonl", "model")
SCORED = (*TRAINED, "scores.json", "predictions")


@dataclass(frozen=True)
class TrainedModel:
    """A finished model's folder and scores."""

    name: str
    role: Role
    folder: Path
    scores: Scores
    history: list[dict[str, Any]]
    seconds: float
    chosen: Mapping[str, Any] | None = None  # what the recipe left open, and why


def read_trained(model: ModelPlan) -> TrainedModel:
    """Return a finished model with its scores."""
    facts, scores = _read(model, "done.json"), _read(model, "scores.json")["scores"]
    place = model.folder / "model"
    return TrainedModel(model.name, model.role, place, scores, facts["history"], facts["seconds"], facts["chosen"])


def _read(model: ModelPlan, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((model.folder / name).read_text(encoding="utf-8"))
    return facts


# Train ----------------------------------------------------------------------------------------------------------------


def train_model(wanted: Wanted, watch: Watch) -> Generator[None]:
    """Train a model, or go on training it, and save its folder; one that is finished is taken as it is.

    Of several processes that train it together, the first one does all that is no training.
    """
    plan, model, title = wanted
    recipe, distillation, others = plan.recipe, model.distillation, world()
    model.artifact.clear()
    watch(TrainingState(title, "done" if model.done else "resumed" if model.started else "new"))
    if model.done:
        return
    joined = join_targets(plan, distillation) if distillation else {}
    tokens = _tokeniser(plan, model, watch)
    inputs = ModelInputs(plan, model, title, tokens, joined, watch)
    choice = None
    if model.settings.training.lr == "auto":
        choice = others.share((yield from tune(inputs)) if others.leads else None)
        assert choice is not None
        model = replace(model, settings=choice.settings)
        inputs = replace(inputs, model=model)
    training = model.settings.training
    if others.leads:  # what the first process refuses, the others need not repeat
        others.refuse_small(training.batch)
    batches = make_batches(plan, model, tokens, joined)
    network = first_weights(model)
    if others.leads and not model.started:
        network.to(pick_device(recipe.machine))
        yield from prepare_heads(inputs, network, batches)
    trackers = recipe.output.trackers if others.leads else ()
    accelerator = make_accelerator(recipe.machine, training.precision, trackers, model.folder)
    accelerator.init_trackers(f"{recipe.name}-{model.name}")
    with SIGNALS, closing(_fit(inputs, network, batches, accelerator)) as events:
        for event in events:
            if isinstance(event, Step):
                yield
                continue
            if not isinstance(event, Resumed):
                accelerator.log(_numbers(event), step=event.step)
            watch(Turn(title))
            watch(event)
    for tracker in accelerator.trackers:  # not end_training, which would part this process from the others
        tracker.finish()
    if not others.leads:
        return
    network = released(accelerator, network).cpu()
    place, distilled = model.folder / "model", _distilled(model)
    save_model(place, network, tokens.tokenizer, tokens.lengths, recipe.to_yaml(), {}, taught=distilled)
    assert isinstance(event, Fitted), "what a training ends with"
    _record(model, event, choice)


def _fit(inputs: ModelInputs, network: MultiTaskModel, batches: Batches, accelerator: Accelerator) -> Generator[Event]:
    """Return the training of a network, with a look at the dev sets now and then."""
    recipe, model, tokens, others = inputs.plan.recipe, inputs.model, inputs.tokens, world()
    dev = {name: tokens(task.splits["dev"]) for name, task in model.own.items()}
    distil = model.distillation.distil if model.distillation else None
    return fit(
        network,
        make_objective(model.tasks, model.settings.heads.regression, distil),
        batches,
        model.settings.training,
        accelerator=accelerator,
        seed=model.seed,
        folder=model.folder / "work",
        evaluate=lambda current: dev_score(current, model, dev, recipe.evaluation.batch, others),
        fast=recipe.machine.fast == "auto",
        together=slots_on(recipe.machine),
        world=others,
    )


def _record(model: ModelPlan, fitted: Fitted, choice: Choice | None) -> None:
    """Record a finished training; its checkpoints are not needed any more."""
    shutil.copyfile(model.folder / "work" / "log.jsonl", model.folder / "log.jsonl")
    facts = {
        "fingerprint": model.fingerprint,
        "history": fitted.history,
        "seconds": fitted.seconds + (choice.seconds if choice else 0.0),
        "chosen": choice.facts() if choice else None,
    }
    write_json(model.folder / "done.json", facts)
    model.artifact.seal(TRAINED)


def _distilled(model: ModelPlan) -> bool:
    """Tell whether a model, or the one that it begins as, learns from teachers."""
    return model.distillation is not None or bool(model.start.model and _distilled(model.start.model))


def tokenise_rows(wanted: Wanted, watch: Watch) -> None:
    """Turn all rows that a model reads into tokens, which are kept for whoever reads the same."""
    plan, model, _ = wanted
    tokens = _tokeniser(plan, model, watch)
    for task, split, swapped in rows_of(model):
        tokens(plan.loaded[task].splits[split], swapped=swapped)


def rows_of(model: ModelPlan) -> list[tuple[str, str, bool]]:
    """Name the splits that a model is trained and looked at with, each task's, and whether its texts are swapped."""
    places = []
    for task in model.tasks:
        splits = (model.split(task.name), *(["unlabelled"] if task.name in model.unlabelled else []))
        places += [(task.name, split, swapped) for split in splits for swapped in model.orders(task)]
        places.append((task.name, "dev", False))
    return places


def _tokeniser(plan: Plan, model: ModelPlan, watch: Watch) -> Tokeniser:
    """Return what turns rows into the tokens of a model that is to be trained."""
    tokenizer = load_tokenizer(model.start.name, model.start.place)
    lengths = {task.name: max_length(plan.recipe, model.settings, task.name) for task in model.tasks}
    return Tokeniser(tokenizer, lengths, cache_folder(plan.recipe), watch)


# Evaluate -------------------------------------------------------------------------------------------------------------


def evaluate_model(wanted: Wanted, watch: Watch) -> None:
    """Score a saved model, anew where a dev set was added or has changed, and mark it as finished."""
    plan, model, title = wanted
    shutil.rmtree(model.folder / "work", ignore_errors=True)  # checkpoints of a finished training
    if not scored(model):
        model.artifact.seal(TRAINED)  # stopped from here on, it is trained and has no scores
        # From its folder, as anybody else would load it, so that the figures are the folder's.
        folder = load_model(model.folder / "model")
        tokens = tokeniser_of(folder, plan.recipe, watch)
        scores = score_model(folder, model.scored, tokens, plan.recipe, model.folder / "predictions")
        save_scores(folder.path, scores, _dev_prints(model))
        write_json(model.folder / "scores.json", {"scores": scores, "scored_on": _dev_prints(model)})
        model.artifact.seal(SCORED)
    watch(Scored(title, _read(model, "scores.json")["scores"]))


def scored(model: ModelPlan) -> bool:
    """Tell whether a model is finished, with scores on the dev sets as they are."""
    facts = model.artifact.read("scores.json")
    return facts is not None and bool(facts["scored_on"] == _dev_prints(model))


def _dev_prints(model: ModelPlan) -> dict[str, str]:
    """Name the dev sets a model is scored on, with what they hold; not all of them take part in its training."""
    sets = [data for task in model.scored for data in task.splits.values() if data.split.startswith("dev")]
    return {data.place: data.fingerprint for data in sets}


def _numbers(event: Report | Evaluated | Fitted) -> dict[str, float]:
    """Return what a tracker should draw."""
    if isinstance(event, Report):
        parts = {f"loss/{name}": value for name, value in event.parts.items()}
        mix = {} if event.mix is None else {"lambda": event.mix}
        return {"loss": event.loss, "rate": event.rate, "rows_per_second": event.rows_per_second, **mix, **parts}
    if isinstance(event, Fitted):
        return {"best_step": float(event.best_step)}
    flat = {f"{place}/{metric}": value for place, values in event.scores.items() for metric, value in values.items()}
    return {"dev": event.score, **flat}
