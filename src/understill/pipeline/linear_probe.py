"""The linear probe: each task's linear head on the frozen encoder, a floor that every trained model should beat."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from understill.artifact import Artifact
from understill.atomic import write_json
from understill.data.encode import has_gold
from understill.data.groups import grouping
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens
from understill.evaluate.metrics import primary, score
from understill.evaluate.predict import features
from understill.events import Asking, Scores, Watch, counting, silent
from understill.inference.predictor import Predictions
from understill.models.encoder import identity, load_tokenizer
from understill.models.multitask import MultiTaskModel, new_model
from understill.models.words import read_config
from understill.pipeline.dataloader import Tokeniser
from understill.pipeline.plan.parts import Plan, Start, cache_folder, dev_sets, max_length
from understill.recipe.schema import EncoderSpec, HeadsSpec, Machine
from understill.tasks import Task
from understill.train.device import pick_device
from understill.train.interleave import beside_others
from understill.train.probe import MOST, Probe, fit_probe

log = logging.getLogger(__name__)

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

#: What says that an encoder is not here any more, which a run can end without.
_GONE = (FileNotFoundError, NotADirectoryError, PermissionError)


@dataclass(frozen=True)
class ProbePlan:
    """One task's linear probe, and where its scores are kept."""

    train: TaskData
    dev: tuple[TaskData, ...]
    artifact: Artifact


@dataclass(frozen=True)
class ProbesPlan:
    """The linear probes of a plan, all on one encoder."""

    plan: Plan
    start: Start
    lengths: Mapping[str, int]  # tokens read of each task's rows
    probes: tuple[ProbePlan, ...]

    def done(self) -> bool:
        """Tell whether all probes have their scores."""
        return all(probe.artifact.sound() for probe in self.probes)

    def scores(self) -> Scores:
        """Return the scores of the probes that have any."""
        return {place: values for probe in self.probes for place, values in (probe.artifact.read(SCORES) or {}).items()}


def plan_probes(plan: Plan) -> ProbesPlan | None:
    """Plan the probes of a run; None without a pretrained encoder."""
    # That of the student, or where it is a network over words, of the first teacher that is not.
    models = [model for roles in (("student", "model"), ("teacher",)) for model in plan.models if model.role in roles]
    model = next((model for model in models if _pretrained(model.start.root)), None)
    if model is None:
        return None
    start, recipe = model.start.root, plan.recipe
    names = dict.fromkeys(task.name for each in plan.models if each.role != "teacher" for task in each.tasks)
    lengths = {name: max_length(recipe, model.settings, name) for name in names}
    try:
        encoder = identity(start.place)
    except _GONE as error:
        log.warning("there is no linear probe: encoder %s cannot be read (%s)", start.name, error)
        return None
    probes = []
    for name in names:
        train, dev = plan.loaded[name].splits["train"], tuple(dev_sets(plan.loaded, name))
        facts = {
            "stage": "probe",
            "encoder": encoder,
            "pooling": POOLING,
            "max_length": lengths[name],
            "task": train.task.to_dict(),
            "train": train.fingerprint,
            "dev": {data.place: [data.task.to_dict(), data.fingerprint] for data in dev},
        }
        probes.append(ProbePlan(train, dev, Artifact("probe", name, facts, recipe.output.path / "artifacts")))
    return ProbesPlan(plan, start, lengths, tuple(probes))


def _pretrained(start: Start) -> bool:
    return not start.words and read_config(Path(start.place)) is None


# Scores ---------------------------------------------------------------------------------------------------------------


def fit_probes(plan: ProbesPlan, watch: Watch = silent) -> Generator[None]:
    """Score the probes of a plan on dev, each once; whatever an encoder does to one, the run is whole without it."""
    reader = FrozenEncoder(plan, watch)
    for probe in plan.probes:
        name = probe.train.task.name
        lock = yield from probe.artifact.acquire(f"the linear probe of {name}", watch)
        try:
            if not probe.artifact.sound():
                scores = yield from probe_scores(probe, reader)
                with probe.artifact.build() as part:
                    write_json(part / SCORES, scores)
        except (OSError, MemoryError):
            raise  # not the encoder's fault: the next run has the probe
        except Exception as error:
            if isinstance(cause := error.__cause__, OSError) and cause.errno and not isinstance(cause, _GONE):
                raise  # neither is a disk that fails
            log.warning("%s has no linear probe: %s", name, error)
            log.info("where it happened", exc_info=True)
        finally:
            lock.release()


def frozen_encoder(name: str, place: str, tasks: Sequence[Task], max_length: int, machine: Machine) -> MultiTaskModel:
    """Return an encoder as it comes, with a head for each task, of which only what they read counts."""
    spec = EncoderSpec(name=name, pooling=POOLING, max_length=max_length)
    network = new_model(spec, HeadsSpec(pairs="siamese"), tasks, seed=0, source=place)
    return network.eval().to(pick_device(machine))


class FrozenEncoder:
    """The encoder as it comes, at full depth, loaded when the first row is read."""

    def __init__(self, probes: ProbesPlan, watch: Watch) -> None:
        self.probes, self.recipe, self.watch = probes, probes.plan.recipe, watch

    @cached_property
    def tokens(self) -> Tokeniser:
        """What turns its rows into tokens."""
        start = self.probes.start
        tokenizer = load_tokenizer(start.name, start.place)
        return Tokeniser(tokenizer, self.probes.lengths, cache_folder(self.recipe), self.watch)

    @cached_property
    def network(self) -> MultiTaskModel:
        """The encoder with a head for each task; pairs are read apart."""
        start, tasks = self.probes.start, [probe.train.task for probe in self.probes.probes]
        return frozen_encoder(start.name, start.place, tasks, max(self.probes.lengths.values()), self.recipe.machine)

    def read(self, tokens: Tokens, task: Task, place: str) -> Floats:
        """Return what the head of a task reads of each row, [rows, features]."""
        progress = counting(self.watch, lambda rows: Asking("linear probe", place, rows, len(tokens)))
        return features(self.network, tokens, task, self.recipe.evaluation.batch, progress)


def probe_scores(probe: ProbePlan, reader: FrozenEncoder) -> Generator[None, None, Scores]:
    """Fit a task's probe to its training rows and score it on every dev set; others have their turns in between."""
    task, tokens, groups = probe.train.task, reader.tokens(probe.train), grouping(probe.train)
    rows = sample_rows(np.asarray(tokens.gold), groups)
    own, gold = reader.read(tokens.take(rows), task, probe.train.place), np.asarray(tokens.gold)[rows]
    queries = None if groups is None else groups[rows]
    fitted = yield from beside_others(lambda: fit_best(own, gold, task, queries), reader.recipe.machine)
    scores: Scores = {}
    for data in probe.dev:
        tokens = reader.tokens(data)
        values = answers(fitted, reader.read(tokens, task, data.place), task)
        if measured := score(data.task, np.asarray(tokens.gold, np.float64), values, grouping(data)):
            scores[data.place] = measured
        yield
    return scores


def answers(probe: Probe, own: Floats, task: Task) -> NDArray[np.float64]:
    """Return a probe's answers: classes, or scores within the task's range."""
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
        for rows in (fold == number for number in np.unique(fold[held])):
            values[rows] = answers(fit_probe(own[~rows], gold[~rows], task, decay), own[rows], task)
        queries = None if groups is None else np.unique(groups[held], return_inverse=True)[1]
        measured = score(task, gold[held].astype(np.float64), values[held], queries)
        return primary(task, measured) if measured else -np.inf

    return fit_probe(own, gold, task, max(DECAYS, key=unseen))
