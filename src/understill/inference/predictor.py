"""The predictor: the interface of every model that answers, its predictions and its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from understill.errors import ModelError, UserError, nearest
from understill.tasks import Task
from understill.tasks.classification import probabilities


@dataclass(frozen=True)
class Predictions:
    """A model's outputs for every row: raw logits for classes, scores on the task's scale, or of candidates."""

    task: Task
    logits: NDArray[np.float32]  # [rows, outputs]

    @property
    def values(self) -> NDArray[np.float64]:
        """What metrics compare with gold: class numbers or scores, [rows], or several numbers each, [rows, numbers]."""
        values: NDArray[np.float64] = self.task.kind.values(self.logits)
        return values

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """The probability of each class, [rows, classes]."""
        shares: NDArray[np.float32] = probabilities(self.logits)
        return shares

    @property
    def answers(self) -> list[Any]:
        """Label names, or scores."""
        return self.task.kind.answers(self.task, self.logits)


def refuse_no_numbers(who: str, place: str, predictions: Predictions, fix: str = "") -> None:
    """Refuse a model some of whose answers are no numbers."""
    bad = int((~np.isfinite(predictions.logits)).any(axis=1).sum())
    if bad:
        what = f"{who} gives NaN or infinite outputs for {bad:,} of {len(predictions.logits):,} rows of {place}"
        raise UserError(f"{what} → {fix or 'its weights are broken; train it again, or copy it again'}")


@dataclass(frozen=True)
class Answer:
    """A model's answer for one text: a label with the probability of each, a score, or several by their names."""

    label: str | None = None
    probabilities: Mapping[str, float] | None = None
    score: float | None = None
    scores: Mapping[str, float] | None = None

    def plain(self) -> dict[str, Any]:
        """Return what there is of it, by name, as JSON has it."""
        return {name: value for name, value in vars(self).items() if value is not None}


def choose(tasks: Sequence[Task], names: Sequence[str] | None, pair: bool | None) -> list[Task]:
    """Return the named ones of a model's tasks, or all that read so many texts; `pair` None means either."""
    if isinstance(names, str):
        raise UserError(f'tasks is a list of names; write ["{names}"]')
    if not names:
        return [task for task in tasks if pair is None or task.pair == pair]
    known = {task.name: task for task in tasks}
    for name in names:
        if name not in known:
            raise UserError(f'the model has no task "{name}"; {nearest(name, known)}')
        if pair is not None and known[name].pair != pair:
            needs = "two texts" if known[name].pair else "one text"
            raise UserError(f"task {name} reads {needs}")
    return [known[name] for name in dict.fromkeys(names)]


class Frame(Protocol):
    """Texts in columns: a frame or series of pandas or polars, a table of pyarrow, an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and columns where it has any."""


class Predictor(ABC):
    """A loaded model, ready to answer: what `load` returns, whichever form the model has."""

    tasks: tuple[Task, ...]
    max_lengths: Mapping[str, int]  # of each task, the tokens that it reads
    source: Path  # the folder it was loaded from

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.source} for {', '.join(task.name for task in self.tasks)}>"

    @abstractmethod
    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them."""

    def finite_logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> dict[str, Predictions]:
        """Return the logits of each task; of a model that fails, or answers no numbers, say what is wrong."""
        try:
            predictions = self.logits(texts, pairs, tasks)
        except ModelError as error:
            raise UserError(str(error)) from error
        for name, each in predictions.items():
            refuse_no_numbers(str(self.source), name, each)
        return predictions

    def choose(self, names: Sequence[str] | None, pair: bool | None) -> list[Task]:
        """Return the named tasks, or all that read so many texts; `pair` None means either."""
        return choose(self.tasks, names, pair)

    def tasks_for(
        self, texts: Sequence[str], pairs: Sequence[str] | None, names: Sequence[str] | None = None
    ) -> list[Task]:
        """Return the named tasks, or all, that can be asked of such texts or pairs; there is at least one."""
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"{len(texts)} texts and {len(pairs)} second texts do not make pairs")
        chosen = self.choose(names, pairs is not None)
        if not chosen:
            raise UserError(f"the model has no task that reads {'one text' if pairs is None else 'two texts'}")
        return chosen

    def predict(
        self,
        texts: Sequence[str] | Frame,
        pairs: Sequence[str] | Frame | None = None,
        tasks: Sequence[str] | None = None,
    ) -> dict[str, list[Answer]]:
        """Answer for texts, or for pairs of texts: by task, one answer for each; a frame of two columns has pairs."""
        first, *second = _columns(texts, "text", 1 if pairs is not None else 2)
        if pairs is not None:
            second = _columns(pairs, "second text", 1)
        first, rest = _checked(first, "text"), _checked(second[0], "second text") if second else None
        chosen = self.tasks_for(first, rest, tasks)
        return {name: in_words(each) for name, each in self.finite_logits(first, rest, chosen).items()}


def _columns(texts: Any, what: str, most: int) -> list[Any]:
    """Return the columns of a frame, whose iterator would give their names; texts in a row are one column."""
    if isinstance(texts, (str, bytes)):
        raise UserError(f"predict takes a list of {what}s; put the {what} in brackets")
    if isinstance(texts, Mapping):
        raise UserError(f"predict takes a list of {what}s, not a mapping → give it one of the values")
    if len(getattr(texts, "shape", ())) < 2:
        return [texts.to_pylist() if hasattr(texts, "to_pylist") else texts]  # else pyarrow gives scalars
    columns: list[Any] = np.asarray(texts, dtype=object).T.tolist()
    if not 1 <= len(columns) <= most:
        wanted = "one of texts, or two of pairs" if most == 2 else f"one of {what}s"
        fix = 'choose them by name, such as frame[["text"]]'
        raise UserError(f"the {what}s are a table of {len(columns)} columns; predict takes {wanted} → {fix}")
    return columns


def _checked(texts: Sequence[str], what: str) -> list[str]:
    """Return texts as a list, or refuse the first that is none."""
    texts = list(texts)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            hint = "; give the second texts of pairs as a list of their own" if isinstance(text, (list, tuple)) else ""
            raise UserError(f"{what} {number} is a {type(text).__name__}, not a string{hint}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{what} {number} holds half a character, which no encoding has; mend the text") from None
    return texts


def in_words(predictions: Predictions) -> list[Answer]:
    """Put predictions into words."""
    task = predictions.task
    return [Answer(**fields) for fields in task.kind.in_json(task, predictions.logits)]
