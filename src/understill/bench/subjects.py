"""Subjects: models of any form, opened so that all can be asked, and timed, alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from understill.errors import UserError
from understill.evaluate.clock import Text, apart
from understill.loading import load
from understill.runtime.answers import Answerer
from understill.runtime.onnx import GRAPH, OnnxModel
from understill.tasks import Task

#: The form of a Hugging Face folder, which is asked as whoever has no understill asks it.
PIPELINE = "pipeline()"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that can be timed."""

    path: Path
    form: str  # PIPELINE, torch, ONNX float32, ONNX int8
    weights: Path
    ask: Callable[[Sequence[Text]], object]
    tokenise: Callable[[Sequence[Text]], object]


def open_subjects(paths: Sequence[Path], task: str | None = None) -> tuple[list[Subject], Task]:
    """Open models, and return them with the task that all are asked for: the named one, or the first they share."""
    models = [load(path) for path in paths]
    chosen = _shared(paths, models, task)
    return [_subject(path, model, chosen) for path, model in zip(paths, models, strict=True)], chosen


def _shared(paths: Sequence[Path], models: Sequence[Answerer], name: str | None) -> Task:
    """Return a task that all models have; one with one text rather than two."""
    first = sorted(models[0].choose([name] if name else None, None), key=lambda task: task.pair)
    known = [{task.name: task for task in model.tasks} for model in models]
    for task in first:
        if all(task.name in own and own[task.name].pair == task.pair for own in known):
            return task
    said = "; ".join(f"{path}: {', '.join(own)}" for path, own in zip(paths, known, strict=True))
    what = f"not all models have the task {name}" if name else "the models have no task in common"
    raise UserError(f"{what} ({said}) → name models that have")


def _subject(path: Path, model: Answerer, task: Task) -> Subject:
    if isinstance(model, OnnxModel):
        length = model.max_lengths[task.name]
        form = f"ONNX {model.weights}".rstrip()
        tokenise = partial(model.tokenise, max_length=length)
        return Subject(path, form, model.source / GRAPH, partial(_ask, model, task), tokenise)
    from understill.evaluate.predictor import Predictor
    from understill.models.folder import WEIGHTS

    if isinstance(model, Predictor):
        encode, length = model.encode, model.folder.max_lengths[task.name]
        weights = model.source / WEIGHTS
        return Subject(path, "torch", weights, partial(_ask, model, task), lambda texts: encode(list(texts), length))
    from understill.export.huggingface import ClassifierModel, Pipeline

    assert isinstance(model, ClassifierModel)
    if model.pooled:  # which pipeline() does not know
        read, most = model.encode, model.max_lengths[task.name]
        weights = model.source / WEIGHTS
        return Subject(path, "torch", weights, partial(_ask, model, task), lambda texts: read(list(texts), most))
    pipeline = Pipeline(model.source)
    return Subject(path, PIPELINE, model.source / WEIGHTS, pipeline.ask, pipeline.tokenise)


def _ask(model: Answerer, task: Task, texts: Sequence[Text]) -> None:
    """Have texts, or pairs, answered in words."""
    first, second = apart(texts)
    model.predict(first, second, [task.name])
