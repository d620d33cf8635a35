"""What the servers of other libraries in `load.py --parts peers` share: the model, and where it is asked.

They run under a Python that has the peer, and what an ONNX export needs: onnxruntime, tokenizers, numpy. The model is
loaded and asked by the same code as in our server, so that what differs is the server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understill.inference.cores import cores
from understill.inference.loading import load

ROUTE, BATCH = "/v1/predict", 256
FOLDER, PORT = os.environ["PEER_MODEL"], int(os.environ["PEER_PORT"])


class Model:
    """Answers the bodies of several requests in one pass of the model for texts, and one for pairs."""

    def __init__(self) -> None:
        self.model = load(Path(FOLDER), "auto", cores())

    def answer(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the answers to each body, in order."""
        replies: dict[int, dict[str, Any]] = {}
        for paired in (False, True):
            chosen = [number for number, body in enumerate(bodies) if ("pairs" in body) == paired]
            if not chosen:
                continue
            texts = [text for number in chosen for text in bodies[number]["texts"]]
            pairs = [text for number in chosen for text in bodies[number]["pairs"]] if paired else None
            answers = self.model.predict(texts, pairs)
            rows = iter([{name: each[row].plain() for name, each in answers.items()} for row in range(len(texts))])
            for number in chosen:
                replies[number] = {"answers": [next(rows) for _ in bodies[number]["texts"]]}
        return [replies[number] for number in range(len(bodies))]
