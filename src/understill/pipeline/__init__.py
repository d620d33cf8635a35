"""The pipeline: stages that read files and write a folder named by the fingerprint of what went in."""

from understill.models.folder import find_model
from understill.pipeline.planning import ModelPlan, Plan, make_plan, max_length, pick_models, read_data
from understill.pipeline.running import Run, run
from understill.pipeline.scoring import evaluate, load_predictor
from understill.pipeline.teaching import TrainedModel, teach
from understill.pipeline.tokenising import Tokeniser, make_batches

__all__ = [
    "ModelPlan",
    "Plan",
    "Run",
    "Tokeniser",
    "TrainedModel",
    "evaluate",
    "find_model",
    "load_predictor",
    "make_batches",
    "make_plan",
    "max_length",
    "pick_models",
    "read_data",
    "run",
    "teach",
]
