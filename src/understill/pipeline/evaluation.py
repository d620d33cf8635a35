"""Evaluation: saved models, models in training and the majority guess, scored on dev sets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.data.tokens import Tokens
from understill.errors import UserError
from understill.evaluate.metrics import majority, primary, score
from understill.evaluate.predict import kept_at, predict, save_predictions
from understill.events import Scores, Watch, silent
from understill.inference.predictor import refuse_no_numbers
from understill.models.folder import ModelFolder, load_model
from understill.models.multitask import MultiTaskModel
from understill.pipeline.dataloader import Tokeniser, tokeniser_of
from understill.pipeline.plan.parts import ModelPlan, Plan
from understill.pipeline.recipe_data import as_trained, read_labelled
from understill.recipe import Recipe
from understill.tasks import Task
from understill.train.device import pick_device
from understill.train.world import World

log = logging.getLogger(__name__)


def dev_score(
    network: MultiTaskModel, model: ModelPlan, dev: Mapping[str, Tokens], batch: int, world: World
) -> tuple[float, Scores]:
    """Score a model in training on each task's first dev set; their mean decides which weights are kept.

    Several processes share the rows, and the first one scores what all of them answer.
    """
    scores: Scores = {}
    for name, loaded in model.own.items():
        data, tokens = loaded.splits["dev"], dev[name]
        values = _predict_shared(network, tokens, loaded.task, batch, world)
        if world.leads:
            gold = np.asarray(tokens.gold, dtype=np.float64)
            scores[data.place] = score(loaded.task, gold, values, grouping(data))
    scores = world.share(scores)
    return float(np.mean([primary(task, scores[f"{task.name}/dev"]) for task in model.tasks])), scores


def _predict_shared(
    network: MultiTaskModel, tokens: Tokens, task: Task, batch: int, world: World
) -> NDArray[np.float64]:
    """Return the predictions of all rows, of which each process makes its share."""
    if world.size == 1:
        return predict(network, tokens, task, batch).values
    parts = world.gather(predict(network, tokens.take(_share(tokens, world.rank, world.size)), task, batch).values)
    values = np.empty((len(tokens), *parts[0].shape[1:]), parts[0].dtype)
    for rank, part in enumerate(parts):
        values[_share(tokens, rank, world.size)] = part
    return values


def _share(tokens: Tokens, rank: int, size: int) -> NDArray[np.int64]:
    return np.arange(rank, len(tokens), size)


def score_model(
    folder: ModelFolder,
    tasks: tuple[LoadedTask, ...],
    tokens: Tokeniser,
    recipe: Recipe,
    keep: Path | None = None,
    kind: str = "dev",
) -> Scores:
    """Score a saved model on every dev (or test) set, keeping each row's prediction under `keep`."""
    scores: Scores = {}
    network = folder.model.to(pick_device(recipe.machine))
    for data in (data for loaded in tasks for data in loaded.splits.values() if data.split.startswith(kind)):
        rows = tokens(data)
        predictions = predict(network, rows, data.task, recipe.evaluation.batch)
        refuse_no_numbers(str(folder.path), data.place, predictions)
        if keep:
            save_predictions(kept_at(keep, data.place), data, predictions)
        gold = np.asarray(rows.gold, dtype=np.float64)
        if measured := score(data.task, gold, predictions.values, grouping(data)):
            scores[data.place] = measured
        else:
            kept = f"; its predictions are kept in {keep}" if keep else ""
            lacks = "labels" if np.isnan(gold).all() else "query with both a right and a wrong candidate"
            log.warning("%s has no %s, so it has no score%s", data.place, lacks, kept)
    return scores


def evaluate(
    path: Path, recipe: Recipe, keep: Path | None = None, watch: Watch = silent, kind: str = "dev"
) -> tuple[Scores, dict[str, Task]]:
    """Score a model folder on the dev (or test) sets of a recipe."""
    folder = load_model(path)
    own = {task.name: task for task in folder.tasks}
    loaded = read_labelled(recipe, watch)
    tasks = tuple(as_trained(task, own[task.task.head]) for task in loaded.values() if task.task.head in own)
    if not tasks:
        raise UserError(f"the recipe has none of the model's tasks ({', '.join(own)})")
    if not any(split.startswith(kind) for task in tasks for split in task.splits):
        raise UserError(f"the recipe has no {kind} data of the model's tasks ({', '.join(own)})")
    scores = score_model(folder, tasks, tokeniser_of(folder, recipe, watch), recipe, keep, kind)
    return scores, {task.task.name: task.task for task in tasks}


def majority_scores(plan: Plan) -> Scores:
    """Score the guess that ignores the text, as the floor every model must beat."""
    scores: Scores = {}
    for loaded in plan.loaded.values():
        train = all_gold(plan.loaded[loaded.task.head].splits["train"])
        for split, data in loaded.splits.items():
            if split.startswith("dev") and (guess := majority(data.task, train, all_gold(data), grouping(data))):
                scores[data.place] = guess
    return scores
