"""Forms: what a model can be exported to, and what cannot be, told before anything that takes seconds is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from understill.errors import UserError, listed
from understill.models.manifest import MANIFEST, find_model, read_facts, read_manifest
from understill.models.shape import HEAD_SHAPES, WORDS
from understill.runtime.answers import choose
from understill.tasks import Task

FORMS = ("huggingface", "onnx", "int8")


@dataclass(frozen=True)
class Order:
    """An export that can be made, as far as small files tell."""

    source: Path  # the model folder
    target: Path
    to: str
    tasks: tuple[Task, ...]

    @property
    def parts(self) -> dict[Path, tuple[Task, ...]]:
        """The folders in the target, relative to it, each with its tasks; a classifier answers one task."""
        if self.to != "huggingface" or len(self.tasks) == 1:
            return {Path(): self.tasks}
        return {Path(task.name): (task,) for task in self.tasks}


def take_order(path: Path, to: str, tasks: Sequence[str] = (), out: Path | None = None) -> Order:
    """Say what is to be exported where, or why it cannot be."""
    if to not in FORMS:
        raise UserError(f'--to "{to}": write {listed(FORMS)}')
    if to != "huggingface":
        need_libraries()
    source = find_model(path)
    chosen = tuple(choose(read_manifest(source).tasks, tasks, None))
    if to == "huggingface":
        refuse_others(source, chosen)
    if out is None and (path / MANIFEST).exists():
        raise UserError(f"{path} is a model folder, which stays as it is → say where to write with --out")
    # Classifiers that are exported one by one lie beside each other.
    name = chosen[0].name if to == "huggingface" and len(chosen) == 1 else ""
    target = out or path / "export" / to / name
    refuse_there(target)
    return Order(source, target, to, chosen)


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
    """Refuse tasks that no plain Hugging Face classifier can answer as this model does."""
    manifest, instead = read_manifest(folder), "write --to onnx, which takes every kind of model"
    kind = str(read_facts(folder / "config.json").get("model_type"))
    if kind == WORDS:
        raise UserError(f"Hugging Face has no class for a network over words → {instead}")
    if manifest.pooling == "mean" or kind not in HEAD_SHAPES:
        what = "pooling: mean" if manifest.pooling == "mean" else f"a {kind} encoder"
        raise UserError(f"Hugging Face has no such classifier for {what} → {instead}")
    why = {}
    for task in tasks:
        if task.kind == "ranking":
            why[task.name] = "ranks candidates"
        elif manifest.heads.san_of(task):
            why[task.name] = "has a SAN head"
        elif manifest.heads.siamese(task):
            why[task.name] = "reads its texts apart"
    if why:
        said = "; ".join(f"{name} {reason}" for name, reason in why.items())
        rest = " ".join(f"--task {task.name}" for task in tasks if task.name not in why)
        leave = f"leave out what is not: {rest}; or " if rest else ""
        raise UserError(f"only classes and scores of linear heads are plain classifiers ({said}) → {leave}{instead}")
