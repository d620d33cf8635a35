"""Teachers: whatever says something about rows, as one small interface, and the verdict on what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from transformers import PreTrainedTokenizerFast

from understill.data.groups import contested
from understill.data.taskdata import TaskData, source_rows, text_keys
from understill.data.tokens import Tokens, tokenise
from understill.errors import UserError, listed
from understill.evaluate.metrics import FUNCTIONS, majority, primary, score
from understill.evaluate.predict import Network, predict_all
from understill.models.folder import ModelFolder
from understill.runtime.answers import Predictions
from understill.tasks import Task

Progress = Callable[[int], None]
Floats = NDArray[np.float64]
Logits = NDArray[np.float32]

#: A correlation from here on means that the scores are about the right thing.
CORRELATED = 0.5


class Teacher(Protocol):
    """Something that gives logits for rows."""

    @property
    def name(self) -> str:
        """What the recipe calls it."""

    @property
    def digest(self) -> str:
        """The digest of everything that decides what it says."""

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return raw logits, [rows, outputs] in the order of the task's labels; scores on its scale for regression.

        A row of which it says nothing is NaN. `progress` is told how many rows were done since it was last called.
        """


# Labels --------------------------------------------------------------------------------------------------------------


def by_name(labels: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Find labels among names: as they are written, else without regard to case, blanks, hyphens and underscores."""
    found = {label: names.index(label) for label in labels if label in names}
    free = {number: bare(name) for number, name in enumerate(names) if number not in found.values()}
    rest = {label: bare(label) for label in labels if label not in found}
    known, asked = Counter(free.values()), Counter(rest.values())
    numbers = {bare: number for number, bare in free.items()}
    # Two names that only differ in this way could each be meant.
    return found | {label: numbers[bare] for label, bare in rest.items() if known[bare] == asked[bare] == 1}


def bare(name: str) -> str:
    """Return a name without what two writers of it may do differently."""
    return "".join(name.casefold().replace("-", " ").replace("_", " ").split())


def match_labels(teacher: str, outputs: Sequence[str], task: Task, given: Mapping[str, str]) -> list[int]:
    """Return which output of a teacher stands for each of the task's labels; `given` maps its names to the task's.

    Given names may also be "LABEL_0" or "0". Without them every output must have a label of the same name.
    """
    if given:
        places = {label: _number(key, outputs) for key, label in given.items()}
        whole = len(places) == len(given) and set(places) == set(task.labels)
        if whole and None not in places.values() and len(set(places.values())) == len(places):
            return [number for label in task.labels if (number := places[label]) is not None]
        why = "labels must name one of its labels for each of the task's"
    else:
        found = by_name(task.labels, outputs)
        if len(found) == len(task.labels) == len(outputs):
            return [found[label] for label in task.labels]
        why = "its labels are not those of the task"
    example = ", ".join(f"{name}: {label}" for name, label in zip(outputs, task.labels, strict=False))
    raise UserError(
        f"teacher {teacher}: {why}; it has {_some(outputs)}, {task.name} has {_some(task.labels)} "
        f"→ say which is which, for instance labels: {{{example}}}"
    )


def _number(key: str, outputs: Sequence[str]) -> int | None:
    numbers = {str(number): number for number in range(len(outputs))}
    numbers |= {f"LABEL_{number}": number for number in range(len(outputs))}
    return (numbers | {name: number for number, name in enumerate(outputs)}).get(key)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


# Networks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NetworkTeacher:
    """A network with its own tokeniser."""

    name: str
    digest: str
    network: Network
    tokenizer: PreTrainedTokenizerFast
    tasks: Mapping[str, Task]  # by name, as the network answers them
    lengths: Mapping[str, int]  # tokens it reads of each task's rows
    labels: Mapping[str, str]  # its labels to the task's; empty where they have the same names
    cache: Path
    batch: int

    def fit(self, task: Task) -> tuple[Task, list[int]]:
        """Return the task as the network answers it, and which of its outputs are the labels asked for."""
        own = self.tasks.get(task.head)
        if own is None:
            raise UserError(f"teacher {self.name}: it has no task {task.head}, only {listed(list(self.tasks), 'and')}")
        if own.kind != task.kind:
            raise UserError(f"teacher {self.name}: its {own.name} is a {own.kind} task, here it is {task.kind}")
        if len(own.text) != len(task.text):
            raise UserError(f"teacher {self.name}: it reads {len(own.text)} text, {task.name} has {len(task.text)}")
        if own.kind == "ranking" and own.labels == task.labels[::-1]:
            raise UserError(f'teacher {self.name}: it takes "{own.labels[1]}" to be right → turn the labels round')
        if own.kind != "classification":
            return own, [0]
        return own, match_labels(self.name, own.labels, task, self.labels)

    def logits(self, data: TaskData, progress: Progress | None = None, rows: NDArray[np.bool_] | None = None) -> Logits:
        """Return the logits of every row, or of some; the others are NaN."""
        own, outputs = self.fit(data.task)
        asked = np.ones(data.rows, bool) if rows is None else rows
        said = np.full((data.rows, len(outputs)), np.nan, np.float32)
        tokens = part(tokenise(data, self.tokenizer, self.lengths[own.name], self.cache), asked)
        # The network's own task has the range of scores it was trained with.
        said[asked] = predict_all(self.network, tokens, [own], self.batch, progress)[own.name].logits[:, outputs]
        if odd := int((~np.isfinite(said[asked])).any(axis=1).sum()):
            what = f"gives numbers that are not finite for {odd:,} rows of {data.task.name}/{data.split}"
            raise UserError(f"teacher {self.name}: it {what}; its weights are damaged → train or save it again")
        return said


class ModelTeacher(NetworkTeacher):
    """A model of understill's own, of this run or of another."""

    def __init__(
        self,
        name: str,
        digest: str,
        folder: ModelFolder,
        cache: Path,
        batch: int,
        device: str,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        tasks = {task.name: task for task in folder.tasks}
        network = folder.model.to(device).eval()
        super().__init__(name, digest, network, folder.tokenizer, tasks, folder.max_lengths, labels or {}, cache, batch)


def part(tokens: Tokens, rows: NDArray[np.bool_]) -> Tokens:
    """Return the tokens of some rows."""
    if rows.all():
        return tokens
    lengths = tokens.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int64)
    ids = tokens.ids[np.repeat(rows, lengths)]
    return replace(tokens, ids=ids, offsets=offsets, second=tokens.second[rows], gold=tokens.gold[rows])


# Folds ---------------------------------------------------------------------------------------------------------------


def fold_of(data: TaskData, folds: int) -> NDArray[np.int64]:
    """Return each row's fold, by its texts alone; of a ranking by the first one, so that groups are not divided.

    Equal texts share a fold in every task, and so do pairs turned round. What augmentation has made of a row is in the
    row's fold.
    """
    return (_keys_of(data) % np.uint64(folds)).astype(np.int64)


def _keys_of(data: TaskData) -> NDArray[np.uint64]:
    """Return a number for what each row must stay together with, [rows]: an augmented row has that of its source."""
    sources, done = source_rows(data), 0
    own, keys = sources == np.arange(data.rows), [np.zeros(0, np.uint64)]
    for batch in data.batches():
        keys.append(text_keys(batch.filter(pa.array(own[done : done + batch.num_rows])), data.task))
        done += batch.num_rows
    every: NDArray[np.uint64] = np.concatenate(keys)[np.cumsum(own)[sources] - 1]
    return every


@dataclass(frozen=True)
class FoldedTeacher:
    """Models that each left out one fold: a training row is answered by the one that has not seen it.

    So is every candidate of a query that train has: scores of two models are not to be ranked among each other.
    """

    name: str
    digest: str
    models: Sequence[Callable[[], NetworkTeacher]]  # opened one at a time
    train: TaskData  # what the models were trained on

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return what a training row's own fold says, whatever split it turns up in; else the mean of all models."""
        folds = fold_of(data, len(self.models))
        seen = np.isin(_keys_of(data), _keys_of(self.train))
        said = np.zeros((data.rows, data.task.outputs))
        for fold, model in enumerate(self.models):
            weight = np.where(seen, folds == fold, 1 / len(self.models))
            asked = weight > 0
            if asked.any():
                # Rows of several models are counted with the last.
                last = fold == len(self.models) - 1
                own = model().logits(data, progress if last or seen.all() else None, asked)
                said[asked] += weight[asked, None] * own[asked]
        return said.astype(np.float32)


# The verdict ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """How well a teacher knows a task."""

    score: float | None  # by the task's first metric, higher is better; None where no row could be scored
    scores: dict[str, float]
    majority: float | None  # the same of the simplest guess
    fault: str  # what is wrong with it; empty where it is fine


def examine(
    task: Task,
    gold: NDArray[np.floating],
    logits: Logits,
    train_gold: NDArray[np.floating],
    split: str = "dev",
    groups: NDArray[np.int64] | None = None,
) -> Verdict:
    """Score a teacher on rows that have gold and of which it says something; it must beat the simplest guess.

    A ranking's `groups` are the numbers of its rows' queries; of each, it must have all to go by.
    """
    known = ~np.isnan(gold) & ~np.isnan(logits).any(axis=1)
    if groups is not None:
        known &= ~np.isin(groups, groups[~known]) & contested(groups, gold)
        groups = groups[known]
    if not known.any():
        return Verdict(None, {}, None, "")
    true, said = gold[known].astype(np.float64), Predictions(task, logits[known]).values
    train = true if np.isnan(train_gold).all() else train_gold.astype(np.float64)
    scores, guess = score(task, true, said, groups), majority(task, train, true, groups)
    reached, floor = primary(task, scores), primary(task, guess)
    if groups is not None:
        reason = _upside_down(task, true, said, groups, floor)
    elif task.kind == "regression":
        reason = _strange_scale(true, said, train)
    else:
        reason = _mixed_up(task, true, said, floor)
    if not reason and reached <= floor:
        reason = "it has not learnt the task: train it longer, or check that it is a model for this task"
    name = task.metrics[0]
    fault = f"{name} {_shown(name, scores)} on {split}, where the simplest guess has {_shown(name, guess)}: {reason}"
    return Verdict(reached, scores, floor, fault if reason else "")


def _shown(metric: str, scores: dict[str, float]) -> str:
    """Show a score as the tables do: ×100, save for an error."""
    return f"{scores[metric]:.3f}" if metric == "mse" else f"{100 * scores[metric]:.1f}"


def _by_chance(count: int) -> float:
    """Return how much better some other reading of a mere guesser's outputs may fit."""
    return float(max(0.1, 3.5 / np.sqrt(count)))


def _mixed_up(task: Task, gold: Floats, said: Floats, floor: float) -> str:
    """Say which labels seem to stand for which others, where another order of the outputs fits far better."""
    counts = np.zeros((task.outputs, task.outputs), np.int64)  # [said, gold]
    np.add.at(counts, (said.astype(np.int64), gold.astype(np.int64)), 1)
    meant = linear_sum_assignment(counts, maximize=True)[1]
    gain = (counts[np.arange(task.outputs), meant].sum() - np.trace(counts)) / len(gold)
    turned = score(task, gold, meant[said.astype(np.int64)].astype(np.float64))
    if gain <= _by_chance(len(gold)) or primary(task, turned) <= floor:
        return ""
    pairs = ", ".join(f"{task.labels[here]}: {task.labels[there]}" for here, there in enumerate(meant))
    reach = _shown(task.metrics[0], turned)
    return (
        f"its labels seem to be mixed up, and in another order they would reach {reach}; if its names are wrong, "
        f"write labels: {{{pairs}}}, with its own name for what now goes as the first of each two"
    )


def _upside_down(task: Task, gold: Floats, said: Floats, groups: NDArray[np.int64], floor: float) -> str:
    """Say that a ranking seems to be meant the other way round, where that would fit far better."""
    upright, turned = score(task, gold, said, groups), score(task, gold, -said, groups)
    gain = primary(task, turned) - primary(task, upright)
    if gain <= _by_chance(len(np.unique(groups))) or primary(task, turned) <= floor:
        return ""
    reach = _shown(task.metrics[0], turned)
    return f"its scores seem to be upside down, and turned round they would reach {reach}: higher must be better"


def _strange_scale(gold: Floats, said: Floats, train: Floats) -> str:
    """Say that scores are on another scale, where they go with the gold but lie further off than the mean does."""
    mse, mean = FUNCTIONS["mse"], np.full(len(gold), np.nanmean(train), np.float64)
    if mse(gold, said) <= mse(gold, mean) or FUNCTIONS["pearson"](gold, said) < CORRELATED:
        return ""
    return (
        f"its scores go from {said.min():g} to {said.max():g}, those of the task from {gold.min():g} to "
        f"{gold.max():g}: they seem to be on another scale; bring them onto the task's, in a file of predictions"
    )
