"""Tasks: what a model is asked, a module for each kind of it, and GLUE as a table of tasks."""

from understill.tasks.base import KINDS, Kind, Task, register
from understill.tasks.classification import CLASSIFICATION
from understill.tasks.glue import GLUE, GlueTask, as_ranking
from understill.tasks.ranking import RANKING
from understill.tasks.regression import REGRESSION

__all__ = [
    "CLASSIFICATION",
    "GLUE",
    "KINDS",
    "RANKING",
    "REGRESSION",
    "GlueTask",
    "Kind",
    "Task",
    "as_ranking",
    "register",
]
