"""Teachers: whatever gives logits for rows, one file for each type, and the verdict on what it knows."""

from understill.plugins import TEACHERS
from understill.recipe.schema import TeacherSpec
from understill.teachers.checkpoints import CheckpointType
from understill.teachers.llm.teacher import LlmTeacher, LlmType
from understill.teachers.predictions import PredictionsType
from understill.teachers.protocol import Opening, PluginTeacher, Teacher, digest_teacher, open_teacher
from understill.teachers.trained import TrainedType

__all__ = [
    "TEACHERS",
    "CheckpointType",
    "LlmTeacher",
    "LlmType",
    "Opening",
    "PluginTeacher",
    "PredictionsType",
    "Teacher",
    "TeacherSpec",
    "TrainedType",
    "digest_teacher",
    "open_teacher",
]
