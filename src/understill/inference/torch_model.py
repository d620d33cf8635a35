"""A model folder that answers with torch, for one text or millions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from understill.data.tokens import TextEncoder
from understill.evaluate.predict import Network, predict_all
from understill.inference.predictor import Predictions, Predictor
from understill.models.folder import ModelFolder
from understill.tasks import Task

#: Rows that a CPU takes at once.
BATCH = 64


class NetworkPredictor(Predictor):
    """A torch network with its tokeniser, ready to answer."""

    model: Network
    encode: TextEncoder

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them."""
        rows = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        predictions: dict[str, Predictions] = {}
        for length in {self.max_lengths[task.name] for task in tasks}:
            own = [task for task in tasks if self.max_lengths[task.name] == length]
            # Of many rows, processes tokenise the next ones meanwhile.
            parts = [predict_all(self.model, tokens, own, BATCH) for tokens in self.encode.parts(rows, length)]
            for task in own:
                logits = np.concatenate([part[task.name].logits for part in parts])
                predictions[task.name] = Predictions(task, logits)
        return {task.name: predictions[task.name] for task in tasks}


class TorchModel(NetworkPredictor):
    """A loaded model folder, ready to answer."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        self.folder, self.source = folder, folder.path
        self.tasks, self.max_lengths = folder.tasks, folder.max_lengths
        self.model = folder.model.to(device).eval()
        self.encode = TextEncoder(folder.tokenizer)
