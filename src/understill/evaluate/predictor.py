"""The predictor: a model folder that answers for texts, one or millions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from understill.data.tokens import TextEncoder
from understill.errors import UserError, nearest
from understill.evaluate.predict import Predictions, predict_all
from understill.models.folder import ModelFolder, find_model, load_model
from understill.tasks import Task


@dataclass(frozen=True)
class Answer:
    """What a model says of one text: a label with the probability of each, or a score."""

    label: str | None = None
    probabilities: Mapping[str, float] | None = None
    score: float | None = None


class Predictor:
    """A loaded model, ready to answer."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        self.folder = folder
        self.model = folder.model.to(device).eval()
        self.encode = TextEncoder(folder.tokenizer)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks it answers."""
        return self.folder.tasks

    def choose(self, names: Sequence[str] | None, pair: bool | None) -> list[Task]:
        """Return the named tasks, or all that read so many texts; `pair` None means either."""
        if isinstance(names, str):
            raise UserError(f'tasks is a list of names; write ["{names}"]')
        known = {task.name: task for task in self.tasks}
        if not names:
            return [task for task in self.tasks if pair is None or task.pair == pair]
        for name in names:
            if name not in known:
                raise UserError(f'the model has no task "{name}"; {nearest(name, known)}')
            if pair is not None and known[name].pair != pair:
                needs = "two texts" if known[name].pair else "one text"
                raise UserError(f"task {name} reads {needs}")
        return [known[name] for name in names]

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task], batch: int = 64
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them."""
        rows = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        found: dict[str, Predictions] = {}
        lengths = self.folder.max_lengths
        for length in {lengths[task.name] for task in tasks}:
            tokens = self.encode(rows, length)
            found |= predict_all(self.model, tokens, [task for task in tasks if lengths[task.name] == length], batch)
        return {task.name: found[task.name] for task in tasks}

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, tasks: Sequence[str] | None = None
    ) -> dict[str, list[Answer]]:
        """Answer for texts, or for pairs of texts: by task, one answer for each."""
        texts = _checked(texts, "text")
        pairs = None if pairs is None else _checked(pairs, "second text")
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"{len(texts)} texts and {len(pairs)} second texts do not make pairs")
        chosen = self.choose(tasks, pairs is not None)
        if not chosen:
            raise UserError(f"the model has no task that reads {'one text' if pairs is None else 'two texts'}")
        found = self.logits(texts, pairs, chosen)
        return {name: answers(predictions) for name, predictions in found.items()}


def _checked(texts: Sequence[str], what: str) -> list[str]:
    """Return texts as a list, or say which of them is none."""
    if isinstance(texts, str):
        raise UserError(f"predict takes a list of {what}s; put the {what} in brackets")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            hint = "; give the second texts of pairs as a list of their own" if isinstance(text, (list, tuple)) else ""
            raise UserError(f"{what} {number} is a {type(text).__name__}, not a string{hint}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{what} {number} holds half a character, which no encoding has; mend the text") from None
    return list(texts)


def load(path: str | Path, device: str = "cpu") -> Predictor:
    """Load a model folder, or the only model of a run folder."""
    return Predictor(load_model(find_model(Path(path))), device)


def answers(predictions: Predictions) -> list[Answer]:
    """Put predictions into words."""
    if predictions.task.kind != "classification":
        return [Answer(score=float(value)) for value in predictions.values]
    labels = predictions.task.labels
    return [
        Answer(labels[int(number)], dict(zip(labels, map(float, row), strict=True)))
        for number, row in zip(predictions.values, predictions.probabilities, strict=True)
    ]
