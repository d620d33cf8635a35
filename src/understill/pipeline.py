"""The pipeline: stages that read files and write a folder named by the fingerprint of what went in."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from errno import EEXIST, ENOTDIR
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from understill.data.batch import Batches
from understill.data.encode import gold_of
from understill.data.load import LoadedTask, load_tasks, read_tasks
from understill.data.load import resolve as resolve_tasks
from understill.data.tokens import Tokens, tokenise
from understill.errors import Collector, UserError, nearest
from understill.evaluate.metrics import majority, primary, score
from understill.evaluate.predict import predict, save_predictions
from understill.evaluate.predictor import Predictor
from understill.events import Reading, Scored, Teaching, Tokenising, Watch, silent
from understill.models.encoder import check_lengths, identity, load_tokenizer, resolve
from understill.models.folder import ModelFolder, load_model, save_model
from understill.models.folder import find_model as find_model
from understill.models.multitask import MultiTaskModel, new_model
from understill.recipe import Machine, Recipe, fingerprint
from understill.tasks import Task
from understill.train.device import check_trackers, make_accelerator, pick_device, pick_precision
from understill.train.fit import Evaluated, Fitted, Report, Scores, fit
from understill.train.objective import Objective

log = logging.getLogger(__name__)

#: Goes up whenever the same recipe would train to another result.
TRAINING_VERSION = 1


@dataclass(frozen=True)
class ModelPlan:
    """One model that a recipe asks for."""

    name: str
    tasks: tuple[Task, ...]  # those with a head of their own
    scored: tuple[LoadedTask, ...]  # those whose dev sets it is scored on, diagnostic sets included
    fingerprint: str
    folder: Path

    @property
    def done(self) -> bool:
        """Whether it was trained before, to the end."""
        return (self.folder / "done.json").exists()

    @property
    def started(self) -> bool:
        """Whether a checkpoint is there to go on from."""
        return any((self.folder / "work").glob("checkpoint-*"))


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to on this machine."""

    recipe: Recipe
    loaded: Mapping[str, LoadedTask]
    models: tuple[ModelPlan, ...]
    encoder: str  # what the loaders take: a folder or a hub id


@dataclass(frozen=True)
class TrainedModel:
    """A finished model's folder and scores."""

    name: str
    folder: Path
    scores: Scores
    history: list[dict[str, Any]]
    seconds: float


@dataclass(frozen=True)
class Run:
    """What a run has come to."""

    folder: Path
    models: tuple[TrainedModel, ...]
    majority: Scores
    tasks: Mapping[str, Task]


def cache_folder(recipe: Recipe) -> Path:
    """Return where data and tokens are kept between runs."""
    return recipe.output.path / "cache"


def read_data(recipe: Recipe, watch: Watch = silent) -> dict[str, LoadedTask]:
    """Read and check all data of a recipe, for which no encoder is needed."""
    writable(recipe.output.path)
    return load_tasks(recipe, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))


def make_plan(recipe: Recipe, watch: Watch = silent) -> Plan:
    """Check what is quickly checked, all of it at once, then read all data, and say which models are to be trained."""
    found = Collector()
    with found:
        writable(recipe.output.path)
    with found:
        pick_precision(recipe.training.precision, pick_device(recipe.machine))
    with found:
        check_trackers(recipe.output.trackers)
    with found:
        encoder = find_encoder(recipe)
    with found:
        tasks = resolve_tasks(recipe)
    found.raise_if_any()
    skip = recipe.data.on_bad_row == "skip"
    loaded = read_tasks(tasks, skip, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))
    # A diagnostic set's labels are in the order of the head that answers it, also where that task is the user's own.
    loaded = {name: _as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}
    own = [name for name, task in loaded.items() if task.task.head == name]
    groups = {"multi": own} if recipe.models == "together" else {name: [name] for name in own}
    about = identity(encoder)
    models = tuple(
        _plan_model(recipe, name, [loaded[key] for key in keys], loaded, about) for name, keys in groups.items()
    )
    return Plan(recipe, loaded, models, encoder)


def find_encoder(recipe: Recipe) -> str:
    """Return what the loaders take for a recipe's encoder, when it can read as many tokens as are asked for."""
    there = recipe.find(recipe.encoder.name)
    encoder = resolve(str(there) if there.is_dir() else recipe.encoder.name)
    own_lengths = {f"tasks.{name}.max_length": spec.max_length for name, spec in recipe.tasks.items()}
    lengths = {place: length for place, length in own_lengths.items() if length}
    check_lengths(recipe.encoder.name, encoder, {"encoder.max_length": recipe.encoder.max_length, **lengths})
    return encoder


def _plan_model(
    recipe: Recipe, name: str, mine: list[LoadedTask], loaded: Mapping[str, LoadedTask], about: Mapping[str, Any]
) -> ModelPlan:
    names = {task.task.name for task in mine}
    scored = tuple(task for task in loaded.values() if task.task.head in names)
    settings = recipe.training.model_dump(mode="json", exclude={"checkpoint"})
    settings["precision"] = pick_precision(recipe.training.precision, pick_device(recipe.machine))
    print_of = fingerprint(
        {
            "stage": "teach",
            "version": TRAINING_VERSION,
            "encoder": {**about, **recipe.encoder.model_dump(mode="json", exclude={"name"})},
            "heads": recipe.heads.model_dump(mode="json"),
            "training": settings,
            "seed": recipe.seed,
            "tasks": [
                {
                    **task.task.to_dict(),
                    "weight": recipe.tasks[task.task.name].weight,
                    "max_length": recipe.tasks[task.task.name].max_length,
                    "data": {
                        split: data.fingerprint
                        for split, data in sorted(task.splits.items())
                        if split in ("train", "dev")
                    },
                }
                for task in mine
            ],
        }
    )
    folder = recipe.output.path / "artifacts" / f"model-{name}-{print_of[:16]}"
    return ModelPlan(name, tuple(task.task for task in mine), scored, print_of, folder)


def run(recipe: Recipe, watch: Watch = silent) -> Run:
    """Do everything a recipe asks for, reusing what is there already."""
    plan = make_plan(recipe, watch)
    trained = tuple(teach(plan, model, watch) for model in plan.models)
    return _write_run(plan, trained)


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
    began = time.monotonic()
    tokenizer = load_tokenizer(recipe.encoder.name, plan.encoder)
    tokens = Tokeniser(recipe, tokenizer, watch)
    batches = make_batches(recipe, model, plan, tokens, tokenizer.pad_token_id)
    dev = {(task.task.name, "dev"): tokens(task, "dev") for task in model.scored if task.task in model.tasks}
    network = new_model(recipe.encoder, recipe.heads, model.tasks, recipe.seed, plan.encoder)
    accelerator = make_accelerator(recipe.machine, recipe.training.precision, recipe.output.trackers, model.folder)
    accelerator.init_trackers(f"{recipe.name}-{model.name}")
    history: list[dict[str, Any]] = []
    objective = Objective(model.tasks, recipe.heads.regression)
    for event in fit(
        network,
        objective,
        batches,
        recipe.training,
        accelerator=accelerator,
        seed=recipe.seed,
        folder=work,
        evaluate=lambda current: _dev_score(current, model, dev, recipe.evaluation.batch),
    ):
        accelerator.log(_numbers(event), step=event.step)
        watch(event)
        if isinstance(event, Fitted):
            history = event.history
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
        "history": history,
        "seconds": time.monotonic() - began,
    }
    write_json(model.folder / "done.json", facts)
    shutil.rmtree(work, ignore_errors=True)


class Tokeniser:
    """Turns splits into tokens, once each."""

    def __init__(self, recipe: Recipe, tokenizer: Any, watch: Watch) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.watch = watch

    def __call__(self, task: LoadedTask, split: str, *, swapped: bool = False) -> Tokens:
        """Return the tokens of one split."""
        data, name = task.splits[split], task.task.name
        what, done = f"{name}/{split}", 0

        def progress(rows: int) -> None:
            nonlocal done
            done += rows
            self.watch(Tokenising(what, done, data.rows))

        length = max_length(self.recipe, task.task.head)
        return tokenise(data, self.tokenizer, length, cache_folder(self.recipe), swapped=swapped, progress=progress)


def max_length(recipe: Recipe, task: str) -> int:
    """Return how many tokens of a task's rows are read."""
    return recipe.tasks[task].max_length or recipe.encoder.max_length


def make_batches(recipe: Recipe, model: ModelPlan, plan: Plan, tokens: Tokeniser, pad: int) -> Batches:
    """Tokenise the training rows of a model and put them into batches."""
    training, sources = recipe.training, []
    for task in model.tasks:
        loaded = plan.loaded[task.name]
        orders = [tokens(loaded, "train")]
        if training.both_orders and task.symmetric:
            orders.append(tokens(loaded, "train", swapped=True))
        sources.append(orders)
    return Batches(
        sources,
        batch=training.batch,
        seed=recipe.seed,
        mode=training.batches,
        sampling=training.sampling,
        window=training.window,
        pad=pad,
        weights=[recipe.tasks[task.name].weight for task in model.tasks],
    )


def _dev_score(
    network: MultiTaskModel, model: ModelPlan, dev: Mapping[tuple[str, str], Tokens], batch: int
) -> tuple[float, Scores]:
    """Score a model in training on each task's first dev set; their mean decides which weights are kept."""
    scores = {}
    for task in model.tasks:
        tokens = dev[task.name, "dev"]
        values = predict(network, tokens, task, batch).values
        scores[f"{task.name}/dev"] = score(task, np.asarray(tokens.gold, dtype=np.float64), values)
    return float(np.mean([primary(task, scores[f"{task.name}/dev"]) for task in model.tasks])), scores


def score_model(
    folder: ModelFolder, tasks: tuple[LoadedTask, ...], tokens: Tokeniser, recipe: Recipe, keep: Path | None = None
) -> Scores:
    """Score a saved model on every dev set, keeping each row's prediction under `keep`."""
    scores: Scores = {}
    network = folder.model.to(pick_device(recipe.machine))
    for loaded in tasks:
        for split, data in loaded.splits.items():
            if not split.startswith("dev"):
                continue
            rows = tokens(loaded, split)
            predictions = predict(network, rows, loaded.task, recipe.evaluation.batch)
            if keep:
                save_predictions(keep / f"{loaded.task.name}.{split}.parquet", data, predictions)
            measured = score(loaded.task, np.asarray(rows.gold, dtype=np.float64), predictions.values)
            if measured:
                scores[f"{loaded.task.name}/{split}"] = measured
    return scores


def evaluate(
    path: Path, recipe: Recipe, keep: Path | None = None, watch: Watch = silent
) -> tuple[Scores, dict[str, Task]]:
    """Score a model folder on the dev sets of a recipe."""
    folder = load_model(path)
    own = {task.name: task for task in folder.tasks}
    loaded = read_data(recipe, watch)
    tasks = tuple(_as_trained(task, own[task.task.head]) for task in loaded.values() if task.task.head in own)
    if not tasks:
        raise UserError(f"the recipe has none of the model's tasks ({', '.join(own)})")
    tokens = Tokeniser(recipe, folder.tokenizer, watch)
    scores = score_model(folder, tasks, tokens, recipe, keep)
    return scores, {task.task.name: task.task for task in tasks}


def _as_trained(loaded: LoadedTask, trained: Task) -> LoadedTask:
    """Give a task the label order of the model; labels are joined by name."""
    strange = set(loaded.task.labels) - set(trained.labels)
    if loaded.task.kind != trained.kind or strange:
        what = (
            f"labels the model does not know: {', '.join(sorted(strange))}" if strange else f"kind {loaded.task.kind}"
        )
        raise UserError(f"task {loaded.task.name} does not fit the model: {what}")
    task = replace(loaded.task, labels=trained.labels, range=trained.range)
    return replace(loaded, task=task, splits={name: replace(data, task=task) for name, data in loaded.splits.items()})


def load_predictor(path: Path, device: str) -> Predictor:
    """Load the model meant by a path, onto a device by name."""
    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UserError(f'--device "{device}": write auto, cpu, cuda or mps')
    return Predictor(load_model(find_model(path)), pick_device(Machine(device=device)))  # type: ignore[arg-type]


def _write_run(plan: Plan, trained: tuple[TrainedModel, ...]) -> Run:
    """Write the run folder: the recipe, the scores, and the way to each model."""
    folder = plan.recipe.output.path / plan.recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(plan.recipe.to_yaml(), encoding="utf-8")
    guesses = majority_scores(plan)
    facts: dict[str, Any] = {"majority": guesses, "models": {}}
    for model in trained:
        way = os.path.relpath(model.folder, folder)
        facts["models"][model.name] = {"folder": way, "scores": model.scores, "seconds": model.seconds}
        _point(folder / "models" / model.name, Path(os.path.relpath(model.folder, folder / "models")))
    write_json(folder / "run.json", facts)
    tasks = {name: loaded.task for name, loaded in plan.loaded.items()}
    return Run(folder, trained, guesses, tasks)


def majority_scores(plan: Plan) -> Scores:
    """Score the guess that ignores the text, as the floor every model must beat."""
    scores: Scores = {}
    for name, loaded in plan.loaded.items():
        train = _gold(plan.loaded[loaded.task.head], "train")
        for split in loaded.splits:
            if split.startswith("dev") and (guess := majority(loaded.task, train, _gold(loaded, split))):
                scores[f"{name}/{split}"] = guess
    return scores


def _gold(loaded: LoadedTask, split: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    batches = [gold_of(batch, loaded.task) for batch in loaded.splits[split].batches()]
    return np.concatenate(batches).astype(np.float64)


def pick_models(plan: Plan, names: tuple[str, ...]) -> tuple[ModelPlan, ...]:
    """Return the models of a plan with these names, or all."""
    known = {model.name: model for model in plan.models}
    for name in names:
        if name not in known:
            raise UserError(f'this recipe trains no model "{name}"; {nearest(name, known)}')
    return tuple(known[name] for name in names) if names else plan.models


def writable(folder: Path) -> None:
    """Make sure results can be kept before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "there is a file of this name" if error.errno in (EEXIST, ENOTDIR) else error.strerror
        raise UserError(f"output.folder: {folder} cannot be made: {what} → name another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"output.folder: nothing may be written to {folder} → name another folder")


def write_json(path: Path, values: Any) -> None:
    """Write JSON, whole or not at all."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    building.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    building.replace(path)


def _point(link: Path, target: Path) -> None:
    """Let a run folder point at a model; where links are not allowed, run.json still says where it is."""
    try:
        if link.is_symlink():
            link.unlink()
        link.symlink_to(target, target_is_directory=True)
    except OSError as error:
        log.info("no link %s: %s", link, error)


def _numbers(event: Report | Evaluated | Fitted) -> dict[str, float]:
    """Return what a tracker should draw."""
    if isinstance(event, Report):
        parts = {f"loss/{name}": value for name, value in event.parts.items()}
        return {"loss": event.loss, "rate": event.rate, "rows_per_second": event.rows_per_second, **parts}
    if isinstance(event, Fitted):
        return {"best_step": float(event.best_step)}
    flat = {f"{place}/{metric}": value for place, values in event.scores.items() for metric, value in values.items()}
    return {"dev": event.score, **flat}
