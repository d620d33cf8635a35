"""Timing: what a run's models cost beside each other, measured within a few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understill.bench.clock import Text
from understill.bench.efficiency import TimedModel, look, measure, of_folder
from understill.data.load import LoadedTask
from understill.models.folder import load_model
from understill.recipe import Recipe
from understill.report.facts import Measured, Timing
from understill.tasks import Task
from understill.tasks.metric import is_error
from understill.train.device import pick_device

#: About how many seconds measuring may take; the texts that are read at most, and at least.
BUDGET = 8.0
TEXTS, FEW = 256, 8
#: Texts read at once; rounds; single texts.
BATCH, ROUNDS, SINGLES = 32, 3, 20


def measure_models(
    models: Mapping[str, Mapping[str, Any]], loaded: Mapping[str, LoadedTask], recipe: Recipe
) -> Timing | None:
    """Measure the first model, its baseline and its largest teacher; None where they have no task in common."""
    chosen = _chosen(models)
    places = [place for place in next(iter(chosen.values()))["scores"] if place.endswith("/dev")]
    tasks = [place.split("/")[0] for place in places if all(place in model["scores"] for model in chosen.values())]
    if not tasks:
        return None
    task = loaded[tasks[0]].task
    texts = _texts(loaded[tasks[0]])
    candidates = [of_folder(name, load_model(model["folder"]), task.pair) for name, model in chosen.items()]
    device = pick_device(recipe.machine)
    texts = texts[: _affordable(candidates, texts, device)]
    results = measure(candidates, texts, device, batch=BATCH, rounds=ROUNDS, singles=SINGLES)
    scored = [loaded[name].task for name in tasks if not is_error(loaded[name].task.metrics[0])]
    means = [_mean(scored, model["scores"]) for model in chosen.values()]
    return Timing(
        models=tuple(map(Measured, results, means)),
        tasks=tuple(task.name for task in scored),
        task=task.name,
        texts=len(texts),
    )


def _chosen(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Choose the first model of each role that can be used: what the recipe is made for, its baseline, a teacher."""
    first: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, model in models.items():
        if model["role"] in ("student", "model", "baseline", "teacher"):
            first.setdefault(model["role"], (name, model))
    return dict(first.values())


def _texts(loaded: LoadedTask) -> list[Text]:
    table = loaded.splits["dev"].table().slice(0, TEXTS)
    first = table["text1"].to_pylist()
    return list(zip(first, table["text2"].to_pylist(), strict=True)) if loaded.task.pair else first


def _affordable(candidates: list[TimedModel], texts: list[Text], device: str) -> int:
    """Return how many texts can be read within the budget, from a look at a few."""
    seconds = sum(look(candidate, texts[:FEW], device, BATCH) for candidate in candidates)
    return max(FEW, min(len(texts), int(BUDGET / (seconds * (ROUNDS + 1)))))


def _mean(tasks: list[Task], scores: Mapping[str, Mapping[str, float]]) -> float:
    values = [scores[f"{task.name}/dev"][task.metrics[0]] for task in tasks]
    return sum(values) / len(values) if values else 0.0
