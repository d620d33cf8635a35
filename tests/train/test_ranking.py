"""Ranking: a query has the loss of the formula, whatever stands beside it, and training goes by whole queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers import ANSWER, MOOD, STARS, chosen, liven, same, some_model, some_queries, some_tokens, weights_of, wider
from understill.data.batch import Batch, Stream
from understill.data.batches import Batches
from understill.errors import TrainingError, UserError
from understill.events import Fitted
from understill.losses.fused import FusedObjective as Objective
from understill.losses.term import BatchQueries
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Anneal, Distil, Machine, Training
from understill.train.cuda_graph import why_not
from understill.train.device import make_accelerator
from understill.train.fit import fit
from understill.train.loop import Step, steps
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer

NAN = float("nan")
#: Classes, candidates, a score, and candidates again: columns 0-1, 2, 3, 4.
MIXED = (MOOD, ANSWER, STARS, replace(ANSWER, name="reply", head="reply"))
FIRST = (0, 2, 3, 4)
COLUMNS = 5
MODES: list[Literal["mixed", "one_task"]] = ["mixed", "one_task"]


def batch_of(units: list[tuple[int, list[float]]], output: list[list[float]] | None = None) -> Batch:
    """Return units of tasks, with the gold of their rows and, for queries, what a teacher says of them."""
    task = [number for number, gold in units for _ in gold]
    gold = [each for _, golds in units for each in golds]
    group = [7 * place + 3 for place, (_, golds) in enumerate(units) for _ in golds]  # only that they differ counts
    rows, nothing = len(task), torch.zeros(len(task), dtype=torch.long)
    columns = {}
    if output is not None:
        columns["logits"] = torch.full((rows, 2), NAN)
        columns["logits"][:, 0] = torch.tensor([each for golds in output for each in golds])
    return Batch(
        nothing[:, None], nothing, nothing, torch.tensor(task), torch.tensor(gold), torch.ones(rows), nothing,
        torch.tensor(group), columns,
    )  # fmt: skip


def by_hand(scores: list[Tensor], gold: list[float]) -> Tensor:
    """−log of the probability of all right candidates together, written out."""
    top = max(score.item() for score in scores)
    everything = sum((torch.exp(score - top) for score in scores), torch.zeros((), dtype=torch.float64))
    right = [torch.exp(score - top) for score, each in zip(scores, gold, strict=True) if each == 1]
    return -torch.log(sum(right, torch.zeros((), dtype=torch.float64)) / everything)


def other_by_hand(logits: Tensor, task: int, gold: float) -> Tensor:
    if task == 0:
        return torch.logsumexp(logits[:2], 0) - logits[int(gold)]
    return (logits[3] - (gold - 1) / 4) ** 2


def total_by_hand(logits: Tensor, units: list[tuple[int, list[float]]]) -> Tensor:
    """The summed loss of a batch, row by row and query by query in float64."""
    total, row = torch.zeros((), dtype=torch.float64), 0
    for task, gold in units:
        mine = logits[row : row + len(gold)]
        if task in (1, 3):
            total = total + by_hand([each[FIRST[task]] for each in mine], gold)
        else:
            total = total + other_by_hand(mine[0], task, gold[0])
        row += len(gold)
    return total


@st.composite
def queries(draw: st.DrawFn) -> tuple[int, list[float]]:
    """A query of one of the two rankings, with right and wrong candidates in any order."""
    gold = draw(st.permutations([1.0, 0.0, *draw(st.lists(st.sampled_from([0.0, 0.0, 1.0]), max_size=4))]))
    return draw(st.sampled_from([1, 3])), list(gold)


UNITS = st.lists(
    queries()
    | st.sampled_from([0.0, 1.0]).map(lambda gold: (0, [gold]))
    | st.floats(1, 5, width=32).map(lambda gold: (2, [gold])),
    min_size=1,
    max_size=6,
)


def some_logits(rows: int, seed: int, size: float = 3.0) -> Tensor:
    return torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(seed)) * size


def descend(objective: Objective, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    total = objective(leaf, batch).total
    total.backward()
    assert leaf.grad is not None
    return total.detach(), leaf.grad


# The hard loss -------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(UNITS, st.integers(0, 2**30), st.sampled_from([0.1, 3.0, 20.0]))
def test_loss_and_gradient_are_those_of_the_formula(
    units: list[tuple[int, list[float]]], seed: int, size: float
) -> None:
    batch = batch_of(units)
    logits, objective = some_logits(len(batch), seed, size), Objective(MIXED, "unit")
    objective.check(logits, batch)
    theirs = logits.double().requires_grad_()
    expected = total_by_hand(theirs, units)
    expected.backward()
    total, gradient = descend(objective, logits, batch)
    assert theirs.grad is not None
    torch.testing.assert_close(total.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_hand_worked_queries() -> None:
    logits = torch.zeros(6, COLUMNS)
    logits[:, 2] = torch.log(torch.tensor([6.0, 3.0, 1.0, 1.0, 1.0, 2.0]))
    loss = Objective(MIXED, "unit")(logits, batch_of([(1, [0.0, 1.0, 0.0]), (1, [1.0, 0.0, 1.0])]))
    assert float(loss.total) == pytest.approx(-math.log(3 / 10) - math.log(3 / 4))
    assert loss.parts[0].tolist() == pytest.approx([0, float(loss.total), 0, 0])
    assert loss.counts.tolist() == [[0, 2, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]], "queries are counted, not candidates"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**30))
@settings(max_examples=25)
def test_the_sums_over_queries_have_the_gradient_they_should(sizes: list[int], seed: int) -> None:
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    result, random = BatchQueries(group), torch.Generator().manual_seed(seed)
    scores, log_q = (torch.randn(len(group), dtype=torch.float64, generator=random).requires_grad_() for _ in range(2))
    right = torch.rand(len(group), generator=random) < 0.5
    right[result.first] = True
    assert torch.autograd.gradcheck(lambda values: result.surprise(values, right), scores)
    assert torch.autograd.gradcheck(result.divergence, (scores, log_q))
    assert (result.surprise(scores, torch.zeros_like(right)) == 0).all(), "nothing is known where no candidate is right"
    for query in range(len(sizes)):
        mine = group == query
        torch.testing.assert_close(result.log_softmax(scores)[mine], scores[mine].log_softmax(0))
        torch.testing.assert_close(result.best(scores)[mine], scores[mine].max().detach().expand(sizes[query]))


@settings(max_examples=60)
@given(st.lists(queries(), min_size=1, max_size=4), st.integers(0, 2**30))
def test_the_order_of_candidates_does_not_matter(units: list[tuple[int, list[float]]], seed: int) -> None:
    batch, objective = batch_of(units), Objective(MIXED, "unit")
    logits = some_logits(len(batch), seed)
    random = np.random.default_rng(seed)
    order = np.concatenate(
        [random.permutation(np.flatnonzero(batch.group.numpy() == unit)) for unit in batch.group.unique().tolist()]
    )
    turned = batch.map(lambda tensor: tensor[order])
    total, gradient = descend(objective, logits, batch)
    other, there = descend(objective, logits[order], turned)
    torch.testing.assert_close(other, total, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(there, gradient[order], rtol=1e-5, atol=1e-6)


@settings(max_examples=60)
@given(UNITS, st.integers(0, 2**30))
def test_a_query_does_not_depend_on_what_stands_beside_it(units: list[tuple[int, list[float]]], seed: int) -> None:
    batch, objective = batch_of(units), Objective(MIXED, "unit")
    logits = some_logits(len(batch), seed)
    whole = objective(logits, batch)
    alone = [objective(logits[rows], batch.part(rows)) for rows in batch.cut(1)]
    assert len(alone) == len(units)
    torch.testing.assert_close(sum(each.total for each in alone), whole.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(each.parts for each in alone), whole.parts, rtol=1e-5, atol=1e-5)
    assert torch.equal(sum((each.counts for each in alone), torch.zeros_like(whole.counts)), whole.counts)


def test_only_the_columns_of_its_own_task_get_a_gradient() -> None:
    batch = batch_of([(1, [1.0, 0.0]), (0, [1.0]), (3, [0.0, 1.0, 0.0])])
    _, gradient = descend(Objective(MIXED, "unit"), some_logits(len(batch), 0), batch)
    own = torch.zeros(6, COLUMNS, dtype=torch.bool)
    own[:2, 2], own[2, :2], own[3:, 4] = True, True, True
    assert (gradient[own] != 0).all() and (gradient[~own] == 0).all()


def test_a_sigmoid_for_regressions_leaves_scores_of_candidates_alone() -> None:
    batch = batch_of([(1, [1.0, 0.0])])
    logits = some_logits(2, 0)
    assert torch.equal(Objective(MIXED, "sigmoid")(logits, batch).total, Objective(MIXED, "raw")(logits, batch).total)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_extreme_scores_stay_finite(size: float) -> None:
    logits = (torch.tensor([[1.0], [-1.0], [0.5]]) * size).expand(3, COLUMNS)
    total, gradient = descend(Objective(MIXED, "unit"), logits, batch_of([(1, [0.0, 1.0, 0.0])]))
    assert total.isfinite() and gradient.isfinite().all()


def test_scores_that_are_no_numbers_are_not_hidden() -> None:
    logits = torch.zeros(2, COLUMNS)
    logits[0, 2] = NAN
    assert Objective(MIXED, "unit")(logits, batch_of([(1, [1.0, 0.0])])).total.isnan()


def test_the_weight_of_a_task_multiplies_the_loss_of_its_queries() -> None:
    batch, logits = batch_of([(1, [1.0, 0.0, 0.0]), (3, [0.0, 1.0])]), some_logits(5, 0)
    heavy = replace(batch, weight=torch.where(batch.task == 1, 3.0, 1.0))
    plain, weighted = (Objective(MIXED, "unit")(logits, each).parts for each in (batch, heavy))
    torch.testing.assert_close(weighted[0], plain[0] * torch.tensor([1.0, 3.0, 1.0, 1.0]))
    assert torch.equal(weighted[1:], plain[1:])


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([(1, [0.0, 2.0])], "task answer: gold 2.0 is not one of its classes"),
        ([(1, [0.5, 1.0])], "task answer: gold 0.5"),
        ([(1, [1.0, 0.0]), (3, [0.0, 0.0])], "task reply: a query has no right candidate"),
        ([(1, [NAN, 1.0])], "task answer: a training row has no gold label$"),
    ],
)
def test_check_refuses_queries_that_cannot_teach(units: list[tuple[int, list[float]]], words: str) -> None:
    batch = batch_of(units)
    with pytest.raises(TrainingError, match=words):
        Objective(MIXED, "unit").check(torch.zeros(len(batch), COLUMNS), batch)


def test_a_query_that_cannot_teach_adds_nothing_later_on() -> None:
    logits = some_logits(6, 0)
    batch = batch_of([(1, [0.0, 0.0]), (1, [NAN, 1.0]), (1, [1.0, 0.0])])
    loss = Objective(MIXED, "unit")(logits, batch)
    assert float(loss.total) == pytest.approx(
        float(Objective(MIXED, "unit")(logits[4:], batch.part(slice(4, 6))).total)
    )
    assert loss.counts[:2, 1].tolist() == [3, 1]


# The soft loss -------------------------------------------------------------------------------------------------------


def log_q(raw: Tensor, temperature: float = 1.0) -> list[float]:
    return (raw.double() / temperature).log_softmax(0).tolist()


@settings(max_examples=100)
@given(
    st.lists(queries(), min_size=1, max_size=4),
    st.integers(0, 2**30),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.sampled_from(["cross_entropy", "logits"]),
    st.floats(0, 1),
)
def test_taught_loss_is_that_of_the_formula(
    units: list[tuple[int, list[float]]], seed: int, heat: float, loss: Any, progress: float
) -> None:
    rows = sum(len(gold) for _, gold in units)
    logits, raw = some_logits(rows, seed), some_logits(rows, seed + 1)[:, 0]
    distil = Distil(loss=loss, temperature=heat, hard=0.5, soft=2.0, anneal=Anneal())
    output, expected, row = [], torch.zeros((), dtype=torch.float64), 0
    theirs = logits.double().requires_grad_()
    for task, gold in units:
        span = slice(row, row + len(gold))
        student, teacher = theirs[span, FIRST[task]], raw[span].double()
        hard = by_hand(list(student), gold)
        if loss == "logits":
            soft, mine = sum((student[i] - teacher[i]) ** 2 for i in range(len(gold))), teacher.tolist()
        else:
            mine = log_q(teacher, heat)
            log_p = (student / heat).log_softmax(0)
            soft = heat**2 * sum(math.exp(mine[i]) * (mine[i] - log_p[i]) for i in range(len(gold)))
        output.append(mine)
        expected = expected + 0.5 * progress * hard + 2.0 * (1 - progress) * soft
        row += len(gold)
    expected.backward()
    batch, objective = batch_of(units, output), Objective(MIXED, "unit", distil)
    objective.check(logits, batch)
    leaf = logits.clone().requires_grad_()
    result = objective(leaf, batch, 1.0, progress)
    result.total.backward()
    assert leaf.grad is not None and theirs.grad is not None
    torch.testing.assert_close(result.total.double(), expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(leaf.grad.double(), theirs.grad, rtol=1e-3, atol=1e-4)
    assert result.counts.sum(dim=1).tolist() == [len(units)] * 3


SOFT = Distil(hard=0.0, soft=1.0, anneal=None)


def soft_loss(scores: Tensor, output: list[float], distil: Distil = SOFT) -> float:
    logits = torch.zeros(len(output), COLUMNS)
    logits[:, 2] = scores
    gold = [1.0, *[0.0] * (len(output) - 1)]
    return float(Objective(MIXED, "unit", distil)(logits, batch_of([(1, gold)], [output])).total)


@given(st.integers(2, 7), st.integers(0, 2**30), st.sampled_from([1.0, 2.0]))
def test_the_soft_loss_is_cross_entropy_less_the_teachers_entropy_and_0_at_its_own_scores(
    size: int, seed: int, heat: float
) -> None:
    scores, raw = some_logits(size, seed)[:, 0], some_logits(size, seed + 1)[:, 0]
    distil = Distil(hard=0.0, soft=1.0, anneal=None, temperature=heat)
    q, p = (torch.softmax(each.double() / heat, 0) for each in (raw, scores))
    cross, entropy = -(q * p.log()).sum(), -(q * q.log()).sum()
    assert soft_loss(scores, log_q(raw, heat), distil) == pytest.approx(
        heat**2 * float(cross - entropy), rel=1e-4, abs=1e-5
    )
    assert soft_loss(raw, log_q(raw, heat), distil) == pytest.approx(0, abs=1e-5)
    assert soft_loss(raw + 7, log_q(raw, heat), distil) == pytest.approx(0, abs=1e-5), "only differences count"


@given(st.integers(3, 7), st.integers(0, 2**30), st.data())
def test_where_candidates_are_left_out_the_teacher_is_asked_about_the_others(
    size: int, seed: int, data: st.DataObject
) -> None:
    raw, scores = some_logits(size, seed)[:, 0], some_logits(size, seed + 1)[:, 0]
    kept = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=size - 1, unique=True))
    whole = log_q(raw)
    cut = soft_loss(scores[kept], [whole[place] for place in kept])
    assert cut == pytest.approx(soft_loss(scores[kept], log_q(raw[kept])), rel=1e-4, abs=1e-5)


def test_a_query_of_which_teachers_say_nothing_or_not_everything_has_its_hard_part_alone() -> None:
    logits = some_logits(6, 0)
    units = [(1, [1.0, 0.0, 0.0]), (1, [0.0, 1.0, 0.0])]
    objective = Objective(MIXED, "unit", SOFT)
    for silent in ([NAN] * 3, [-0.5, NAN, -1.0], [NAN, -0.1, -0.2]):
        batch = batch_of(units, [silent, log_q(torch.tensor([1.0, 2.0, 3.0]))])
        objective.check(logits, batch)
        loss = objective(logits, batch)
        hard = by_hand(list(logits[:3, 2].double()), [1.0, 0.0, 0.0])
        assert float(loss.total - loss.parts[2, 1]) == pytest.approx(float(hard), rel=1e-5)
        assert loss.counts[:, 1].tolist() == [2, 2, 1]
        assert descend(objective, logits, batch)[1].isfinite().all()


def test_without_gold_the_teachers_best_candidate_is_the_right_one() -> None:
    logits = some_logits(3, 0)
    output = log_q(torch.tensor([0.0, 2.0, 1.0]))
    hard = Distil(hard=1.0, soft=0.0, anneal=None)
    batch = batch_of([(1, [NAN, NAN, NAN])], [output])
    objective = Objective(MIXED, "unit", hard)
    objective.check(logits, batch)
    assert float(objective(logits, batch).total) == pytest.approx(
        float(by_hand(list(logits[:, 2].double()), [0.0, 1.0, 0.0])), rel=1e-5
    )


def test_check_refuses_probabilities_that_sum_to_more_than_1() -> None:
    batch = batch_of([(1, [1.0, 0.0])], [[-0.1, -0.1]])
    with pytest.raises(TrainingError, match=r"task answer: a teacher's probabilities sum to 1\.8"):
        Objective(MIXED, "unit", SOFT).check(torch.zeros(2, COLUMNS), batch)
    cut = batch_of([(1, [1.0, 0.0])], [[-2.0, -3.0]])
    Objective(MIXED, "unit", SOFT).check(torch.zeros(2, COLUMNS), cut)
    Objective(MIXED, "unit", Distil(loss="logits")).check(torch.zeros(2, COLUMNS), batch)


# Training ------------------------------------------------------------------------------------------------------------

TASKS = (MOOD, ANSWER)


def batches(
    *, order: bool = False, mode: Literal["mixed", "one_task"] = "mixed", most: int | None = None, taught: bool = False
) -> Batches:
    """Return mood and answer, with the candidates of each query turned round where `order` says so."""
    sizes = [2, 3, 5, 4] * 5
    tokens, groups = some_queries(sizes)
    if order:
        tokens = chosen(tokens, np.concatenate([np.flatnonzero(groups == query)[::-1] for query in range(len(sizes))]))
    even = np.log(np.repeat(1 / np.array(sizes), sizes)).astype(np.float32)[:, None]
    teacher = {"logits": even} if taught else {}
    silent = {"logits": np.full((30, 2), np.nan, np.float32)} if taught else {}
    streams = [
        Stream(0, [some_tokens(MOOD, 30)], columns=silent),
        Stream(1, [tokens], columns=teacher, groups=groups, most=most),
    ]
    return Batches(streams, batch=6, seed=0, mode=mode, window=2, pad=0, sizes=range(1, 33))


def training(**changes: Any) -> Training:
    return Training(**{"steps": 5, "batch": 6, "lr": 1e-3, "evaluate": "never", "checkpoint": "never", **changes})


def train(
    model: MultiTaskModel,
    source: Batches,
    see: Callable[[MultiTaskModel], None] | None = None,
    objective: Objective | None = None,
    **changes: Any,
) -> list[Step]:
    accelerator, how = make_accelerator(Machine(device="cpu", threads=1), "fp32"), training(**changes)
    prepared, optimizer = accelerator.prepare(model, make_optimizer(model, how))
    if see:
        optimizer.optimizer.register_step_pre_hook(lambda *_: see(model))
    objective = objective or Objective(TASKS, "sigmoid")
    guard = NanGuard(2, torch.device("cpu"))
    run = steps(prepared.train(), objective, source, optimizer, accelerator, how, seed=0, start=0, guard=guard)
    return list(run)


def gradients(tiny: Path, source: Batches, **changes: Any) -> Tensor:
    """All gradients of the first update as it is made."""
    seen: list[Tensor] = []
    model = some_model(tiny, TASKS, dropout=0.0)
    liven(model)
    train(
        model,
        source,
        lambda now: seen.extend(each.grad.flatten().clone() for each in now.parameters()),
        steps=1,
        **changes,
    )
    return torch.cat(seen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_gradient_of_a_batch_in_pieces_is_that_of_the_whole(
    mode: Literal["mixed", "one_task"], reduction: str, tiny: Path
) -> None:
    how = {"reduction": reduction, "clip": None}
    whole = gradients(tiny, batches(mode=mode), **how)
    assert whole.norm() > 1e-3
    for micro in (1, 2, 4):
        torch.testing.assert_close(
            gradients(tiny, batches(mode=mode), micro_batch=micro, **how), whole, rtol=1e-3, atol=1e-5
        )


def test_the_mean_is_taken_over_queries_not_over_candidates(tiny: Path) -> None:
    model, source = some_model(tiny, TASKS, dropout=0.0), batches()
    batch = source[0]
    assert len(batch) > 6
    total = Objective(TASKS, "sigmoid")(model(batch), batch, 6.0).total
    total.backward()
    expected = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
    seen: list[Tensor] = []
    fresh = some_model(tiny, TASKS, dropout=0.0)
    train(
        fresh, source, lambda now: seen.extend(each.grad.flatten().clone() for each in now.parameters()), steps=1,
        clip=None,
    )  # fmt: skip
    torch.testing.assert_close(torch.cat(seen), expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_candidates_does_not_change_what_is_learnt(mode: Literal["mixed", "one_task"], tiny: Path) -> None:
    learnt = []
    for order in (False, True):
        model = some_model(tiny, TASKS, dropout=0.0)
        train(model, batches(order=order, mode=mode), eps=1e-2)
        learnt.append(weights_of(model))
    fresh = weights_of(some_model(tiny, TASKS, dropout=0.0))
    assert not same(learnt[0], fresh)
    for name, value in learnt[0].items():
        torch.testing.assert_close(learnt[1][name], value, rtol=0, atol=1e-6)


def test_scores_do_not_depend_on_padding_or_on_the_rest_of_the_batch(tiny: Path) -> None:
    model, batch = some_model(tiny, TASKS).eval(), batches()[0]
    liven(model)
    objective = Objective(TASKS, "sigmoid")
    with torch.no_grad():
        whole = objective(model(batch), batch).parts
        torch.testing.assert_close(objective(model(wider(batch, 30)), batch).parts, whole, rtol=1e-4, atol=1e-5)
        parts = [objective(model(part), part).parts for part in (batch.part(rows) for rows in batch.cut(1))]
    torch.testing.assert_close(torch.stack(parts).sum(dim=0), whole, rtol=1e-4, atol=1e-5)


def test_a_ranking_is_learnt(tiny: Path) -> None:
    model = some_model(tiny, TASKS, dropout=0.0)
    liven(model)
    done = train(model, batches(), steps=80, lr=5e-3)
    first, last = (sum(float(step.parts[0, 1]) for step in part) for part in (done[:10], done[-10:]))
    assert last < 0.4 * first


def test_a_step_counts_queries_and_tells_its_rows(tiny: Path) -> None:
    source = batches(most=3)
    for number, step in enumerate(train(some_model(tiny, TASKS), source)):
        batch = source[number]
        assert step.counts[0].sum() == 6 and step.rows == len(batch) and step.micro_batch == 6
        assert step.counts[0, 1] == len(batch.group[batch.task == 1].unique())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taught", [False, True])
def test_going_on_from_a_checkpoint_ends_with_the_same_bits(
    mode: Literal["mixed", "one_task"], taught: bool, tiny: Path, tmp_path: Path
) -> None:
    distil = Distil(temperature=2, anneal=Anneal()) if taught else None

    def events(folder: Path, model: MultiTaskModel) -> Iterator[Any]:
        return fit(
            model,
            Objective(TASKS, "sigmoid", distil),
            batches(mode=mode, most=3, taught=taught),
            training(steps=6, checkpoint="1 steps"),
            accelerator=make_accelerator(Machine(device="cpu", threads=1), "fp32"),
            seed=0,
            folder=folder,
            evaluate=lambda _: (0.0, {}),
        )

    whole = some_model(tiny, TASKS)
    list(events(tmp_path / "whole", whole))
    for cut in (2, 5):
        folder = tmp_path / str(cut)
        for event in events(folder, some_model(tiny, TASKS)):
            if isinstance(event, Step) and event.number == cut:
                break
        again = some_model(tiny, TASKS, seed=9)
        assert isinstance(list(events(folder, again))[-1], Fitted)
        assert same(weights_of(again), weights_of(whole))


def test_a_query_that_does_not_fit_into_memory_says_what_to_set(tiny: Path) -> None:
    model = some_model(tiny, TASKS)

    def look(_: Any, inputs: tuple[Any, ...]) -> None:
        if len(inputs[0]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.encoder.register_forward_pre_hook(look)
    with pytest.raises(UserError, match=r"one query of 5 candidates at a time: .*, or set tasks.NAME.candidates"):
        train(model, batches(), steps=20)
    train(some_model(tiny, TASKS), batches(most=3), steps=20)


def test_the_fast_path_leaves_rankings_to_the_plain_loop(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = make_accelerator(Machine(device="cpu", threads=1), "fp32")
    monkeypatch.setattr(type(accelerator), "device", torch.device("cuda"))
    monkeypatch.setattr(type(accelerator), "mixed_precision", "bf16")
    assert why_not(some_model(tiny, TASKS), accelerator, training()) == "ranking tasks are trained by the plain loop"
    assert "ranking" not in why_not(some_model(tiny, (MOOD,)), accelerator, training())
