"""About how long a plan will take, from a few real steps on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from understill.data.batch import Rows, Stream, assemble, padded, sizes_on
from understill.data.groups import grouping, teaching
from understill.data.sampling import apportion, shares
from understill.data.tokens import Tokens, encode
from understill.models.encoder import load_tokenizer
from understill.models.multitask import new_model
from understill.pipeline import ModelPlan, Plan, Start, Study, make_words, max_length, parts_of
from understill.train.device import pick_device, pick_precision
from understill.train.loop import total_steps
from understill.train.objective import Objective

SAMPLE = 256
TRIALS = 3


@dataclass(frozen=True)
class Estimate:
    """What training one model comes to."""

    steps: int
    tokens: float  # mean padded length of a row
    seconds: float


def estimate(study: Study) -> dict[str, Estimate]:
    """Time a few steps of every model that is not trained yet; nothing is kept of them."""
    seconds: dict[Any, Estimate] = {}
    found = {}
    for plan, model, title in study.models:
        if model.done:
            continue
        # Folds, seeds and fine-tuned students take as long as each other; one of them is timed.
        lessons, fold = model.lessons is None, bool(model.fold)
        rows = tuple(plan.loaded[task.name].splits[model.split(task.name)].rows for task in model.tasks)
        kind = (model.settings.model_dump_json(), model.tasks, lessons, fold, model.augmented, rows)
        if kind not in seconds:
            seconds[kind] = _estimate(plan, model)
        found[title] = seconds[kind]
    return found


def _sample(plan: Plan, model: ModelPlan, name: str, tokenizer: object) -> Tokens:
    """Tokenise some rows of a task, spread over its file."""
    table = plan.loaded[name].splits[model.split(name)].table()
    places = np.linspace(0, table.num_rows - 1, min(SAMPLE, table.num_rows)).astype(np.int64)
    # Row by row, since taking them all at once would first put whole columns of a mapped file into memory.
    rows = [table.slice(int(place), 1).to_pylist()[0] for place in places]
    texts = [(row["text1"], row["text2"]) if "text2" in row else row["text1"] for row in rows]
    return encode(texts, tokenizer, max_length(plan.recipe, model.settings, name))  # type: ignore[arg-type]


def _estimate(plan: Plan, model: ModelPlan) -> Estimate:
    recipe, training = plan.recipe, model.settings.training
    begin = _begin(model)
    if begin.words:
        make_words(plan, begin.words)
    tokenizer = load_tokenizer(begin.name, begin.place)
    unlabelled = model.lessons.unlabelled if model.lessons else {}
    parts = parts_of(model.tasks, plan.loaded, model.settings, unlabelled, model.augmented)
    if model.fold:
        parts = [part._replace(units=part.units - part.units // model.fold.count) for part in parts]
    everything = shares(parts, training.batch, training.batches, training.sampling).draws
    steps = total_steps(training, int(everything.sum()) // training.batch)
    # Unlabelled rows are taken to be as long as the labelled ones of their task.
    draws = np.bincount([part.task for part in parts], everything, len(model.tasks)).astype(np.int64)
    mine = [_sample(plan, model, task.name, tokenizer) for task in model.tasks]
    # Grouping by length makes a batch about as long as its rows, so the mean length is what a step sees.
    many = np.array([_rows_of_a_unit(plan, task.name) for task in model.tasks])
    length = float(np.average([tokens.lengths.mean() for tokens in mine], weights=draws * many))
    longest = max(max_length(recipe, model.settings, task.name) for task in model.tasks)
    sizes = sizes_on(pick_device(recipe.machine), longest, light=model.settings.encoder.own)
    size = padded(int(np.ceil(length)), sizes)
    piece = min(training.micro_batch or training.batch, training.batch)
    task = np.repeat(np.arange(len(mine)), apportion(draws.astype(np.float64), max(piece, len(mine))))[:piece]
    task = np.repeat(task, many[task])
    row = np.array([number % len(mine[each]) for number, each in enumerate(task)])
    seconds = _step_seconds(plan, model, mine, Rows(task, np.zeros_like(task), row, size, np.arange(len(row))))
    return Estimate(steps, float(size), seconds * training.batch / piece * steps)


def _rows_of_a_unit(plan: Plan, name: str) -> int:
    """Return about how many rows are drawn together: in a ranking, the candidates of a query."""
    data = plan.loaded[name].splits["train"]
    groups = grouping(data)
    if groups is None:
        return 1
    sizes = np.unique(groups[teaching(data, groups)], return_counts=True)[1]
    return round(float(np.minimum(sizes, plan.recipe.tasks[name].candidates or sizes.max()).mean()))


def _begin(model: ModelPlan) -> Start:
    """Return where the encoder comes from that a model goes back to."""
    while model.start.model:
        model = model.start.model
    return model.start


def _step_seconds(plan: Plan, model: ModelPlan, tokens: list[Tokens], rows: Rows) -> float:
    recipe = plan.recipe
    device = pick_device(recipe.machine)
    if recipe.machine.threads:
        torch.set_num_threads(recipe.machine.threads)
    settings = model.settings
    begin = _begin(model)
    spec = settings.encoder.model_copy(update={"name": begin.name})
    network = new_model(spec, settings.heads, model.tasks, model.seed, begin.place).to(device).train()
    objective = Objective(model.tasks, settings.heads.regression).to(device)
    streams = [Stream(number, [each]) for number, each in enumerate(tokens)]
    batch = assemble(streams, rows, np.ones(len(tokens)), 0).to(device)
    # Some sampled rows may be longer than the mean; cut, they take the time of the mean.
    batch = type(batch)(**{**vars(batch), "lengths": batch.lengths.clamp(max=rows.length)})
    half = pick_precision(settings.training.precision, device)
    times = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16 if half == "bf16" else torch.float16, enabled=half != "fp32"):
            logits = network(batch)
        objective(logits, batch, len(batch)).total.backward()
        network.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)
