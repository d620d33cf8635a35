"""The pipeline: stages that read files and write a folder named by the fingerprint of what went in."""

from understill.models.manifest import find_model
from understill.pipeline.comparing import Compared, Comparison, compare
from understill.pipeline.concluding import Findings, conclude
from understill.pipeline.examining import open_teacher
from understill.pipeline.exporting import Exported, export
from understill.pipeline.keeping import Kept, Waste, clean, list_runs
from understill.pipeline.outcome import Run
from understill.pipeline.plan import ModelPlan, Plan, Start, Study, TargetsPlan, Wanted, max_length, parts_of
from understill.pipeline.planning import make_plan, make_study, pick_models, read_data
from understill.pipeline.running import run, run_study, train_some
from understill.pipeline.scoring import evaluate
from understill.pipeline.submitting import Submission, submit
from understill.pipeline.teaching import TrainedModel, teach
from understill.pipeline.tokenising import Tokeniser, make_batches
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
    "run_study",
    "submit",
    "teach",
    "train_some",
]
