"""Made-up tasks, tokens and batches for tests that need no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understill.data.batch import Batch, Stream
from understill.data.batches import Batches
from understill.data.taskdata import TaskData, Writer
from understill.data.tokens import Tokens
from understill.engines.local import run_stages
from understill.evaluate.predict import save_predictions
from understill.inference.predictor import Predictions
from understill.models.multitask import MultiTaskModel, new_model
from understill.pipeline.graph import stages_of
from understill.pipeline.plan.parts import Distillation, Plan
from understill.pipeline.soft_targets import join_targets
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task

MOOD = Task("mood", "classification", ("text",), "label", ("calm", "upset"))
TOPIC = Task("topic", "classification", ("one", "two"), "label", ("delivery", "money", "access"))
STARS = Task("stars", "regression", ("text",), "label", range=(1.0, 5.0))
TASKS = (MOOD, TOPIC, STARS)
ANSWER = Task("answer", "ranking", ("question", "answer"), "label", ("wrong", "right"))


def some_gold(task: Task, rows: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return gold that fits a task."""
    low, high = task.range or (0.0, 1.0)
    scores = (
        random.uniform(low, high, rows) if task.kind.name == "regression" else random.integers(0, task.outputs, rows)
    )
    return scores.astype(np.float32)


def some_tokens(task: Task, rows: int, seed: int = 0, longest: int = 12) -> Tokens:
    """Return rows of made-up tokens: [CLS] words [SEP], twice for a pair."""
    random = np.random.default_rng((seed, rows))
    lengths = random.integers(6, longest + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = random.integers(5, 150, offsets[-1]).astype(np.uint16)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = 2, 3
    second = (lengths // 2 if task.pair else lengths).astype(np.uint16)
    # What is to be learnt: the gold goes by the second token.
    gold = some_gold(task, 150, np.random.default_rng(len(task.name)))[ids[offsets[:-1] + 1]]
    return Tokens(Path("nowhere"), ids, offsets, second, gold, longest, 0)


def some_batches(tasks: tuple[Task, ...] = TASKS, rows: int = 40, batch: int = 8, **settings: Any) -> Batches:
    """Return training batches of made-up rows, each task with a few more than the last."""
    streams = [Stream(index, [some_tokens(task, rows + 7 * index)]) for index, task in enumerate(tasks)]
    return Batches(streams, **{"batch": batch, "seed": 0, "window": 2, "pad": 0, **settings})


def some_batch(rows: int = 6, tasks: tuple[Task, ...] = TASKS, seed: int = 0) -> Batch:
    """Return one batch in which the tasks take turns."""
    return some_batches(tasks, rows=max(8, rows), batch=rows, seed=seed)[0]


def wider(batch: Batch, length: int) -> Batch:
    """Return the same rows padded to more tokens."""
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    ids[:, : batch.ids.shape[1]] = batch.ids
    return replace(batch, ids=ids)


def some_model(
    folder: Path, tasks: tuple[Task, ...] = TASKS, *, dropout: float | None = None, seed: int = 0, **settings: Any
) -> MultiTaskModel:
    """Return a fresh model on a tiny encoder; `dropout` is that of encoder and heads alike."""
    heads = HeadsSpec(**({} if dropout is None else {"dropout": dropout}))
    return new_model(EncoderSpec(name=str(folder), max_length=32, dropout=dropout, **settings), heads, tasks, seed)


def liven(model: torch.nn.Module) -> None:
    """Give every weight a size at which rows differ; those of a fresh tiny encoder are nearly alike."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * (0.3 if parameter.ndim > 1 else 0.1))


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Tell whether two sets of weights are equal bit for bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def some_queries(sizes: Sequence[int], seed: int = 0, shuffled: bool = False) -> tuple[Tokens, NDArray[np.int64]]:
    """Return made-up candidates of queries of these sizes, one or two right, and the number of each one's query."""
    tokens = some_tokens(ANSWER, sum(sizes), seed)
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    gold = np.zeros(len(groups), np.float32)
    for query, size in enumerate(sizes):
        mine = np.flatnonzero(groups == query)
        # What is to be learnt: the right ones have the highest second tokens.
        order = mine[np.argsort(-tokens.ids[tokens.offsets[mine] + 1].astype(np.int64), kind="stable")]
        gold[order[: 1 + (size > 3 and random.random() < 0.5)]] = 1
    tokens = replace(tokens, gold=gold)
    return (chosen(tokens, order := random.permutation(len(groups))), groups[order]) if shuffled else (tokens, groups)


def padding_of(batch: Batch) -> float:
    """Return the share of a batch's cells that hold padding."""
    return 1.0 - float(batch.lengths.sum()) / batch.ids.numel()


def chosen(tokens: Tokens, rows: NDArray[Any]) -> Tokens:
    """Return some rows of tokens, in this order."""
    spans = [np.arange(tokens.offsets[row], tokens.offsets[row + 1]) for row in rows]
    offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
    return replace(
        tokens,
        ids=tokens.ids[np.concatenate(spans)],
        offsets=offsets,
        second=tokens.second[rows],
        gold=tokens.gold[rows],
    )


def joint_targets(
    plan: Plan, distillation: Distillation | None
) -> dict[tuple[str, str], dict[str, NDArray[np.float32]]]:
    """Do all that comes before a student's training, and return the joint answers of its teachers."""
    assert distillation
    stages = stages_of([plan], {model.folder: model.name for model in plan.all_models})
    run_stages(stages, [targets.folder.name for targets in distillation.targets], plan.recipe.machine)
    return join_targets(plan, distillation)


def keep_predictions(home: Path, task: Task, score: float) -> None:
    """Keep predictions of 100 rows with such an accuracy or correlation; every model is wrong on rows of its own."""
    rng = np.random.default_rng(list(str(home).encode()))
    data = home / f"{task.name}.arrow"
    home.mkdir(parents=True, exist_ok=True)
    writer, gold = Writer(data, task), np.arange(100) % 2.0
    right = rng.permutation(100) < round(100 * score)
    logits = np.stack([gold != right, gold == right], axis=1)
    if not task.labels:
        gold, noise = np.linspace(0, 5, 100), rng.normal(size=100)
        line = (gold - gold.mean()) / gold.std()
        noise -= noise.mean() + line * (line @ noise) / 100
        logits = (score * line + (1 - score**2) ** 0.5 * noise / noise.std())[:, None]
    for row, value in enumerate(gold):
        writer.add(f"{row:024d}", ["a"] * len(task.text), task.labels[int(value)] if task.labels else float(value))
    writer.close()
    predictions = Predictions(task, logits.astype(np.float32))
    save_predictions(
        home / "predictions" / f"{task.name}.dev.parquet", TaskData(task, "dev", data, "", 100), predictions
    )
