"""The pipeline: stages that read files and write a folder named by the fingerprint of what went in."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What Python programs use, by the module that has it.
_HOMES = {
    "models.manifest": ("find_model",),
    "pipeline.aggregate": ("conclude",),
    "pipeline.comparison": ("compare",),
    "pipeline.dataloader": ("Tokeniser", "make_batches"),
    "engines.study": ("run", "run_study", "train_models", "train_some"),
    "pipeline.evaluation": ("evaluate",),
    "pipeline.exporting": ("export",),
    "pipeline.glue_submission": ("submit",),
    "pipeline.model_training": ("TrainedModel",),
    "pipeline.plan.planner": ("make_plan", "make_study", "pick_models"),
    "pipeline.record": ("Run",),
    "pipeline.runs": ("clean", "list_runs"),
    "pipeline.teacher_selection": ("open_teacher",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: listing runs, for one, needs no torch."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"understill.{module}"), name)
    raise AttributeError(f"understill.pipeline has no {name}")
