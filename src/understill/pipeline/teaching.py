"""The teach stage: one model trained, saved and scored, or taken as it is when it is finished already."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from understill.disk import write_json
from understill.events import Scored, Teaching, Watch, silent
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.multitask import new_model
from understill.pipeline.planning import ModelPlan, Plan, cache_folder, max_length
from understill.pipeline.scoring import dev_score, score_model
from understill.pipeline.tokenising import Tokeniser, make_batches
from understill.train.device import make_accelerator
from understill.train.fit import Evaluated, Fitted, Report, Scores, fit
from understill.train.objective import Objective


@dataclass(frozen=True)
class TrainedModel:
    """A finished model's folder and scores."""

    name: str
    folder: Path
    scores: Scores
    history: list[dict[str, Any]]
    seconds: float


def teach(plan: Plan, model: ModelPlan, watch: Watch = silent) -> TrainedModel:
    """Train one model of a plan, or take it as it is when it is finished already."""
    model.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(model.folder) + ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        watch(Teaching(model.name, "waiting"))
        lock.acquire()
    try:
        if not model.done:
            watch(Teaching(model.name, "resumed" if model.started else "new"))
            _finish(plan, model, _train(plan, model, watch), watch)
        else:
            watch(Teaching(model.name, "done"))
        shutil.rmtree(model.folder / "work", ignore_errors=True)
        facts = _scored(plan, model, watch)
    finally:
        lock.release()
    watch(Scored(model.name, facts["scores"]))
    return TrainedModel(model.name, model.folder / "model", facts["scores"], facts["history"], facts["seconds"])


def _train(plan: Plan, model: ModelPlan, watch: Watch) -> Fitted:
    """Train a model, or go on training it, and save its folder."""
    recipe = plan.recipe
    tokenizer = load_tokenizer(recipe.encoder.name, plan.encoder)
    tokens = _tokeniser(plan, model, tokenizer, watch)
    batches = make_batches(recipe, model, plan, tokens, tokenizer.pad_token_id)
    dev = {(task.task.name, "dev"): tokens(task, "dev") for task in model.scored if task.task in model.tasks}
    network = new_model(recipe.encoder, recipe.heads, model.tasks, recipe.seed, plan.encoder)
    accelerator = make_accelerator(recipe.machine, recipe.training.precision, recipe.output.trackers, model.folder)
    accelerator.init_trackers(f"{recipe.name}-{model.name}")
    for event in fit(
        network,
        Objective(model.tasks, recipe.heads.regression),
        batches,
        recipe.training,
        accelerator=accelerator,
        seed=recipe.seed,
        folder=model.folder / "work",
        evaluate=lambda current: dev_score(current, model, dev, recipe.evaluation.batch),
    ):
        accelerator.log(_numbers(event), step=event.step)
        watch(event)
        if isinstance(event, Fitted):
            fitted = event
    accelerator.end_training()
    network = accelerator.unwrap_model(network, keep_fp32_wrapper=False).cpu()
    save_model(model.folder / "model", network, tokenizer, tokens.lengths, recipe.to_yaml(), {})
    return fitted


def _tokeniser(plan: Plan, model: ModelPlan, tokenizer: Any, watch: Watch) -> Tokeniser:
    lengths = {task.name: max_length(plan.recipe, task.name) for task in model.tasks}
    return Tokeniser(tokenizer, lengths, cache_folder(plan.recipe), watch)


def _finish(plan: Plan, model: ModelPlan, fitted: Fitted, watch: Watch) -> None:
    """Score a freshly saved model and mark it as finished."""
    scores = _score(plan, model, watch)
    shutil.copyfile(model.folder / "work" / "log.jsonl", model.folder / "log.jsonl")
    facts = {
        "fingerprint": model.fingerprint,
        "scores": scores,
        "scored_on": _scored_on(model),
        "history": fitted.history,
        "seconds": fitted.seconds,
    }
    write_json(model.folder / "done.json", facts)


def _score(plan: Plan, model: ModelPlan, watch: Watch) -> Scores:
    """Score a saved model from its folder, as anybody else would load it, so that the figures are the folder's."""
    folder = load_model(model.folder / "model")
    tokens = _tokeniser(plan, model, folder.tokenizer, watch)
    scores = score_model(folder, model.scored, tokens, plan.recipe, model.folder / "predictions")
    write_json(model.folder / "model" / "scores.json", scores)
    return scores


def _scored_on(model: ModelPlan) -> dict[str, str]:
    """Name the dev sets a model is scored on, with what they hold; not all of them take part in its training."""
    sets = [(task.task.name, split, data) for task in model.scored for split, data in task.splits.items()]
    return {f"{name}/{split}": data.fingerprint for name, split, data in sets if split.startswith("dev")}


def _scored(plan: Plan, model: ModelPlan, watch: Watch) -> dict[str, Any]:
    """Return the facts of a finished model, scored anew where a dev set was added or has changed."""
    facts: dict[str, Any] = json.loads((model.folder / "done.json").read_text(encoding="utf-8"))
    if facts["scored_on"] != _scored_on(model):
        facts |= {"scores": _score(plan, model, watch), "scored_on": _scored_on(model)}
        write_json(model.folder / "done.json", facts)
    return facts


def _numbers(event: Report | Evaluated | Fitted) -> dict[str, float]:
    """Return what a tracker should draw."""
    if isinstance(event, Report):
        parts = {f"loss/{name}": value for name, value in event.parts.items()}
        return {"loss": event.loss, "rate": event.rate, "rows_per_second": event.rows_per_second, **parts}
    if isinstance(event, Fitted):
        return {"best_step": float(event.best_step)}
    flat = {f"{place}/{metric}": value for place, values in event.scores.items() for metric, value in values.items()}
    return {"dev": event.score, **flat}
