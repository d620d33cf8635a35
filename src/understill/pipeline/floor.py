"""The floor: each task's linear head on the frozen encoder, which every trained model should beat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understill.artifact import Artifact
from understill.data.encode import has_gold
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.data.tokens import Tokens
from understill.disk import write_json
from understill.evaluate.metrics import primary, score
from understill.evaluate.predict import features
from understill.events import Asking, Scores, Watch, silent
from understill.models.encoder import identity, load_tokenizer
from understill.models.multitask import MultiTaskModel, new_model
from understill.models.words import read_config
from understill.pipeline.plan import ModelPlan, Plan, Start, cache_folder, dev_sets, max_length
from understill.pipeline.tokenising import Tokeniser
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.runtime.answers import Predictions
from understill.tasks import Task
from understill.train.device import pick_device
from understill.train.probe import MOST, Probe, fit_probe

log = logging.getLogger(__name__)

#: Goes up whenever the same encoder and data would give other scores.
VERSION = 1
#: What the weights may cost; training rows that were held out decide.
DECAYS = (0.001, 0.01, 0.1)
FOLDS = 5
SCORES = "scores.json"
#: Up to so many training rows, every fold is held out in turn; of more, one is enough.
FEW = 2_000
#: Pooling that suits a linear head on any encoder, whether or not its own pooler was trained.
POOLING: Literal["normalised"] = "normalised"

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ProbePlan:
    """One task's linear probe, and where its scores are kept."""

    task: LoadedTask
    dev: tuple[tuple[LoadedTask, str], ...]
    artifact: Artifact


@dataclass(frozen=True)
class FloorPlan:
    """The linear probes of a plan, all on one encoder."""

    plan: Plan
    start: Start
    lengths: Mapping[str, int]  # tokens read of each task's rows
    probes: tuple[ProbePlan, ...]


def plan_floor(plan: Plan, identities: dict[str, dict[str, str]]) -> FloorPlan | None:
    """Say which probes a plan has; None without a pretrained encoder. `identities` remembers what encoders hold."""
    model = _on_pretrained(plan)
    if model is None:
        return None
    start, recipe = _beginning(model), plan.recipe
    names = dict.fromkeys(task.name for each in plan.models if each.role != "teacher" for task in each.tasks)
    lengths = {name: max_length(recipe, model.settings, name) for name in names}
    try:
        encoder = identities.setdefault(start.place, identities.get(start.place) or identity(start.place))
    except OSError as error:
        log.warning("there is no linear probe: encoder %s cannot be read (%s)", start.name, error)
        return None
    probes = []
    for name in names:
        task, dev = plan.loaded[name], tuple(dev_sets(plan.loaded, name))
        facts = _facts(task, dev, lengths[name], encoder)
        probes.append(ProbePlan(task, dev, Artifact("probe", name, facts, recipe.output.path / "artifacts")))
    return FloorPlan(plan, start, lengths, tuple(probes))


def _on_pretrained(plan: Plan) -> ModelPlan | None:
    """Return the student, or where it is a network over words, the first teacher that is not."""
    models = [model for roles in (("student", "model"), ("teacher",)) for model in plan.models if model.role in roles]
    return next((model for model in models if _pretrained(_beginning(model))), None)


def _beginning(model: ModelPlan) -> Start:
    """Return where the first of the models begins that a model goes on from."""
    start = model.start
    while start.model:
        start = start.model.start
    return start


def _pretrained(start: Start) -> bool:
    return not start.words and read_config(Path(start.place)) is None


def _facts(
    task: LoadedTask, dev: tuple[tuple[LoadedTask, str], ...], length: int, encoder: Mapping[str, str]
) -> dict[str, Any]:
    """Name everything that decides the scores of a probe."""
    return {
        "stage": "probe",
        "version": VERSION,
        "encoder": encoder,
        "pooling": POOLING,
        "max_length": length,
        "task": task.task.to_dict(),
        "train": task.splits["train"].fingerprint,
        "dev": {
            f"{each.task.name}/{split}": [each.task.to_dict(), each.splits[split].fingerprint] for each, split in dev
        },
    }


# Scores ---------------------------------------------------------------------------------------------------------------


def probe_floor(floor: FloorPlan, watch: Watch = silent) -> None:
    """Score the probes of a plan on dev, each once; whatever goes wrong with one, the run is whole without it."""
    reader = FrozenEncoder(floor, watch)
    for probe in floor.probes:
        try:
            with probe.artifact.exclusive(f"the linear probe of {probe.task.task.name}", watch):
                if not probe.artifact.sound():
                    scores = probe_scores(probe, reader)
                    with probe.artifact.build() as part:
                        write_json(part / SCORES, scores)
        except Exception as error:
            log.warning("%s has no linear probe: %s", probe.task.task.name, error)
            log.info("where it happened", exc_info=True)


def floor_done(floor: FloorPlan) -> bool:
    """Tell whether all probes of a plan have their scores."""
    return all(probe.artifact.sound() for probe in floor.probes)


def floor_scores(floor: FloorPlan) -> Scores:
    """Return the scores of the probes of a plan, of those that have any."""
    return {place: values for probe in floor.probes for place, values in (probe.artifact.read(SCORES) or {}).items()}


class FrozenEncoder:
    """The encoder as it comes, at full depth, loaded when the first row is read."""

    def __init__(self, floor: FloorPlan, watch: Watch) -> None:
        self.floor, self.watch = floor, watch

    @cached_property
    def tokens(self) -> Tokeniser:
        """What turns its rows into tokens."""
        start = self.floor.start
        tokenizer = load_tokenizer(start.name, start.place)
        return Tokeniser(tokenizer, self.floor.lengths, cache_folder(self.floor.plan.recipe), self.watch)

    @cached_property
    def network(self) -> MultiTaskModel:
        """The encoder with a head for each task, of which only what they read counts; pairs are read apart."""
        start, tasks = self.floor.start, [probe.task.task for probe in self.floor.probes]
        spec = EncoderSpec(name=start.name, pooling=POOLING, max_length=max(self.floor.lengths.values()))
        network = new_model(spec, HeadsSpec(pairs="siamese"), tasks, seed=0, source=start.place)
        return network.eval().to(pick_device(self.floor.plan.recipe.machine))

    def read(self, tokens: Tokens, task: Task, what: str) -> Floats:
        """Return what the head of a task reads of each row, [rows, features]."""
        batch = self.floor.plan.recipe.evaluation.batch
        return features(self.network, tokens, task, batch, self._progress(what, len(tokens)))

    def _progress(self, what: str, total: int) -> Callable[[int], None]:
        done = 0

        def progress(rows: int) -> None:
            nonlocal done
            done += rows
            self.watch(Asking("linear probe", what, done, total))

        return progress


def probe_scores(probe: ProbePlan, reader: FrozenEncoder) -> Scores:
    """Fit a task's probe to its training rows and score it on every dev set."""
    task, data = probe.task.task, probe.task.splits["train"]
    tokens, groups = reader.tokens(probe.task, "train"), grouping(data)
    rows = sample_rows(np.asarray(tokens.gold), groups)
    own = reader.read(tokens.take(rows), task, f"{task.name}/train")
    fitted = fit_best(own, np.asarray(tokens.gold)[rows], task, None if groups is None else groups[rows])
    scores: Scores = {}
    for each, split in probe.dev:
        tokens, place = reader.tokens(each, split), f"{each.task.name}/{split}"
        values = answers(fitted, reader.read(tokens, task, place), task)
        measured = score(each.task, np.asarray(tokens.gold, np.float64), values, grouping(each.splits[split]))
        if measured:
            scores[place] = measured
    return scores


def answers(probe: Probe, own: Floats, task: Task) -> NDArray[np.float64]:
    """Return what a probe says of rows: classes, or scores within the task's range."""
    values = Predictions(task, probe(own)).values
    return np.clip(values, *task.range) if task.range else values


def sample_rows(gold: Floats, groups: Ints | None) -> Ints:
    """Draw the training rows of a probe, in random order; the candidates of a query stay together."""
    units = np.arange(len(gold)) if groups is None else groups
    turn = np.random.default_rng(0).permutation(int(units.max(initial=-1)) + 1)[units]
    order = np.argsort(turn, kind="stable")
    return order[has_gold(gold[order])][:MOST]


def fit_best(own: Floats, gold: Floats, task: Task, groups: Ints | None = None) -> Probe:
    """Fit a probe with the decay that does best on training rows it has not seen."""
    units = np.arange(len(gold)) if groups is None else groups
    fold = units % FOLDS
    if len(np.unique(fold)) < FOLDS:
        return fit_probe(own, gold, task, DECAYS[1])
    held = fold < (FOLDS if len(gold) <= FEW else 1)

    def unseen(decay: float) -> float:
        values = np.full(gold.shape, np.nan)
        for rows in _parts(fold, held):
            values[rows] = answers(fit_probe(own[~rows], gold[~rows], task, decay), own[rows], task)
        queries = None if groups is None else np.unique(groups[held], return_inverse=True)[1]
        measured = score(task, gold[held].astype(np.float64), values[held], queries)
        return primary(task, measured) if measured else -np.inf

    return fit_probe(own, gold, task, max(DECAYS, key=unseen))


def _parts(fold: Ints, held: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    for number in np.unique(fold[held]):
        yield fold == number
