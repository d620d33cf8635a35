"""Models as teachers: networks with a tokeniser of their own, those that the run trains among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from understill.data.taskdata import TaskData
from understill.data.tokens import tokenise
from understill.errors import UserError, listed
from understill.evaluate.predict import Network, predict_all
from understill.models.folder import ModelFolder, load_model
from understill.plugins import TEACHERS
from understill.recipe import Recipe
from understill.recipe.schema import TrainedSpec
from understill.tasks import Task
from understill.teachers.folds import FoldedTeacher
from understill.teachers.label_map import match_labels
from understill.teachers.protocol import Logits, Opening, Progress, Teacher


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
        if own.kind is not task.kind:
            raise UserError(f"teacher {self.name}: its {own.name} is a {own.kind} task, here it is {task.kind}")
        if len(own.text) != len(task.text):
            raise UserError(f"teacher {self.name}: it reads {len(own.text)} text, {task.name} has {len(task.text)}")
        if own.kind.turned(own, task) and own.labels == task.labels[::-1]:
            raise UserError(f'teacher {self.name}: it takes "{own.labels[1]}" to be right → turn the labels round')
        if not own.kind.has_classes:
            return own, own.kind.order(own, task)
        return own, match_labels(self.name, own.labels, task, self.labels)

    def logits(self, data: TaskData, progress: Progress | None = None, rows: NDArray[np.bool_] | None = None) -> Logits:
        """Return the logits of every row, or of some; the others are NaN."""
        own, outputs = self.fit(data.task)
        asked = np.ones(data.rows, bool) if rows is None else rows
        logits = np.full((data.rows, len(outputs)), np.nan, np.float32)
        tokens = tokenise(data, self.tokenizer, self.lengths[own.name], self.cache)
        tokens = tokens if asked.all() else tokens.take(np.flatnonzero(asked))
        # The network's own task has the range of scores it was trained with.
        logits[asked] = predict_all(self.network, tokens, [own], self.batch, progress)[own.name].logits[:, outputs]
        if odd := int((~np.isfinite(logits[asked])).any(axis=1).sum()):
            what = f"gives numbers that are not finite for {odd:,} rows of {data.task.name}/{data.split}"
            raise UserError(f"teacher {self.name}: it {what}; its weights are damaged → train or save it again")
        return logits


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


@TEACHERS.own("trained")
class TrainedType:
    """Models that the run trains: one that has seen all training rows, or one for each fold."""

    Spec = TrainedSpec

    @staticmethod
    def digest_of(spec: TrainedSpec, recipe: Recipe) -> str:
        """Return nothing: what is trained is known by the fingerprints of its models."""
        return ""

    @staticmethod
    def open(spec: TrainedSpec, opening: Opening) -> Teacher:
        """Load its model, or make its folds ready to be loaded."""

        def load(folder: Path) -> ModelTeacher:
            return ModelTeacher(
                opening.name, opening.digest, load_model(folder / "model"), opening.cache, opening.batch, opening.device
            )

        if spec.folds is None:
            return load(opening.models[0])
        # Opened one by one: folds need not be in memory together.
        folds = [partial(load, folder) for folder in opening.models]
        return FoldedTeacher(opening.name, opening.digest, folds, opening.data.splits["train"])
