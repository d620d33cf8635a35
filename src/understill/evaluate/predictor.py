"""The predictor: a model folder that answers for texts, one or millions."""

from __future__ import annotations

from collections.abc import Sequence

from understill.data.tokens import TextEncoder
from understill.evaluate.predict import predict_all
from understill.models.folder import ModelFolder
from understill.runtime.answers import Answerer, Predictions
from understill.tasks import Task


class Predictor(Answerer):
    """A loaded model folder, ready to answer."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        self.folder, self.source = folder, folder.path
        self.tasks, self.max_lengths = folder.tasks, folder.max_lengths
        self.model = folder.model.to(device).eval()
        self.encode = TextEncoder(folder.tokenizer)

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task], batch: int = 64
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them."""
        rows = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        found: dict[str, Predictions] = {}
        for length in {self.max_lengths[task.name] for task in tasks}:
            own = [task for task in tasks if self.max_lengths[task.name] == length]
            found |= predict_all(self.model, self.encode(rows, length), own, batch)
        return {task.name: found[task.name] for task in tasks}
