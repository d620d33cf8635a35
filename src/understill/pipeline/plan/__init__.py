"""The planner: from a recipe and its data to what is to be made."""

from understill.pipeline.plan.parts import (
    ChoicePlan,
    Distillation,
    Fold,
    ModelPlan,
    Role,
    Start,
    TargetsPlan,
    TeacherPlan,
    Words,
    WordSource,
)
from understill.pipeline.plan.sizes import cache_folder, dev_sets, epoch_of, max_length, parts_of
from understill.pipeline.plan.whole import Plan, Study, Wanted, once_each

__all__ = [
    "ChoicePlan",
    "Distillation",
    "Fold",
    "ModelPlan",
    "Plan",
    "Role",
    "Start",
    "Study",
    "TargetsPlan",
    "TeacherPlan",
    "Wanted",
    "WordSource",
    "Words",
    "cache_folder",
    "dev_sets",
    "epoch_of",
    "max_length",
    "once_each",
    "parts_of",
]
