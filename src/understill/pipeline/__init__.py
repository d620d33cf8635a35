"""The pipeline: stages that read files and write a folder named by the fingerprint of what went in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understill.models.manifest import find_model
    from understill.pipeline.aggregate import Findings, conclude
    from understill.pipeline.comparing import Compared, Comparison, compare
    from understill.pipeline.engine import run, run_stages, run_study, study_stages, teach, train_some
    from understill.pipeline.exporting import Exported, export
    from understill.pipeline.model_training import TrainedModel
    from understill.pipeline.plan import ModelPlan, Plan, Start, Study, TargetsPlan, Wanted, max_length, parts_of
    from understill.pipeline.plan.planner import make_plan, make_study, pick_models
    from understill.pipeline.reading import read_data
    from understill.pipeline.record import Run
    from understill.pipeline.runs import Kept, Waste, clean, list_runs
    from understill.pipeline.scoring import evaluate
    from understill.pipeline.submitting import Submission, submit
    from understill.pipeline.tokenising import Tokeniser, make_batches
    from understill.pipeline.verdicts import open_teacher
    from understill.pipeline.wording import make_words

__all__ = [
    "Compared",
    "Comparison",
    "Exported",
    "Findings",
    "Kept",
    "ModelPlan",
    "Plan",
    "Run",
    "Start",
    "Study",
    "Submission",
    "TargetsPlan",
    "Tokeniser",
    "TrainedModel",
    "Wanted",
    "Waste",
    "clean",
    "compare",
    "conclude",
    "evaluate",
    "export",
    "find_model",
    "list_runs",
    "make_batches",
    "make_plan",
    "make_study",
    "make_words",
    "max_length",
    "open_teacher",
    "parts_of",
    "pick_models",
    "read_data",
    "run",
    "run_stages",
    "run_study",
    "study_stages",
    "submit",
    "teach",
    "train_some",
]

_HOMES = {
    "understill.pipeline.comparing": ("Compared", "Comparison", "compare"),
    "understill.pipeline.exporting": ("Exported", "export"),
    "understill.pipeline.aggregate": ("Findings", "conclude"),
    "understill.pipeline.runs": ("Kept", "Waste", "clean", "list_runs"),
    "understill.pipeline.plan": (
        "ModelPlan",
        "Plan",
        "Start",
        "Study",
        "TargetsPlan",
        "Wanted",
        "max_length",
        "parts_of",
    ),
    "understill.pipeline.record": ("Run",),
    "understill.pipeline.submitting": ("Submission", "submit"),
    "understill.pipeline.tokenising": ("Tokeniser", "make_batches"),
    "understill.pipeline.model_training": ("TrainedModel",),
    "understill.pipeline.scoring": ("evaluate",),
    "understill.models.manifest": ("find_model",),
    "understill.pipeline.plan.planner": ("make_plan", "make_study", "pick_models"),
    "understill.pipeline.reading": ("read_data",),
    "understill.pipeline.wording": ("make_words",),
    "understill.pipeline.verdicts": ("open_teacher",),
    "understill.pipeline.engine": ("run", "run_stages", "run_study", "study_stages", "teach", "train_some"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: listing runs, for one, needs no torch."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"understill.pipeline has no {name}")
