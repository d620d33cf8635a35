"""The schema: the parts a recipe is made of, each with its defaults and what may stand there."""

from understill.schema.distil import Anneal, Best, Distil, TargetsSpec, TaskDistil
from understill.schema.models import Partial, Settings, SomeSection, over
from understill.schema.network import NETWORKS, EncoderSpec, HeadSpec, HeadsSpec, SanSpec, WordsSpec
from understill.schema.seeds import Seed, several_seeds
from understill.schema.student import AugmentSpec, StudentSpec, TaskAugment
from understill.schema.teachers import TeacherSpec
from understill.schema.texts import DataSpec, DemoData, HubSpec, TaskSpec
from understill.schema.training import Evaluation, Machine, Output, Sampling, Training

__all__ = [
    "NETWORKS",
    "Anneal",
    "AugmentSpec",
    "Best",
    "DataSpec",
    "DemoData",
    "Distil",
    "EncoderSpec",
    "Evaluation",
    "HeadSpec",
    "HeadsSpec",
    "HubSpec",
    "Machine",
    "Output",
    "Partial",
    "Sampling",
    "SanSpec",
    "Seed",
    "Settings",
    "SomeSection",
    "StudentSpec",
    "TargetsSpec",
    "TaskAugment",
    "TaskDistil",
    "TaskSpec",
    "TeacherSpec",
    "Training",
    "WordsSpec",
    "over",
    "several_seeds",
]
