"""Mixing: the loss terms of a task, and the weights of their hard and soft parts over the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.errors import UserError, listed
from understill.losses import cross_entropy, listwise, squared_error
from understill.losses.term import BatchQueries, TaskRows, Term
from understill.plugins import ANNEALING, LOSSES
from understill.recipe.schema import Distil
from understill.recipe.schema.distil import SOFT
from understill.tasks import Task

#: The modules whose terms are registered as they are imported.
OWN = (cross_entropy, squared_error, listwise)

#: What the model gives, of which a term may need some.
OUTPUTS = ("logits",)


@dataclass(frozen=True)
class TaskTerms:
    """The terms of one task and the settings by which they are mixed."""

    task: Task
    settings: Distil
    names: tuple[str, ...]  # of the hard term and, with teachers, the soft one and those added to it
    hard: Term
    soft: Mapping[str, Term]  # by part: "soft", and further ones by their names; none without teachers


def soft_term(task: Task, loss: str) -> Term:
    """Return the term that a recipe's `distil.loss` means for a task."""
    term: Term = LOSSES[task.kind.soft.get(loss, loss)]()
    if term.kinds and task.kind.name not in term.kinds:
        raise UserError(
            f"student.distil: the loss {loss} is for {listed(term.kinds, 'and')}, and task {task.name} is of the kind "
            f"{task.kind} → name it for single tasks: student.distil.tasks.NAME"
        )
    if unknown := [name for name in term.needs.outputs if name not in OUTPUTS]:
        raise UserError(
            f"student.distil: the loss {loss} needs {listed(unknown, 'and')} of the model, which gives "
            f"{listed(OUTPUTS, 'and')} → correct the plug-in"
        )
    return term


def terms_of(task: Task, distil: Distil | None) -> TaskTerms:
    """Return the terms that a task is learnt by; without `distil`, from gold alone."""
    settings, names = (distil or Distil()).of(task.name), [task.kind.hard]
    soft: dict[str, Term] = {}
    if distil is not None:
        soft = {"soft": soft_term(task, settings.loss), **{name: soft_term(task, name) for name in settings.more}}
        names += [task.kind.soft.get(settings.loss, settings.loss), *settings.more]
    needs = [term.needs for term in soft.values() if "logits" in term.needs.columns]
    if len({each.form for each in needs}) > 1:
        raise UserError(
            f"student.distil: the losses {listed([settings.loss, *settings.more], 'and')} of task {task.name} need "
            "teachers' logits in different forms → leave one out"
        )
    return TaskTerms(task, settings, tuple(names), LOSSES[task.kind.hard](), soft)


def columns_for(task: Task, distil: Distil) -> tuple[str, ...]:
    """Return the columns of teachers that a task's terms need; logits come first, since gold may be missing."""
    needed = (name for term in terms_of(task, distil).soft.values() for name in term.needs.columns)
    return tuple(dict.fromkeys(("logits", *needed)))


def plugin_facts(settings: Distil) -> list[dict[str, Any]]:
    """Return what stands in fingerprints for the plug-ins of a task's distillation; nothing where there are none."""
    shapes = [settings.anneal.shape] if settings.anneal else []
    facts = [LOSSES.facts(name) for name in (settings.loss, *settings.more) if name not in SOFT]
    return [each for each in (*facts, *map(ANNEALING.facts, shapes)) if each]


def takes_tensors(shape: str) -> bool:
    """Tell whether an annealing shape can be part of a CUDA graph: it takes a tensor and never reads its value."""
    try:
        return isinstance(ANNEALING[shape](torch.zeros((), device="meta")), Tensor)
    except Exception:  # a plug-in may fail in any way
        return False


def task_rows(terms: TaskTerms, batch: Batch | Packed, where: Tensor, regression: str) -> TaskRows:
    """Return the rows of one task, which stand at `where` in the batch."""
    task = terms.task
    gold = batch.gold[where]
    if gold.ndim == 2:  # some task's gold has several numbers
        width = task.kind.gold_numbers(task)
        gold = gold[:, 0] if width == 1 else gold[:, :width]
    columns = {name: values[where] for name, values in batch.columns.items()}
    if "logits" in columns:  # other tasks may have more outputs
        columns["logits"] = columns["logits"][:, : task.outputs]
    queries = None
    if task.kind.grouped:
        assert isinstance(batch, Batch), "rankings are not trained on packed rows"
        queries = BatchQueries(batch.group[where])
    return TaskRows(task, regression, terms.settings.temperature, gold, columns, queries)


def taught_rows(rows: TaskRows, columns: Sequence[str]) -> Tensor:
    """Tell of which rows teachers have filled all these columns, [n]; of a grouped kind, for all candidates."""
    there = torch.ones(len(rows), dtype=torch.bool, device=rows.gold.device)
    for name in columns:
        if name not in rows.columns:
            return torch.zeros_like(there)
        there &= ~rows.columns[name].reshape(len(rows), -1)[:, 0].isnan()
    return rows.every(there)


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
