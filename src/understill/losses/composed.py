"""The composed objective: any loss terms, task by task; the fused form is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.losses.mixing import TaskTerms, task_rows, taught_rows, weights_at
from understill.losses.objective import PARTS, Loss, Objective
from understill.losses.term import TaskRows, Term
from understill.plugins import LOSSES
from understill.recipe.schema import Distil
from understill.tasks import Task


class ComposedObjective(Objective):
    """Every task's terms, each on the rows that have what it needs, added up by weight.

    It takes what plug-ins bring: terms of their own, and kinds whose gold has several numbers for each row.
    """

    def __init__(self, tasks: Sequence[Task], regression: str, distil: Distil | None = None) -> None:
        super().__init__(tasks, regression, distil)
        self.parts = tuple(dict.fromkeys((*PARTS, *(part for each in self.terms for part in each.soft))))
        names = dict.fromkeys(name for each in self.terms for name in each.names if not LOSSES.is_own(name))
        self.why_plain = f"the loss {' and '.join(names)} is a plug-in's" if names else "its losses are not fused"

    def forward(
        self, logits: Tensor, batch: Batch | Packed, denominator: float = 1.0, progress: float | Tensor = 0.0
    ) -> Loss:
        """Return the weighted sum of the rows' losses over the denominator, as every objective does."""
        logits = logits.float()
        parts = torch.zeros(len(self.parts), len(self.tasks), device=logits.device)
        counts = torch.zeros_like(parts)
        totals, start = [logits.sum() * 0.0], 0  # a batch with nothing to learn from has a gradient all the same
        for number, terms in enumerate(self.terms):
            where = (batch.task == number).nonzero().squeeze(1)
            own = logits[where, start : start + terms.task.outputs]
            start += terms.task.outputs
            if len(where):
                rows = task_rows(terms, batch, where, self.regression)
                values, flags = self._values(terms, own, rows)
                total = _add(terms, values, flags, float(progress)) * batch.weight[where]
                totals.append(total.sum())
                parts[:, number] = torch.stack([total, *values.values()]).detach().sum(dim=1)
                unit = torch.ones_like(where, dtype=torch.bool) if rows.queries is None else rows.queries.first
                marks = torch.stack([unit, *(flags[part] & unit for part in self.parts[1:])])
                counts[:, number] = marks.float().sum(dim=1)
        return Loss(torch.stack(totals).sum() / denominator, parts, counts)

    def _values(self, terms: TaskTerms, logits: Tensor, rows: TaskRows) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return each part's value for each row of a task, and which rows have it."""
        outputs = {"logits": logits}
        flags = {part: taught_rows(rows, term.needs.columns) for part, term in terms.soft.items()}
        taught = flags.get("soft", torch.zeros(len(rows), dtype=torch.bool, device=logits.device))
        rows = _with_gold(terms.hard, rows, taught)
        flags = {part: torch.zeros_like(taught) for part in self.parts[1:]} | flags | {"hard": terms.hard.known(rows)}
        values = {part: torch.zeros(len(rows), device=logits.device) for part in self.parts[1:]}
        for part, term in {"hard": terms.hard, **terms.soft}.items():
            values[part] = _of_some(term, outputs, rows, flags[part])
        return values, flags


def _of_some(term: Term, outputs: dict[str, Tensor], rows: TaskRows, mask: Tensor) -> Tensor:
    """Return a term's values where rows have what it needs, and 0 elsewhere."""
    nothing = torch.zeros(len(rows), device=mask.device)
    if not mask.any():
        return nothing
    values = term({name: each[mask] for name, each in outputs.items()}, rows.only(mask))
    return nothing.masked_scatter(mask, values)


def _with_gold(term: Term, rows: TaskRows, taught: Tensor) -> TaskRows:
    """Return the rows with the teachers' answers where there is no gold."""
    taught = taught & taught_rows(rows, ("logits",))  # a loss of other columns may know more rows
    missing = taught & ~rows.given
    if not missing.any():
        return rows
    stand_in = term.gold_of(rows.only(taught))
    if stand_in is None:
        return rows
    gold = rows.gold.clone()
    gold[missing] = stand_in[missing[taught]].to(gold.dtype)
    return replace(rows, gold=gold)


def _add(terms: TaskTerms, values: dict[str, Tensor], flags: dict[str, Tensor], progress: float) -> Tensor:
    """Add a task's parts up by their weights at this point of the run, [n]."""
    hard, soft = weights_at(terms.settings, progress)
    against = values["soft"] + sum(weight * values[name] for name, weight in terms.settings.more.items())
    return values["hard"] * torch.where(flags["soft"], hard, 1.0) + against * soft
