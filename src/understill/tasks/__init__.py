"""Tasks: what a model is asked, a module for each kind of it, and GLUE as a table of tasks."""

from understill.tasks.base import KINDS, Kind
from understill.tasks.classification import CLASSIFICATION
from understill.tasks.glue import GLUE, GlueTask
from understill.tasks.metric import METRICS, Metric, metric
from understill.tasks.ranking import RANKING
from understill.tasks.regression import REGRESSION
from understill.tasks.task import Task

__all__ = [
    "CLASSIFICATION",
    "GLUE",
    "KINDS",
    "METRICS",
    "RANKING",
    "REGRESSION",
    "GlueTask",
    "Kind",
    "Metric",
    "Task",
    "metric",
]
