"""About how long a plan will take: from the sizes of its models, or from a few real steps of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from understill.data.batch import Rows, Stream, assemble, padded, sizes_on
from understill.data.encode import texts_of
from understill.data.groups import grouping, teaching
from understill.data.language import warn_of_language
from understill.data.sampling import apportion, shares
from understill.data.tokens import Tokens, encode
from understill.errors import counted
from understill.events import Checking, Watch, silent
from understill.losses.fused import make_objective
from understill.models.encoder import build_encoder, load_config, load_tokenizer
from understill.models.memory import give_back, out_of_memory
from understill.models.multitask import new_model
from understill.models.transformer import max_tokens
from understill.models.words import WordsConfig
from understill.pipeline.hyperparameter_search import foreseen
from understill.pipeline.plan.parts import ModelPlan, Plan, Study, Wanted, Words, max_length, parts_of
from understill.pipeline.vocabularies import SIZE, make_words
from understill.recipe.schema import Machine
from understill.train.device import pick_device, pick_precision, set_threads
from understill.train.fit import times_due
from understill.train.loop import total_steps
from understill.train.probe import MOST

log = logging.getLogger(__name__)

SAMPLE = 256
#: From this share of rows on, it is worth a warning that they are cut.
CUT = 0.02
TRIALS = 3
#: Seconds for which this machine's speed is measured, where models are not timed one by one.
CALIBRATION = 1.0
#: Seconds that a step takes however small the model is, about.
OVERHEAD = 0.003
#: What a row costs that is only read, as a share of one that is learnt from.
READING = 1 / 3
#: Words of a training row that no other row has, about.
_NEW = 4


@dataclass(frozen=True)
class Estimate:
    """The cost of training one model."""

    steps: int
    tokens: float  # mean padded length of a row
    seconds: float
    timed: bool = False  # by real steps of this model
    odds: float = 1.0  # that it is trained; less for what only the chosen among candidates go on to
    batch: int = 0
    inner: int = 0  # parameters that every token meets
    parameters: int = 0  # all of them


class Speed(NamedTuple):
    """What this machine takes, in seconds."""

    product: float  # of a step, for each token and each parameter that it meets
    parameter: float  # of the optimiser, for each parameter


class Work(NamedTuple):
    """What a model's training consists of."""

    steps: int
    draws: NDArray[np.int64]  # [tasks], units of an epoch
    many: NDArray[np.int64]  # [tasks], rows of a unit
    length: int  # of a padded row


def estimate(study: Study, watch: Watch = silent, *, timed: bool = False) -> dict[str, Estimate]:
    """Estimate the time of each model that is not trained yet, by its size or by real steps, which leave no trace."""
    missing = [wanted for wanted in study.models if not wanted.model.done]
    estimates: dict[Any, Estimate] = {}
    times = {}
    for number, (plan, model, title) in enumerate(missing):
        watch(Checking(f"{'timing' if timed else 'estimating'} {title}", number, len(missing)))
        # Folds, seeds and fine-tuned students take as long as each other; one of them is looked at.
        alone, fold = model.distillation is None, bool(model.fold)
        rows = tuple(model.rows.values())
        alike = (model.settings.model_dump_json(), model.tasks, alone, fold, model.augmented, rows)
        if alike not in estimates:
            choice, times_as_long = foreseen(model) if model.settings.training.lr == "auto" else (None, 1.0)
            chosen = replace(model, settings=choice.settings) if choice else model
            work, step = _timed(plan, chosen) if timed else _rough(plan, chosen)
            read = _rows_read(chosen, work.steps, tried=bool(choice and choice.trial))
            passes = work.steps * times_as_long + read * READING / chosen.settings.training.batch
            inner, whole = _parameters(plan, chosen)
            sizes = {"batch": chosen.settings.training.batch, "inner": inner, "parameters": whole}
            estimates[alike] = Estimate(work.steps, float(work.length), step * passes, timed, **sizes)
        times[title] = replace(estimates[alike], odds=model.odds)
    _warn_of_cuts(missing)
    return times


def _warn_of_cuts(models: Sequence[Wanted]) -> None:
    """Warn of each task of which too many rows are longer than a model reads, and say what raises that."""
    least: dict[str, tuple[int, Wanted]] = {}
    for each in models:
        for task in each.model.tasks:
            length = max_length(each.plan.recipe, each.model.settings, task.name)
            least[task.name] = min(least.get(task.name, (length, each)), (length, each), key=lambda one: one[0])
    for name, (length, (_, model, _)) in least.items():
        rows, begin = _texts(model, name), model.start.root
        long = [row for row in rows if sum(len(text.encode("utf-8", "replace")) for text in _as_pair(row)) > length]
        if not long:
            continue
        if words := _uncounted(model):
            cut = sum(sum(len(text.split()) for text in _as_pair(row)) > length for row in long)
        else:
            longer = encode(long, load_tokenizer(begin.name, begin.place), length + 1)
            cut = int((longer.lengths > length).sum())
        if cut < CUT * len(rows):
            continue
        limit = None if words else max_tokens(load_config(begin.name, begin.place))
        fix = f"raise tasks.{name}.max_length" + (f", to at most {limit}" if limit else "")
        what = f"{cut:,} of {counted(len(rows), 'row')} looked at are cut at {length} tokens, which is all that is read"
        log.warning("%s: %s → %s", name, what, "name an encoder that reads more" if limit == length else fix)


def _rows_read(model: ModelPlan, steps: int, tried: bool) -> float:
    """Count the rows that are read without being learnt from: looks at dev, and what probes are fitted to."""
    training, train = model.settings.training, sum(model.rows.values())
    dev = sum(task.splits["dev"].rows for task in model.scored)
    looks = times_due(training.evaluate, steps, max(1, train // training.batch)) + 1  # and the saved model's
    probes = [training.start in ("probe", "fitted", "contrastive"), tried, model.role in ("model", "student")]
    return looks * dev + sum(probes) * min(train, MOST)


def _rough(plan: Plan, model: ModelPlan) -> tuple[Work, float]:
    """Compute the seconds of a step from tokens and parameters; no weights are loaded."""
    machine, training = plan.recipe.machine, model.settings.training
    work = _work(plan, model, [_lengths(plan, model, task.name) for task in model.tasks])
    rows = training.batch * float(np.average(work.many, weights=work.draws))
    inner, whole = _parameters(plan, model)
    speed = _speed(machine, pick_precision(training.precision, pick_device(machine)))
    return work, OVERHEAD + rows * work.length * inner * speed.product + whole * speed.parameter


@cache
def _speed(machine: Machine, precision: str) -> Speed:
    """Time the steps of two layers of a transformer, and what its optimiser takes."""
    set_threads(machine)
    device = pick_device(machine)
    rows, length, width = (128, 128, 384) if device == "cuda" else (32, 32, 384)
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, activation="gelu", batch_first=True)
    network = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device).train()
    parameters = sum(each.numel() for each in network.parameters())
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.0, fused=True)
    states = torch.randn(rows, length, width, device=device)

    def step() -> None:
        with _autocast(device, precision):
            network(states).mean().backward()

    whole, update = _quickest(step, device, CALIBRATION), _quickest(optimizer.step, device, CALIBRATION / 4)
    return Speed(whole / (rows * length * parameters), update / parameters)


def _quickest(step: Callable[[], Any], device: str, seconds: float) -> float:
    """Return what a step takes until the device is done, the quickest of as many as there is time for."""
    times: list[float] = []
    while len(times) < TRIALS or sum(times) < seconds:
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def _autocast(device: str, precision: str) -> torch.autocast:
    kind = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device, kind, enabled=precision != "fp32")


def _parameters(plan: Plan, model: ModelPlan) -> tuple[int, int]:
    """Count the parameters that a token meets, and all of them; those of heads are few."""
    spec, begin, words = model.settings.encoder, model.start.root, _uncounted(model)
    config = _words(plan, words) if words else load_config(begin.name, begin.place)
    if spec.layers:
        config.num_hidden_layers = spec.layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: spec.layers]
    with torch.device("meta"):
        network = build_encoder(config, spec.pooling)
    whole = sum(each.numel() for each in network.parameters())
    tables = sum(part.weight.numel() for part in network.modules() if isinstance(part, nn.Embedding))
    return whole - tables, whole


def _words(plan: Plan, words: Words) -> PreTrainedConfig:
    """Describe a network over words whose vocabulary is not counted yet."""
    spec = words.spec
    train = sum(plan.loaded[task].splits["train"].rows for task in words.tasks)
    return WordsConfig(
        words.network,
        vocab_size=min(spec.vocabulary, train * _NEW),
        size=spec.size or SIZE,
        hidden=spec.hidden,
        channels=spec.channels,
        options=dict(spec.options),
    )


def _uncounted(model: ModelPlan) -> Words | None:
    """Return the words of a network that has none yet; to count them takes a while."""
    words = model.start.root.words
    return words if words and not words.artifact.sound() else None


def _lengths(plan: Plan, model: ModelPlan, name: str) -> NDArray[Any]:
    """Return the lengths of some rows of a task; words stand for tokens where there is no tokeniser yet."""
    if _uncounted(model):
        words = [sum(len(text.split()) for text in _as_pair(row)) for row in _texts(model, name)]
        return np.minimum(np.maximum(words, 1), max_length(plan.recipe, model.settings, name))
    begin = model.start.root
    return _sample(plan, model, name, load_tokenizer(begin.name, begin.place)).lengths


def _texts(model: ModelPlan, name: str) -> list[Any]:
    """Return some texts, or pairs, of a task, spread over its file."""
    table = model.own[name].splits[model.split(name)].table()
    places = np.linspace(0, table.num_rows - 1, min(SAMPLE, table.num_rows)).astype(np.int64)
    # Row by row, since taking them all at once would first put whole columns of a mapped file into memory.
    return [text for place in places for text in texts_of(table.slice(int(place), 1), swapped=False)]


def _sample(plan: Plan, model: ModelPlan, name: str, tokenizer: PreTrainedTokenizerFast) -> Tokens:
    """Tokenise some rows of a task, and warn where that shows that the encoder does not know their language."""
    rows, begin = _texts(model, name), model.start.root
    if not begin.words:  # which are made of these texts
        warn_of_language(begin.name, name, [text for row in rows for text in _as_pair(row)], tokenizer)
    return encode(rows, tokenizer, max_length(plan.recipe, model.settings, name))


def _as_pair(row: str | tuple[str, str]) -> tuple[str, ...]:
    return (row,) if isinstance(row, str) else row


def _work(plan: Plan, model: ModelPlan, lengths: list[NDArray[Any]]) -> Work:
    """Count steps and draws as the loop does, of rows whose lengths are like these."""
    recipe, training = plan.recipe, model.settings.training
    parts = parts_of(model.tasks, plan.loaded, model.settings, model.unlabelled, model.augmented)
    if model.fold:
        parts = [part._replace(units=part.units - part.units // model.fold.count) for part in parts]
    everything = shares(parts, training.batch, training.batches, training.sampling).draws
    steps = total_steps(training, int(everything.sum()) // training.batch)
    # Unlabelled rows are taken to be as long as the labelled ones of their task.
    draws = np.bincount([part.task for part in parts], everything, len(model.tasks)).astype(np.int64)
    # Grouping by length makes a batch about as long as its rows, so the mean length is what a step sees.
    many = np.array([_rows_of_a_unit(plan, task.name) for task in model.tasks])
    length = float(np.average([each.mean() for each in lengths], weights=draws * many))
    longest = max(max_length(recipe, model.settings, task.name) for task in model.tasks)
    sizes = sizes_on(pick_device(recipe.machine), longest, light=model.settings.encoder.own)
    return Work(steps, draws, many, padded(int(np.ceil(length)), sizes))


def _timed(plan: Plan, model: ModelPlan) -> tuple[Work, float]:
    """Take a few real steps, and return the seconds of one."""
    training, begin = model.settings.training, model.start.root
    if begin.words:
        make_words(plan, begin.words)
    tokenizer = load_tokenizer(begin.name, begin.place)
    mine = [_sample(plan, model, task.name, tokenizer) for task in model.tasks]
    work = _work(plan, model, [tokens.lengths for tokens in mine])
    piece = min(training.micro_batch or training.batch, training.batch)
    while True:
        task = np.repeat(np.arange(len(mine)), apportion(work.draws.astype(np.float64), max(piece, len(mine))))[:piece]
        task = np.repeat(task, work.many[task])
        row = np.array([number % len(mine[each]) for number, each in enumerate(task)])
        rows = Rows(task, np.zeros_like(task), row, work.length, np.arange(len(row)))
        try:
            return work, _step_seconds(plan, model, mine, rows) * training.batch / piece
        except RuntimeError as error:
            if piece == 1 or not out_of_memory(error):
                raise
        give_back()
        piece = (piece + 1) // 2  # as training does


def _rows_of_a_unit(plan: Plan, name: str) -> int:
    """Return about how many rows are drawn together: in a ranking, the candidates of a query."""
    data = plan.loaded[name].splits["train"]
    groups = grouping(data)
    if groups is None:
        return 1
    sizes = np.unique(groups[teaching(data, groups)], return_counts=True)[1]
    return round(float(np.minimum(sizes, plan.recipe.tasks[name].candidates or sizes.max()).mean()))


def _step_seconds(plan: Plan, model: ModelPlan, tokens: list[Tokens], rows: Rows) -> float:
    """Return how long a step over these rows takes."""
    device, settings, begin = pick_device(plan.recipe.machine), model.settings, model.start.root
    set_threads(plan.recipe.machine)
    spec = settings.encoder.model_copy(update={"name": begin.name})
    network = new_model(spec, settings.heads, model.tasks, model.seed, begin.place).to(device).train()
    objective = make_objective(model.tasks, settings.heads.regression).to(device)
    streams = [Stream(number, [each]) for number, each in enumerate(tokens)]
    batch = assemble(streams, rows, np.ones(len(tokens)), 0).to(device)
    # Some sampled rows may be longer than the mean; cut, they take the time of the mean.
    batch = replace(batch, lengths=batch.lengths.clamp(max=rows.length))
    precision = pick_precision(settings.training.precision, device)

    def step() -> None:
        with _autocast(device, precision):
            logits = network(batch)
        objective(logits, batch, len(batch)).total.backward()
        network.zero_grad()

    return _quickest(step, device, 0.0)
