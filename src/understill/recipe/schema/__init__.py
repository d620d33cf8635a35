"""The schema: the parts a recipe is made of, each with its defaults and what may stand there."""

from understill.recipe.schema.datasets import DataSpec, DemoData, HubSpec, TaskSpec
from understill.recipe.schema.distil import Anneal, Best, Distil, TargetsSpec, TaskDistil
from understill.recipe.schema.llm import LlmServer, Prices
from understill.recipe.schema.network import (
    EncoderSpec,
    HeadSpec,
    HeadsSpec,
    Partial,
    SanSpec,
    Settings,
    WordsSpec,
    over,
)
from understill.recipe.schema.student import AugmentSpec, StudentSpec, TaskAugment
from understill.recipe.schema.teachers import CheckpointSpec, LlmSpec, PredictionsSpec, TeacherSpec, TrainedSpec
from understill.recipe.schema.training import Contrastive, Evaluation, Machine, Output, Sampling, Training

__all__ = [
    "Anneal",
    "AugmentSpec",
    "Best",
    "CheckpointSpec",
    "Contrastive",
    "DataSpec",
    "DemoData",
    "Distil",
    "EncoderSpec",
    "Evaluation",
    "HeadSpec",
    "HeadsSpec",
    "HubSpec",
    "LlmServer",
    "LlmSpec",
    "Machine",
    "Output",
    "Partial",
    "PredictionsSpec",
    "Prices",
    "Sampling",
    "SanSpec",
    "Settings",
    "StudentSpec",
    "TargetsSpec",
    "TaskAugment",
    "TaskDistil",
    "TaskSpec",
    "TeacherSpec",
    "TrainedSpec",
    "Training",
    "WordsSpec",
    "over",
]
