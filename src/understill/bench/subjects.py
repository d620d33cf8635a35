"""Subjects: models of any form, opened so that all can be asked, and timed, alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from understill.bench.clock import Ask, Text, split_pairs
from understill.errors import UserError
from understill.inference.loading import load
from understill.inference.onnx import GRAPH, OnnxModel
from understill.inference.predictor import Predictor
from understill.tasks import Task

#: The form of a Hugging Face folder, which is called through `transformers.pipeline`.
PIPELINE = "pipeline()"
#: The batch size of `pipeline()` wherever it is timed; all others choose their own.
PIPELINE_BATCH = 32


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that can be timed."""

    path: Path
    form: str  # PIPELINE, torch, ONNX float32, ONNX int8
    weights: Path
    ask: Ask
    tokenise: Ask


def open_subjects(paths: Sequence[Path], task: str | None = None) -> tuple[list[Subject], Task]:
    """Open models, and return them with the task that all are asked for: the named one, or the first they share."""
    models = [load(path) for path in paths]
    chosen = _shared(paths, models, task)
    return [_subject(path, model, chosen) for path, model in zip(paths, models, strict=True)], chosen


def _shared(paths: Sequence[Path], models: Sequence[Predictor], name: str | None) -> Task:
    """Return a task that all models have; one with one text rather than two."""
    first = sorted(models[0].choose([name] if name else None, None), key=lambda task: task.pair)
    known = [{task.name: task for task in model.tasks} for model in models]
    for task in first:
        if all(task.name in own and own[task.name].pair == task.pair for own in known):
            return task
    names = "; ".join(f"{path}: {', '.join(own)}" for path, own in zip(paths, known, strict=True))
    what = f"not all models have the task {name}" if name else "the models have no task in common"
    raise UserError(f"{what} ({names}) → name models that have")


def _subject(path: Path, model: Predictor, task: Task) -> Subject:
    length = model.max_lengths[task.name]
    if isinstance(model, OnnxModel):
        form, tokenise = f"ONNX {model.weights}".rstrip(), partial(model.tokenise, max_length=length)
        return Subject(path, form, model.source / GRAPH, partial(_ask, model, task), tokenise)
    from understill.inference.classifier import HuggingFaceModel
    from understill.inference.torch_model import TorchModel
    from understill.models.folder import WEIGHTS

    assert isinstance(model, (HuggingFaceModel, TorchModel))
    weights, encode = model.source / WEIGHTS, model.encode
    if isinstance(model, HuggingFaceModel) and not model.pooled:  # pipeline() knows no mean pooling
        pipeline = Pipeline(model.source)
        return Subject(path, PIPELINE, weights, pipeline.ask, pipeline.tokenise)
    return Subject(path, "torch", weights, partial(_ask, model, task), lambda texts: encode(list(texts), length))


def _ask(model: Predictor, task: Task, texts: Sequence[Text]) -> None:
    """Have texts, or pairs, answered in words."""
    model.predict(*split_pairs(texts), [task.name])


class Pipeline:
    """An exported classifier, called through `transformers.pipeline`."""

    def __init__(self, folder: Path) -> None:
        from transformers import pipeline  # which imports far more than loading a model does

        self.answer: Any = pipeline("text-classification", str(folder), device="cpu", top_k=None)

    def ask(self, texts: Sequence[Text]) -> Any:
        """Have texts, or pairs, answered, several at once."""
        inputs = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in texts]
        return self.answer(inputs, batch_size=PIPELINE_BATCH, truncation=True)

    def tokenise(self, texts: Sequence[Text]) -> None:
        """Tokenise texts, or pairs, as it does by itself."""
        self.answer.tokenizer(list(texts), truncation=True)
