"""Choosing an objective: the fused form where every term has one, else the terms composed."""

from __future__ import annotations

from collections.abc import Sequence

from understill.losses.composed import ComposedObjective
from understill.losses.fused import FusedObjective, can_fuse
from understill.losses.mixing import terms_of
from understill.losses.objective import Objective
from understill.recipe.schema import Distil
from understill.tasks import Task


def make_objective(tasks: Sequence[Task], regression: str, distil: Distil | None = None) -> Objective:
    """Return what a model of these tasks descends; `regression` says what heads of scores give."""
    fused = all(can_fuse(terms_of(task, distil)) for task in tasks)
    return (FusedObjective if fused else ComposedObjective)(tasks, regression, distil)
