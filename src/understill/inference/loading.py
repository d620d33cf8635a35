"""Loading any model that answers from its folder: trained here, or exported."""

from __future__ import annotations

from pathlib import Path

from understill.atomic import read_facts, refuse_damage
from understill.errors import UserError
from understill.inference.onnx import MANIFEST, OnnxModel, is_export
from understill.inference.predictor import Predictor
from understill.tasks import Task
from understill.tasks.task import tasks_in


def load(path: str | Path, device: str = "cpu", threads: int | None = None) -> Predictor:
    """Load any model that answers: a model folder, the main model of a run folder, or an export.

    Ask it with `model.predict(texts)`, or `model.predict(texts, pairs=seconds)`; its tasks are `model.tasks`. `device`
    is auto, cpu, cuda or mps, which an ONNX export does not need. `threads` is how many cores an ONNX export takes, all
    that the process may use where it is not given; torch has a setting of its own. An ONNX export is loaded without
    torch and transformers. What cannot be loaded raises `understill.UserError`, which says why in a sentence.
    """
    folder = Path(path)
    refuse_damage(folder)
    if is_export(folder):
        if device not in ("auto", "cpu"):
            raise UserError(f"{folder} is an ONNX export, which runs on the CPU → leave out the device {device}")
        return OnnxModel(folder, threads)
    if not folder.exists():
        raise UserError(f"{folder}: no such model folder")
    try:
        from understill.inference.classifier import HuggingFaceModel, read_export
        from understill.inference.torch_model import TorchModel
        from understill.models.folder import load_model
        from understill.models.manifest import find_model
        from understill.recipe.schema import Machine
        from understill.train.device import pick_device
    except ImportError as error:
        what = f"{folder} is no ONNX export, and other models need {error.name}, which is not installed"
        raise UserError(f"{what} → pip install understill, or export the model") from None

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UserError(f'device "{device}": write auto, cpu, cuda or mps')
    place = pick_device(Machine(device=device))  # type: ignore[arg-type]
    inside = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    classifiers = [each for each in (folder, *inside) if read_export(each) is not None]
    if len(classifiers) > 1:
        raise UserError(f"{folder} holds several classifiers → load one: {', '.join(map(str, classifiers))}")
    if classifiers:
        return HuggingFaceModel(classifiers[0], place)
    return TorchModel(load_model(find_model(folder)), place)


def tasks_of(path: str | Path) -> tuple[Task, ...]:
    """Return the tasks of a model without loading it; none where that needs loading, or fails."""
    folder = Path(path)
    try:
        if is_export(folder):
            return tasks_in(read_facts(folder / MANIFEST))[0]
        from understill.models.manifest import find_model, model_tasks

        return model_tasks(find_model(folder))
    except (ImportError, OSError, UserError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return ()
