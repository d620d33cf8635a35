"""Mixing: which terms a task has, and the weights by which hard and soft parts are added over the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.errors import UserError, listed
from understill.losses import cross_entropy, listwise, logits, soft_cross_entropy, squared_error
from understill.losses.queries import BatchQueries
from understill.losses.term import TaskRows, Term
from understill.plugins import LOSSES
from understill.recipe.schema import Distil
from understill.tasks import Task

#: The modules whose terms are registered as they are imported.
OWN = (cross_entropy, soft_cross_entropy, logits, squared_error, listwise)


@dataclass(frozen=True)
class TaskTerms:
    """The terms of one task and the settings by which they are mixed."""

    task: Task
    settings: Distil
    names: tuple[str, str]  # of the hard and the soft term
    hard: Term
    soft: Mapping[str, Term]  # by part; none without teachers


def soft_name(task: Task, loss: str) -> str:
    """Return the name of the term that a recipe's `distil.loss` means for a task."""
    if loss in task.kind.soft:
        return task.kind.soft[loss]
    kinds = LOSSES[loss].kinds
    if kinds and task.kind.name not in kinds:
        raise UserError(
            f"the loss {loss} is for {listed(kinds, 'and')}, and task {task.name} is a {task.kind} task → name the "
            f"tasks it is for: student.distil.tasks.NAME.loss: {loss}"
        )
    return loss


def terms_of(task: Task, distil: Distil | None) -> TaskTerms:
    """Return the terms that a task is learnt by."""
    settings = (distil or Distil()).of(task.name)
    names = (task.kind.hard, soft_name(task, settings.loss))
    hard, soft = (LOSSES[name]() for name in names)
    return TaskTerms(task, settings, names, hard, {} if distil is None else {"soft": soft})


def task_rows(terms: TaskTerms, batch: Batch | Packed, where: Tensor, regression: str) -> TaskRows:
    """Return the rows of one task, which stand at `where` in the batch."""
    task = terms.task
    gold = batch.gold[where]
    if gold.ndim == 2:  # some task's gold has several numbers
        width = task.kind.gold_numbers(task)
        gold = gold[:, 0] if width == 1 else gold[:, :width]
    columns = {"logits": batch.teacher[where][:, : task.outputs]} if batch.teacher.shape[1] else {}
    queries = None
    if task.kind.grouped:
        assert isinstance(batch, Batch), "rankings are not trained on packed rows"
        queries = BatchQueries(batch.group[where])
    return TaskRows(task, regression, terms.settings.temperature, gold, columns, queries)


def taught_rows(term: Term, rows: TaskRows) -> Tensor:
    """Tell of which rows teachers say all that a term needs, [n]; of a grouped kind, of all candidates of a query."""
    taught = torch.ones(len(rows), dtype=torch.bool, device=rows.gold.device)
    for name in term.needs.columns:
        if name not in rows.columns:
            return torch.zeros_like(taught)
        taught &= ~rows.columns[name].flatten(1)[:, 0].isnan()
    return rows.every(taught)


def ends(settings: Distil) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the weights of hard and soft part at the start, and how much they change by the end."""
    if settings.anneal is None:
        return (settings.hard, settings.soft), (0.0, 0.0)
    start, change = settings.anneal.start, settings.anneal.end - settings.anneal.start
    return (settings.hard * start, settings.soft * (1 - start)), (settings.hard * change, -settings.soft * change)


def weights_at(settings: Distil, progress: float) -> tuple[float, float]:
    """Return the weights of the hard and the soft part after this share of the run."""
    if settings.anneal is None:
        return settings.hard, settings.soft
    mix = settings.anneal.at(progress)
    return settings.hard * mix, settings.soft * (1 - mix)
