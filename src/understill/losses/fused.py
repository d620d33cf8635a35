"""The fused objective: the built-in losses for all rows of a batch at once, whatever their tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.losses.composed import ComposedObjective
from understill.losses.mixing import TaskTerms, ends, takes_tensors, terms_of
from understill.losses.objective import Loss, Objective
from understill.losses.squared_error import scale_of
from understill.losses.term import BatchQueries
from understill.models.heads import link
from understill.plugins import ANNEALING
from understill.recipe.schema import Distil
from understill.tasks import Task

_SHAPES = ("linear", "cosine", "quadratic")
#: Pairs of hard and soft terms that the tables below can express.
FUSED = {
    ("cross_entropy", "soft_cross_entropy"),
    ("cross_entropy", "logits"),
    ("squared_error", "soft_squared_error"),
    ("listwise", "soft_listwise"),
    ("listwise", "logits"),
}


def can_fuse(terms: TaskTerms) -> bool:
    """Tell whether a task's terms have a fused form."""
    paired = terms.names in FUSED if terms.soft else terms.names[0] in {hard for hard, _ in FUSED}
    return paired and (terms.names[0] == "cross_entropy" or terms.task.outputs == 1)


class _Targets(NamedTuple):
    """The teachers' targets for a batch's rows."""

    taught: Tensor  # [n], rows that have targets
    own: Tensor  # [n, W], outputs that the row's task has
    values: Tensor  # [n, W], 0 where there is no target


class _Rows(NamedTuple):
    """What each row of a batch comes to, [n] each."""

    hard: Tensor  # the loss against its label, unweighted
    soft: Tensor  # the loss against its teacher
    unit: Tensor  # whether it counts: of a query's candidates, only the first does
    known: Tensor  # whether it has a hard part
    taught: Tensor  # whether it has a soft one


class FusedObjective(Objective):
    """What the terms give, without a loop over tasks or a wait for the device, as CUDA graphs need it."""

    # Everything below is a lookup by task number, so that one batch of fixed shape needs no Python per task.
    owner: Tensor  # [columns] the task of each output
    first: Tensor  # [tasks] its first output
    width: Tensor  # [tasks] its number of outputs
    scored: Tensor  # [tasks] whether it gives a score, rather than classes
    ranked: Tensor  # [tasks] whether that is the score of a candidate
    low: Tensor  # [tasks] a score is read as (score − low) / span
    span: Tensor
    heat: Tensor  # [tasks] the temperature
    matched: Tensor  # [tasks] whether logits are matched, rather than distributions
    shape: Tensor  # [shapes, tasks] 1 for the task's shape of annealing
    base: Tensor  # [2, tasks] the weights of hard and soft at the start
    rise: Tensor  # [2, tasks] how much they change by the end

    def __init__(self, tasks: Sequence[Task], regression: str, distil: Distil | None = None) -> None:
        super().__init__(tasks, regression, distil)
        self.ranks = any(task.kind.grouped for task in tasks)
        widths = [task.outputs for task in tasks]
        ranges = [scale_of(task, regression) for task in tasks]
        settings = [each.settings for each in self.terms]
        hard = [each.names[0] for each in self.terms]
        shapes = [each.anneal.shape if each.anneal else "linear" for each in settings]
        self.bends = dict.fromkeys(shape for shape in shapes if shape not in _SHAPES)  # those of plug-ins
        slow = [shape for shape in self.bends if not takes_tensors(shape)]
        self.why_plain = f"the annealing shape {' and '.join(slow)} does not take tensors" if slow else ""
        base, rise = zip(*(ends(each) for each in settings), strict=True)
        tables = {
            "owner": torch.tensor([index for index, width in enumerate(widths) for _ in range(width)]),
            "first": torch.tensor([sum(widths[:index]) for index in range(len(widths))]),
            "width": torch.tensor(widths),
            "scored": torch.tensor([name != "cross_entropy" for name in hard]),
            "ranked": torch.tensor([name == "listwise" for name in hard]),
            "low": torch.tensor([low for low, _ in ranges]),
            "span": torch.tensor([high - low for low, high in ranges]),
            "heat": torch.tensor([each.temperature for each in settings]),
            "matched": torch.tensor([each.names[1:] == ("logits",) for each in self.terms]),
            "shape": torch.tensor([[float(shape == each) for each in shapes] for shape in (*_SHAPES, *self.bends)]),
            "base": torch.tensor(base).T.contiguous(),
            "rise": torch.tensor(rise).T.contiguous(),
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(
        self, logits: Tensor, batch: Batch | Packed, denominator: float = 1.0, progress: float | Tensor = 0.0
    ) -> Loss:
        """Return the weighted sum of the rows' losses over the denominator, as every objective does."""
        logits = logits.float()
        queries = self._queries(batch)
        teacher = self._teacher(batch, queries)
        gold = batch.gold if teacher is None else self._gold(batch, teacher, queries)
        known = ~gold.isnan()
        first = logits.gather(1, self.first[batch.task].unsqueeze(1)).squeeze(1)
        score = link(first, self.regression)
        # `check` sees the first batch only; later on, a row with nothing to learn from adds nothing.
        hard = torch.where(known, self._hard(logits, score, batch.task, gold.nan_to_num()), 0.0)
        if teacher is None:
            soft, taught = torch.zeros_like(hard), torch.zeros_like(known)
        else:
            soft, taught = self._soft(logits, score, batch.task, teacher), teacher.taught  # 0 where there is no target
        rows = _Rows(hard, soft, torch.ones_like(known), known, taught)
        if queries is not None:
            rows = self._by_query(rows, first, gold, batch.task, teacher, queries)
        total = rows.hard
        if teacher is not None:
            weights = self.weights(progress)[:, batch.task]
            total = rows.hard * torch.where(taught, weights[0], 1.0) + rows.soft * weights[1]
        total = total * batch.weight
        nothing = torch.zeros(len(self.parts), len(self.tasks), device=total.device)
        parts = nothing.index_add(1, batch.task, torch.stack([total, rows.hard, rows.soft]).detach())
        counts = nothing.index_add(1, batch.task, torch.stack([rows.unit, rows.known, rows.taught]).float())
        return Loss(total.sum() / denominator, parts, counts)

    def weights(self, progress: float | Tensor) -> Tensor:
        """Return the weights of the hard and the soft part of each task, [2, tasks]."""
        cosine = torch.cos(progress * math.pi) if isinstance(progress, Tensor) else math.cos(progress * math.pi)
        linear, bent, squared, *others = self.shape.unbind()
        share = linear * progress + bent * (1 - cosine) / 2 + squared * progress * progress
        for name, mask in zip(self.bends, others, strict=True):
            share = share + mask * ANNEALING[name](progress)
        return self.base + self.rise * share

    def _queries(self, batch: Batch | Packed) -> BatchQueries | None:
        """Find out which rows are candidates of the same query; None where no task is a ranking."""
        if not self.ranks:
            return None
        assert isinstance(batch, Batch), "rankings are not trained on packed rows"
        return BatchQueries(batch.group)

    def _teacher(self, batch: Batch | Packed, queries: BatchQueries | None) -> _Targets | None:
        """Read the teachers' column; None where there is nothing to read."""
        column = batch.columns.get("logits")
        if self.distil is None or column is None:
            return None
        own = torch.arange(column.shape[1], device=column.device) < self.width[batch.task].unsqueeze(1)
        taught = ~column[:, 0].isnan()
        if queries is not None:
            taught = ~queries.any(~taught)
        # NaN goes before any arithmetic: times zero it would still be NaN, in the gradient as well.
        return _Targets(taught, own, torch.where(own & taught.unsqueeze(1), column, 0.0))

    def _gold(self, batch: Batch | Packed, teacher: _Targets, queries: BatchQueries | None) -> Tensor:
        """Return gold labels, and the teacher's answer where there is none."""
        best = teacher.values.masked_fill(~teacher.own, -torch.inf).argmax(dim=1)
        score = teacher.values[:, 0]
        stand_in = torch.where(self.scored[batch.task], score, best)
        if queries is not None:
            stand_in = torch.where(self.ranked[batch.task], (score == queries.best(score)).float(), stand_in)
        return torch.where(batch.gold.isnan() & teacher.taught, stand_in, batch.gold)

    def _hard(self, logits: Tensor, score: Tensor, task: Tensor, gold: Tensor) -> Tensor:
        """Return each row's unweighted loss against its label, [n]."""
        scored = self.scored[task]
        foreign = self.owner.unsqueeze(0) != task.unsqueeze(1)  # [n, columns]
        log_probabilities = logits.masked_fill(foreign, -torch.inf).log_softmax(dim=1)
        column = self.first[task] + torch.where(scored, 0, gold).long()
        surprise = -log_probabilities.gather(1, column.unsqueeze(1)).squeeze(1)
        # Each branch is finite for every row, so the branch not taken adds no NaN to the gradient.
        return torch.where(scored, self._distance(score, gold, task), surprise)

    def _soft(self, logits: Tensor, score: Tensor, task: Tensor, teacher: _Targets) -> Tensor:
        """Return each row's unweighted loss against its teacher, [n]: summed over classes, never their mean."""
        scored, matched = self.scored[task], self.matched[task].unsqueeze(1)
        cells = torch.arange(teacher.own.shape[1], device=task.device)
        columns = (self.first[task].unsqueeze(1) + cells).clamp(max=len(self.owner) - 1)
        student = logits.gather(1, columns)  # [n, W]
        targets = teacher.own & (teacher.taught & ~scored).unsqueeze(1)  # [n, W], of classes

        heat = self.heat[task]
        log_p = (student / heat.unsqueeze(1)).masked_fill(~teacher.own, -torch.inf).log_softmax(dim=1)
        log_q = teacher.values.masked_fill(~targets | matched, -torch.inf)
        q = log_q.exp()
        # The teacher's entropy changes no gradient; with it the least loss is 0. Where q is 0, 0·log 0 is 0.
        divergence = heat**2 * (q * (log_q - log_p)).masked_fill(q == 0, 0.0).sum(dim=1)
        squares = (student - teacher.values).masked_fill(~(targets & matched), 0.0).square().sum(dim=1)
        distance = self._distance(score, torch.where(scored, teacher.values[:, 0], 0.0), task)
        return torch.where(scored & teacher.taught, distance, divergence + squares)

    def _by_query(
        self,
        rows: _Rows,
        scores: Tensor,
        gold: Tensor,
        task: Tensor,
        teacher: _Targets | None,
        queries: BatchQueries,
    ) -> _Rows:
        """Give the first candidate of each query its losses, and the others none; rows of other kinds stay."""
        ranked, first, right = self.ranked[task], queries.first, gold == 1
        # Only a choice between right and wrong teaches something.
        known = rows.known & ~(ranked & (queries.any(~rows.known) | ~queries.any(right)))
        hard = torch.where(known & first, queries.surprise(scores, right), 0.0)
        hard = torch.where(ranked, hard, rows.hard)
        soft = rows.soft
        if teacher is not None:
            heat, targets = self.heat[task], teacher.values[:, 0]
            squares = queries.sum((scores - targets).square())
            divergence = heat**2 * queries.divergence(scores / heat, targets)
            choice = torch.where(self.matched[task], squares, divergence)
            soft = torch.where(ranked, torch.where(teacher.taught & first, choice, 0.0), soft)
        return _Rows(hard, soft, first, known & first, rows.taught & first)

    def _distance(self, score: Tensor, wanted: Tensor, task: Tensor) -> Tensor:
        """Return squared errors of scores, where the wanted ones are on their tasks' scales."""
        return functional.mse_loss(score, (wanted - self.low[task]) / self.span[task], reduction="none")


def make_objective(tasks: Sequence[Task], regression: str, distil: Distil | None = None) -> Objective:
    """Return the loss of a model: fused where all its terms allow it, else composed term by term.

    `regression` says what heads of scores give.
    """
    fused = all(can_fuse(terms_of(task, distil)) for task in tasks)
    return (FusedObjective if fused else ComposedObjective)(tasks, regression, distil)
