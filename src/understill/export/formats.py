"""Formats: what a model can be exported to; what cannot be is refused before anything heavy is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from understill.atomic import read_facts
from understill.errors import UserError, listed
from understill.inference.predictor import choose
from understill.models.manifest import MANIFEST, find_model, read_manifest
from understill.models.pooling import POOLED
from understill.models.shape import HEAD_SHAPES, WORDS
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task

FORMS = ("huggingface", "onnx", "int8")


@dataclass(frozen=True)
class ExportPlan:
    """An export that can be made, as far as its manifest and config tell."""

    source: Path  # the model folder
    target: Path
    to: str
    tasks: tuple[Task, ...]
    left: Mapping[str, str] = field(default_factory=dict)  # the tasks that stay behind, and why

    @property
    def parts(self) -> dict[Path, tuple[Task, ...]]:
        """The folders in the target, relative to it, each with its tasks; a classifier answers one task."""
        if self.to != "huggingface" or len(self.tasks) == 1:
            return {Path(): self.tasks}
        return {Path(task.name): (task,) for task in self.tasks}


def plan_export(path: Path, to: str, tasks: Sequence[str] = (), out: Path | None = None) -> ExportPlan:
    """Return what is to be exported where, or refuse it."""
    if to not in FORMS:
        raise UserError(f'--to "{to}": write {listed(FORMS)}')
    if to != "huggingface":
        need_libraries()
    source = find_model(path)
    manifest, left = read_manifest(source), {}
    chosen = tuple(choose(manifest.tasks, tasks, None))
    if to == "huggingface":
        unfit = unfit_tasks(manifest.heads, chosen)
        if not tasks and len(unfit) < len(chosen):  # nobody has asked for those by name
            left, chosen = unfit, tuple(task for task in chosen if task.name not in unfit)
        refuse_others(source, chosen)
    if out is None and (path / MANIFEST).exists():
        raise UserError(f"{path} is a model folder, which stays as it is → say where to write with --out")
    # Classifiers that are exported one by one lie beside each other.
    name = chosen[0].name if to == "huggingface" and len(chosen) == 1 else ""
    target = out or path / "export" / to / name
    refuse_there(target)
    return ExportPlan(source, target, to, chosen, left)


def refuse_there(target: Path) -> None:
    """Refuse to write where something is."""
    if target.exists():
        raise UserError(f"{target} is there already → choose another folder with --out, or remove it")


def need_libraries() -> None:
    """Refuse at once where what writes or runs graphs is not installed."""
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise UserError(f'this export needs {listed(missing, "and")} → pip install "understill[onnx]"')


def refuse_others(folder: Path, tasks: Sequence[Task]) -> None:
    """Refuse tasks that no Hugging Face folder can answer as this model does."""
    manifest, instead = read_manifest(folder), "write --to onnx, which takes every kind of model"
    if what := _unsupported(str(read_facts(folder / "config.json").get("model_type")), manifest.pooling):
        raise UserError(f"Hugging Face has no classifier for {what} → {instead}")
    if why := unfit_tasks(manifest.heads, tasks):
        rest = " ".join(f"--task {task.name}" for task in tasks if task.name not in why)
        leave = f"leave out what is not: {rest}; or " if rest else ""
        what = "only classes and scores of linear heads are plain classifiers"
        raise UserError(f"{what} ({in_words(why)}) → {leave}{instead}")


def _unsupported(architecture: str, pooling: str) -> str:
    """Name a network that Hugging Face has no class for; nothing where it has one."""
    if architecture == WORDS:
        return "a network over words"
    # With mean pooling the encoder leaves as it is, and dense layers after it.
    return "" if architecture in HEAD_SHAPES or pooling in POOLED else f"a {architecture} encoder"


def unfit_tasks(heads: HeadsSpec, tasks: Sequence[Task]) -> dict[str, str]:
    """Return the tasks whose heads nothing but a graph can hold, each with the reason."""
    why = {}
    for task in tasks:
        if task.kind.unfit:
            why[task.name] = task.kind.unfit
        elif heads.san_of(task):
            why[task.name] = "has a SAN head"
        elif heads.siamese(task):
            why[task.name] = "reads its texts apart"
    return why


def in_words(why: Mapping[str, str]) -> str:
    """Say why some tasks do not fit."""
    return "; ".join(f"{name} {reason}" for name, reason in why.items())


def allowed(kind: str, pooling: str, heads: HeadsSpec, tasks: Sequence[Task]) -> dict[str, str]:
    """Say, form by form, what can be exported of a model of these tasks on an encoder of some kind."""
    everything = {"onnx": "all tasks", "int8": "all tasks"}
    if not kind:
        return everything
    why = unfit_tasks(heads, tasks)
    fit = [task.name for task in tasks if task.name not in why]
    by = "sentence-transformers" if pooling in POOLED else "transformers.pipeline()"
    allowed_tasks = f"{', '.join(fit)}, for {by}" if fit else "no task"
    if what := _unsupported(kind, pooling):
        allowed_tasks = f"no task, since it has no classifier for {what}"
    elif why:
        allowed_tasks += f"; not {', nor '.join(f'{name}, which {reason}' for name, reason in why.items())}"
    return {"huggingface": allowed_tasks, **everything}


def kind_at(place: str) -> str:
    """Return the architecture of an encoder; nothing where no file tells it."""
    try:
        return str(json.loads((Path(place) / "config.json").read_text(encoding="utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
