"""The teach stage: one model trained, saved and scored, or taken as it is when it is finished already."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from understill.events import Scored, Teaching, Watch, silent
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.multitask import new_model
from understill.pipeline.planning import ModelPlan, Plan
from understill.pipeline.scoring import dev_score, score_model
from understill.pipeline.tokenising import Tokeniser, make_batches, max_length
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
    with lock:
        if not model.done:
            watch(Teaching(model.name, "resumed" if model.started else "new"))
            _train(plan, model, watch)
        else:
            watch(Teaching(model.name, "done"))
    facts = json.loads((model.folder / "done.json").read_text(encoding="utf-8"))
    watch(Scored(model.name, facts["scores"]))
    return TrainedModel(model.name, model.folder / "model", facts["scores"], facts["history"], facts["seconds"])


def _train(plan: Plan, model: ModelPlan, watch: Watch) -> None:
    recipe, work = plan.recipe, model.folder / "work"
    tokenizer = load_tokenizer(recipe.encoder.name, plan.encoder)
    tokens = Tokeniser(recipe, tokenizer, watch)
    batches = make_batches(recipe, model, plan, tokens, tokenizer.pad_token_id)
    dev = {(task.task.name, "dev"): tokens(task, "dev") for task in model.scored if task.task in model.tasks}
    network = new_model(recipe.encoder, recipe.heads, model.tasks, recipe.seed, plan.encoder)
    accelerator = make_accelerator(recipe.machine, recipe.training.precision, recipe.output.trackers, model.folder)
    accelerator.init_trackers(f"{recipe.name}-{model.name}")
    objective = Objective(model.tasks, recipe.heads.regression)
    for event in fit(
        network,
        objective,
        batches,
        recipe.training,
        accelerator=accelerator,
        seed=recipe.seed,
        folder=work,
        evaluate=lambda current: dev_score(current, model, dev, recipe.evaluation.batch),
    ):
        accelerator.log(_numbers(event), step=event.step)
        watch(event)
        if isinstance(event, Fitted):
            fitted = event
    accelerator.end_training()
    network = accelerator.unwrap_model(network, keep_fp32_wrapper=False).cpu()
    lengths = {task.name: max_length(recipe, task.name) for task in model.tasks}
    save_model(model.folder / "model", network, tokenizer, lengths, recipe.to_yaml(), {})
    # Scored from the folder, as anybody else would load it, so that the figures are the saved model's.
    scores = score_model(load_model(model.folder / "model"), model.scored, tokens, recipe, model.folder / "predictions")
    write_json(model.folder / "model" / "scores.json", scores)
    shutil.copyfile(work / "log.jsonl", model.folder / "log.jsonl")
    facts = {
        "fingerprint": model.fingerprint,
        "scores": scores,
        "history": fitted.history,
        "seconds": fitted.seconds,
    }
    write_json(model.folder / "done.json", facts)
    shutil.rmtree(work, ignore_errors=True)


def _numbers(event: Report | Evaluated | Fitted) -> dict[str, float]:
    """Return what a tracker should draw."""
    if isinstance(event, Report):
        parts = {f"loss/{name}": value for name, value in event.parts.items()}
        return {"loss": event.loss, "rate": event.rate, "rows_per_second": event.rows_per_second, **parts}
    if isinstance(event, Fitted):
        return {"best_step": float(event.best_step)}
    flat = {f"{place}/{metric}": value for place, values in event.scores.items() for metric, value in values.items()}
    return {"dev": event.score, **flat}


def write_json(path: Path, values: Any) -> None:
    """Write JSON, whole or not at all."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    building.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    building.replace(path)
