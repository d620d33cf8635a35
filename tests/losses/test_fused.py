"""Every loss against a closed form, and its gradient against an independent one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import COLUMNS, FIRST, MIXED, anneals, lessons, problems, rows_of, speak
from torch import Tensor
from torch.nn import functional

from helpers import MOOD, STARS, TOPIC
from understill.data.batch import Batch
from understill.errors import TrainingError
from understill.losses.fused import FusedObjective as Objective
from understill.recipe.schema import Anneal, Distil
from understill.tasks import Task


def by_hand(logits: Tensor, task: int, gold: float, regression: str) -> Tensor:
    """One row's loss, written out in float64."""
    spec = MIXED[task]
    own = logits[FIRST[task] : FIRST[task] + spec.outputs].double()
    if spec.kind.name == "classification":
        return torch.log(torch.exp(own - own.max()).sum()) + own.max() - own[int(gold)]
    low, high = spec.range if spec.range and regression != "raw" else (0.0, 1.0)
    output = 1 / (1 + torch.exp(-own[0])) if regression == "sigmoid" else own[0]
    return (output - (gold - low) / (high - low)) ** 2


@given(problems(), st.sampled_from(["sigmoid", "unit", "raw"]), st.sampled_from([1.0, 3.0]))
def test_loss_and_gradient_are_those_of_the_formula(
    problem: tuple[Tensor, Batch], regression: str, denominator: float
) -> None:
    logits, batch = problem
    ours = logits.clone().requires_grad_()
    theirs = logits.double().requires_grad_()
    rows = [by_hand(theirs[row], int(batch.task[row]), float(batch.gold[row]), regression) for row in range(len(batch))]
    expected = (torch.stack(rows) * batch.weight.double()).sum() / denominator
    expected.backward()
    loss = Objective(MIXED, regression)(ours, batch, denominator)
    loss.total.backward()
    torch.testing.assert_close(loss.total.double(), expected, rtol=1e-5, atol=1e-5)
    assert ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


@given(problems(), st.sampled_from(["sigmoid", "unit", "raw"]))
def test_other_tasks_columns_get_no_gradient_at_all(problem: tuple[Tensor, Batch], regression: str) -> None:
    logits, batch = problem
    logits = logits.clone().requires_grad_()
    Objective(MIXED, regression)(logits, batch).total.backward()
    assert logits.grad is not None
    for row, task in enumerate(batch.task.tolist()):
        foreign = [column for column in range(COLUMNS) if not 0 <= column - FIRST[task] < MIXED[task].outputs]
        assert torch.equal(logits.grad[row, foreign], torch.zeros(len(foreign)))


@given(problems())
def test_what_other_heads_say_does_not_matter(problem: tuple[Tensor, Batch]) -> None:
    logits, batch = problem
    objective = Objective(MIXED, "sigmoid")
    owner = objective.owner[None] == batch.task[:, None]
    assert torch.equal(
        objective(logits, batch).parts, objective(torch.where(owner, logits, logits * -7 + 3), batch).parts
    )


@given(problems())
def test_a_mixed_batch_is_the_sum_of_its_tasks(problem: tuple[Tensor, Batch]) -> None:
    logits, batch = problem
    objective = Objective(MIXED, "sigmoid")
    loss = objective(logits, batch, 5.0)
    alone = []
    for task in range(4):
        mine = batch.task == task
        only = batch.map(lambda tensor, mine=mine: tensor[mine])
        alone.append(objective(logits[mine], only, 5.0).total)
        torch.testing.assert_close(loss.parts[0, task], 5.0 * alone[-1], rtol=1e-5, atol=1e-6)
        assert loss.counts[:, task].tolist() == [mine.sum(), mine.sum(), 0]
    torch.testing.assert_close(loss.total, torch.stack(alone).sum(), rtol=1e-5, atol=1e-5)


def test_classification_is_torchs_cross_entropy_on_the_tasks_own_slice() -> None:
    torch.manual_seed(0)
    logits = torch.randn(12, COLUMNS) * 4
    task = [0] * 5 + [1] * 7
    gold = [0, 1, 1, 0, 1, 0, 1, 2, 2, 1, 0, 2]
    loss = Objective(MIXED, "sigmoid")(logits, rows_of(task, [float(each) for each in gold]))
    labels = torch.tensor(gold)
    torch.testing.assert_close(loss.parts[0, 0], functional.cross_entropy(logits[:5, :2], labels[:5], reduction="sum"))
    torch.testing.assert_close(loss.parts[0, 1], functional.cross_entropy(logits[5:, 2:5], labels[5:], reduction="sum"))
    assert torch.equal(loss.parts[0], loss.parts[1]) and not loss.parts[2].any()
    assert not loss.parts.requires_grad


@pytest.mark.parametrize(
    ("regression", "logit", "gold", "expected"),
    [
        ("sigmoid", 0.0, 3.0, 0.0),  # the middle of 1 to 5 is 0.5, and so is sigmoid(0)
        ("sigmoid", 0.0, 5.0, 0.25),
        ("unit", 0.75, 2.0, 0.25),  # 2 is a quarter of the way
        ("raw", 0.75, 2.0, 1.5625),
    ],
)
def test_regression_by_hand(regression: str, logit: float, gold: float, expected: float) -> None:
    logits = torch.zeros(1, COLUMNS)
    logits[0, 5] = logit
    assert float(Objective(MIXED, regression)(logits, rows_of([2], [gold])).total) == pytest.approx(expected, abs=1e-7)


def test_without_a_range_a_score_is_taken_as_it_is() -> None:
    logits = torch.zeros(1, COLUMNS)
    logits[0, 6] = 2.0
    assert float(Objective(MIXED, "unit")(logits, rows_of([3], [5.0])).total) == 9.0


def test_mean_is_the_sum_over_the_rows() -> None:
    logits = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(1))
    batch = rows_of([0, 1, 2, 1], [1.0, 2.0, 4.0, 0.0])
    objective = Objective(MIXED, "sigmoid")
    torch.testing.assert_close(objective(logits, batch, 4.0).total * 4, objective(logits, batch).total)


def test_a_rows_weight_multiplies_its_loss() -> None:
    logits = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(2))
    objective = Objective(MIXED, "sigmoid")
    plain = objective(logits, rows_of([0, 1], [1.0, 2.0]))
    weighted = objective(logits, rows_of([0, 1], [1.0, 2.0], [0.5, 3.0]))
    torch.testing.assert_close(weighted.parts[0, :2], plain.parts[0, :2] * torch.tensor([0.5, 3.0]))
    assert torch.equal(weighted.parts[1:], plain.parts[1:])
    assert torch.equal(weighted.counts, plain.counts)


def test_half_precision_logits_are_read_in_fp32() -> None:
    logits = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(3)).bfloat16()
    batch = rows_of([0, 1], [1.0, 2.0])
    objective = Objective(MIXED, "sigmoid")
    loss = objective(logits, batch)
    assert loss.total.dtype == torch.float32
    assert torch.equal(loss.total, objective(logits.float(), batch).total)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_extreme_logits_stay_finite(size: float) -> None:
    logits = (torch.tensor([[1.0, -1, 1, -1, 0, 1, -1]]) * size).repeat(4, 1).requires_grad_()
    loss = Objective(MIXED, "sigmoid")(logits, rows_of([0, 1, 2, 2], [1.0, 1.0, 1.0, 5.0]))
    loss.total.backward()
    assert loss.total.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(2, COLUMNS - 1), (1, COLUMNS), (2,), (2, COLUMNS, 1)])
def test_check_refuses_logits_that_would_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(TrainingError, match="2 rows and 7 outputs"):
        Objective(MIXED, "sigmoid").check(torch.zeros(shape), rows_of([0, 2], [1.0, 2.0]))


@pytest.mark.parametrize(
    ("task", "gold", "message"),
    [
        (0, np.nan, "task mood: a training row has no gold label$"),
        (2, np.nan, "task stars: a training row has no gold label$"),
        (0, 2.0, "task mood: gold 2.0 is not one of its classes"),
        (1, 3.0, "task topic: gold 3.0"),
        (1, -1.0, "task topic: gold -1.0"),
        (1, 0.5, "task topic: gold 0.5"),
    ],
)
def test_check_refuses_gold_that_no_output_stands_for(task: int, gold: float, message: str) -> None:
    batch = rows_of([0, task, 2], [1.0, gold, 3.0])
    with pytest.raises(TrainingError, match=message):
        Objective(MIXED, "sigmoid").check(torch.zeros(3, COLUMNS), batch)


def test_check_takes_what_is_right() -> None:
    Objective(MIXED, "sigmoid").check(torch.zeros(4, COLUMNS), rows_of([0, 1, 2, 3], [1.0, 2.0, -7.5, 9.25]))


@pytest.mark.parametrize("changed", [replace(MOOD, name="other"), TOPIC])
def test_one_task_alone_has_its_own_columns(changed: Task) -> None:
    tasks: tuple[Any, ...] = (changed, STARS)
    logits = torch.randn(2, changed.outputs + 1, generator=torch.Generator().manual_seed(4))
    loss = Objective(tasks, "unit")(logits, rows_of([0, 1], [1.0, 5.0]))
    torch.testing.assert_close(loss.parts[0, 0], -logits[0, :-1].log_softmax(0)[1])
    torch.testing.assert_close(loss.parts[0, 1], (logits[1, -1] - 1) ** 2)


# Teachers ------------------------------------------------------------------------------------------------------------

NAN = float("nan")


def soft_by_hand(logits: Tensor, task: int, teacher_logits: list[float], own: Distil, regression: str) -> Tensor:
    """One row's soft loss, written out in float64."""
    spec = MIXED[task]
    student = logits[FIRST[task] : FIRST[task] + spec.outputs].double()
    if spec.kind.name == "regression":
        return by_hand(logits, task, teacher_logits[0], regression)
    if own.loss == "logits":
        return sum(((student[i] - teacher_logits[i]) ** 2 for i in range(spec.outputs)), torch.zeros(()).double())
    heated = student / own.temperature
    log_p = heated - heated.max() - torch.log(torch.exp(heated - heated.max()).sum())
    total = torch.zeros(()).double()
    for i in range(spec.outputs):
        total = total + math.exp(teacher_logits[i]) * (teacher_logits[i] - log_p[i])
    return own.temperature**2 * total


def taught_by_hand(logits: Tensor, batch: Batch, distil: Distil, regression: str, progress: float) -> Tensor:
    """The summed loss of a batch, row by row in float64."""
    total = torch.zeros(()).double()
    for row, task in enumerate(batch.task.tolist()):
        spec, own = MIXED[task], distil.of(MIXED[task].name)
        teacher_logits = batch.columns["logits"][row, : spec.outputs].double().tolist()
        gold, weight = float(batch.gold[row]), float(batch.weight[row])
        if math.isnan(teacher_logits[0]):
            total = total + weight * by_hand(logits[row], task, gold, regression)
            continue
        if math.isnan(gold):
            gold = (
                teacher_logits[0]
                if spec.kind.name == "regression"
                else float(teacher_logits.index(max(teacher_logits)))
            )
        mix = own.anneal.at(progress) if own.anneal else None
        hard = own.hard * (1.0 if mix is None else mix) * by_hand(logits[row], task, gold, regression)
        soft = (
            own.soft
            * (1.0 if mix is None else 1 - mix)
            * soft_by_hand(logits[row], task, teacher_logits, own, regression)
        )
        total = total + weight * (hard + soft)
    return total


def descend(objective: Objective, logits: Tensor, batch: Batch, progress: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient."""
    leaf = logits.clone().requires_grad_()
    total = objective(leaf, batch, 1.0, progress).total
    total.backward()
    assert leaf.grad is not None
    return total.detach(), leaf.grad


def alike(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


@settings(max_examples=200)
@given(lessons(), st.sampled_from(["sigmoid", "unit", "raw"]), st.floats(0, 1))
def test_taught_loss_and_gradient_are_those_of_the_formula(
    lesson: tuple[Tensor, Batch, Distil], regression: str, progress: float
) -> None:
    logits, batch, distil = lesson
    objective = Objective(MIXED, regression, distil)
    objective.check(logits, batch)
    theirs = logits.double().requires_grad_()
    expected = taught_by_hand(theirs, batch, distil, regression, progress)
    expected.backward()
    total, gradient = descend(objective, logits, batch, progress)
    assert theirs.grad is not None
    torch.testing.assert_close(total.double(), expected.detach(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(gradient.double(), theirs.grad, rtol=1e-3, atol=1e-4)


@given(lessons(), st.floats(0, 1))
def test_parts_and_counts_say_where_the_loss_came_from(lesson: tuple[Tensor, Batch, Distil], progress: float) -> None:
    logits, batch, distil = lesson
    loss = Objective(MIXED, "unit", distil)(logits, batch, 7.0, progress)
    assert not loss.parts.requires_grad and loss.parts.shape == loss.counts.shape == (3, 4)
    torch.testing.assert_close(loss.parts[0].sum() / 7, loss.total.detach(), rtol=1e-4, atol=1e-4)
    plain = replace(batch, weight=torch.ones(len(batch)))
    for kind, only in ((1, {"hard": 1, "soft": 0}), (2, {"hard": 0, "soft": 1})):
        named = {each.name: {**distil.of(each.name).model_dump(exclude={"tasks", "anneal"}), **only} for each in MIXED}
        # A row without a teacher has a hard part whatever the settings say.
        mine = plain if kind == 1 else replace(plain, weight=(~batch.columns["logits"][:, 0].isnan()).float())
        alone = Objective(MIXED, "unit", Distil(anneal=None, tasks=named))(logits, mine)
        torch.testing.assert_close(loss.parts[kind], alone.parts[0], rtol=1e-4, atol=1e-4)
    taught = ~batch.columns["logits"][:, 0].isnan()
    for task in range(4):
        mine = batch.task == task
        known = mine & (taught | ~batch.gold.isnan())
        assert loss.counts[:, task].tolist() == [mine.sum(), known.sum(), (mine & taught).sum()]


@given(lessons())
def test_fixed_ends_of_the_mix_are_plain_training_and_pure_distillation(lesson: tuple[Tensor, Batch, Distil]) -> None:
    logits, batch, distil = lesson
    batch = replace(batch, gold=batch.gold.nan_to_num(1.0))
    named = {each.name: distil.of(each.name).model_dump(exclude={"tasks", "anneal", "hard", "soft"}) for each in MIXED}

    def learn(**how: Any) -> tuple[Tensor, Tensor]:
        return descend(Objective(MIXED, "sigmoid", Distil(**how, tasks=named)), logits, batch, 0.3)

    plain = descend(Objective(MIXED, "sigmoid"), logits, replace(batch, columns={}))
    assert alike(learn(anneal=1), plain)
    assert alike(learn(anneal=None, hard=1, soft=0), plain)
    assert alike(learn(anneal=0), learn(anneal=None, hard=0, soft=1))


@given(lessons(), st.floats(0, 1))
def test_pure_distillation_reads_no_gold(lesson: tuple[Tensor, Batch, Distil], progress: float) -> None:
    logits, batch, _ = lesson
    taught = ~batch.columns["logits"][:, 0].isnan()
    objective = Objective(MIXED, "sigmoid", Distil(anneal=0, loss="logits"))
    other = replace(batch, gold=torch.where(taught, 1.0 - batch.gold.clamp(0, 1), batch.gold))
    assert alike(descend(objective, logits, batch, progress), descend(objective, logits, other, progress))


@given(lessons(), st.floats(0, 1))
def test_without_any_teacher_nothing_changes(lesson: tuple[Tensor, Batch, Distil], progress: float) -> None:
    logits, batch, distil = lesson
    batch = replace(batch, gold=batch.gold.nan_to_num(1.0))
    silent = replace(batch, columns={"logits": torch.full_like(batch.columns["logits"], NAN)})
    absent = replace(batch, columns={})
    plain = descend(Objective(MIXED, "sigmoid"), logits, absent)
    for each in (silent, absent):
        assert alike(descend(Objective(MIXED, "sigmoid", distil), logits, each, progress), plain)
    # Without settings nobody listens to teachers.
    assert alike(descend(Objective(MIXED, "sigmoid"), logits, batch), plain)


@given(lessons(), st.floats(0, 1), st.sampled_from(["sigmoid", "unit", "raw"]))
def test_teachers_of_one_row_leave_other_rows_and_columns_alone(
    lesson: tuple[Tensor, Batch, Distil], progress: float, regression: str
) -> None:
    logits, batch, distil = lesson
    gold = batch.gold.nan_to_num(1.0)
    gradient = descend(Objective(MIXED, regression, distil), logits, replace(batch, gold=gold), progress)[1]
    plain = descend(Objective(MIXED, regression), logits, replace(batch, gold=gold))[1]
    for row, task in enumerate(batch.task.tolist()):
        foreign = [column for column in range(COLUMNS) if not 0 <= column - FIRST[task] < MIXED[task].outputs]
        assert not gradient[row, foreign].any()
        if batch.columns["logits"][row, 0].isnan():
            assert torch.equal(gradient[row], plain[row])


# Closed forms --------------------------------------------------------------------------------------------------------

SOFT = {"hard": 0, "soft": 1, "anneal": None}


def test_a_divergence_by_hand() -> None:
    # T = 2 turns the student's 0 and 4·ln 3 into 0 and 2·ln 3: 0.1 and 0.9. The teacher says 0.5 and 0.5.
    logits = torch.zeros(1, COLUMNS)
    logits[0, 1] = 4 * math.log(3)
    batch = rows_of([0], [1.0], teacher=torch.full((1, 2), math.log(0.5)))
    loss = Objective(MIXED, "sigmoid", Distil(temperature=2, **SOFT))(logits, batch)
    assert float(loss.total) == pytest.approx(4 * (0.5 * math.log(0.5 / 0.1) + 0.5 * math.log(0.5 / 0.9)), rel=1e-5)


def test_logits_are_matched_as_they_are_and_not_by_their_differences() -> None:
    logits = torch.zeros(1, COLUMNS)
    batch = rows_of([1], [1.0], teacher=torch.tensor([[1.0, 1.0, -3.0]]))
    assert float(Objective(MIXED, "sigmoid", Distil(loss="logits", temperature=9, **SOFT))(logits, batch).total) == 11.0


@pytest.mark.parametrize(("regression", "expected"), [("sigmoid", 0.0625), ("unit", 0.0625), ("raw", 20.25)])
def test_scores_are_learnt_on_the_scale_of_gold_without_a_temperature(regression: str, expected: float) -> None:
    # 2 is a quarter of the way from 1 to 5.
    logits = torch.full((1, COLUMNS), 0.0 if regression == "sigmoid" else 0.5 if regression == "unit" else 6.5)
    batch = rows_of([2], [5.0], teacher=torch.tensor([[2.0]]))
    for loss in ("cross_entropy", "logits"):
        settings = Distil(loss=loss, temperature=5, **SOFT)
        assert float(Objective(MIXED, regression, settings)(logits, batch).total) == pytest.approx(expected)


@given(problems(), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_divergence_is_never_negative_and_nothing_at_equality(problem: tuple[Tensor, Batch], heat: float) -> None:
    logits, batch = problem
    task = [each % 2 for each in batch.task.tolist()]
    distil = Distil(temperature=heat, **SOFT)
    objective = Objective(MIXED, "sigmoid", distil)
    same = torch.stack([logits[row, FIRST[each] : FIRST[each] + 3] for row, each in enumerate(task)])
    for raw, least in ((same, True), (same.flip(0) * 0.5 - 1, False)):
        batch = rows_of(task, [0.0] * len(task), teacher=speak(raw, task, distil))
        for row in range(len(task)):
            one = batch.part(slice(row, row + 1))
            total, gradient = descend(objective, logits[row : row + 1], one)
            assert float(total) >= -2e-5 * heat**2
            if least:
                assert abs(float(total)) < 2e-5 * heat**2
                torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


@given(problems())
def test_a_teacher_that_is_certain_is_as_good_as_a_label(problem: tuple[Tensor, Batch]) -> None:
    logits, batch = problem
    task = [each % 2 for each in batch.task.tolist()]
    gold = [float(row % 2) for row in range(len(task))]
    for floor in (-1e4, -torch.inf):
        teacher = torch.full((len(task), 3), floor)
        teacher[torch.arange(len(task)), torch.tensor(gold).long()] = 0.0
        hard = descend(Objective(MIXED, "sigmoid"), logits, rows_of(task, gold))
        soft = descend(Objective(MIXED, "sigmoid", Distil(**SOFT)), logits, rows_of(task, gold, teacher=teacher))
        torch.testing.assert_close(soft, hard, rtol=1e-6, atol=1e-6)


@settings(max_examples=50)
@given(st.lists(st.floats(-3, 3, width=32), min_size=6, max_size=6))
def test_at_a_high_temperature_centred_logits_are_matched(values: list[float]) -> None:
    student, teacher = torch.tensor(values).double().view(2, 3)
    distance = (student - student.mean()) - (teacher - teacher.mean())

    for heat in (30.0, 100.0, 300.0):
        distil = Distil(temperature=heat, **SOFT)
        logits = torch.zeros(1, COLUMNS)
        logits[0, 2:5] = student.float()
        batch = rows_of([1], [0.0], teacher=speak(teacher.float()[None], [1], distil))
        value, gradient = descend(Objective(MIXED, "sigmoid", distil), logits, batch)
        # What is left out falls with 1/T; what fp32 cannot hold grows with T in the gradient, and with T² in the value.
        assert float((gradient[0, 2:5] - distance / 3).abs().max()) <= 3 / heat + 5e-7 * heat
        assert float(value) == pytest.approx(float(distance.square().sum()) / 6, rel=0, abs=15 / heat + 5e-7 * heat**2)


@given(problems(), st.floats(0, 1), st.sampled_from(["sigmoid", "unit", "raw"]))
def test_annealing_learns_from_one_target_between_label_and_teacher(
    problem: tuple[Tensor, Batch], mix: float, regression: str
) -> None:
    logits, batch = problem
    task, distil = batch.task.tolist(), Distil(anneal=Anneal(start=mix, end=mix))
    teacher = speak(logits.flip(1)[:, :3] * 0.7, task, distil)
    gradient = descend(Objective(MIXED, regression, distil), logits, replace(batch, columns={"logits": teacher}))[1]
    leaf = logits.double().requires_grad_()
    total = torch.zeros(()).double()
    for row, each in enumerate(task):
        spec = MIXED[each]
        own = leaf[row, FIRST[each] : FIRST[each] + spec.outputs]
        teacher_logits, weight = teacher[row, : spec.outputs].double(), float(batch.weight[row])
        if spec.kind.name == "classification":
            label = functional.one_hot(batch.gold[row].long(), spec.outputs).double()
            total = total - weight * ((mix * label + (1 - mix) * teacher_logits.exp()) * own.log_softmax(0)).sum()
        else:
            wanted = mix * float(batch.gold[row]) + (1 - mix) * float(teacher_logits[0])
            total = total + weight * by_hand(leaf[row], each, wanted, regression)
    total.backward()
    assert leaf.grad is not None
    torch.testing.assert_close(gradient.double(), leaf.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["cross_entropy", "logits"])
def test_a_mean_is_over_rows_and_never_over_classes(loss: Any) -> None:
    distil = Distil(loss=loss, temperature=2, **SOFT)
    torch.manual_seed(0)
    logits, raw = torch.randn(5, COLUMNS), torch.randn(5, 3)
    task = [1, 0, 1, 1, 2]
    batch = rows_of(task, [0.0] * 5, teacher=speak(raw, task, distil))
    mean = Objective(MIXED, "unit", distil)(logits, batch, 5.0).total
    rows = [
        float(
            soft_by_hand(logits[row], each, batch.columns["logits"][row].tolist(), distil.of(MIXED[each].name), "unit")
        )
        for row, each in enumerate(task)
    ]
    assert float(mean) == pytest.approx(np.mean(rows), rel=1e-5)


def test_each_task_has_its_own_weights_and_annealing() -> None:
    distil = Distil(
        hard=2,
        soft=3,
        anneal=Anneal(),
        tasks={"topic": {"hard": 5, "anneal": "quadratic"}, "stars": {"soft": 7, "anneal": {"start": 0.5, "end": 1}}},
    )
    weights = Objective(MIXED, "sigmoid", distil).weights(0.5)
    assert weights[0].tolist() == [1.0, 1.25, 1.5, 1.0]
    assert weights[1].tolist() == [1.5, 2.25, 1.75, 1.5]
    free = Objective(MIXED, "sigmoid", Distil(hard=2, soft=3, anneal=None, tasks={"mood": {"anneal": "linear"}}))
    assert free.weights(1.0).tolist() == [[2.0] * 4, [0.0, 3.0, 3.0, 3.0]]


@given(anneals.filter(bool), st.floats(0, 1), st.floats(0.125, 5), st.floats(0.125, 5))
def test_the_weights_follow_the_recipes_annealing(anneal: Anneal, progress: float, hard: float, soft: float) -> None:
    distil = Distil(hard=hard, soft=soft, anneal=anneal)
    objective, mix = Objective(MIXED, "sigmoid", distil), anneal.at(progress)
    assert objective.mix(progress) == mix
    expected = [pytest.approx(hard * mix, abs=1e-5), pytest.approx(soft * (1 - mix), abs=1e-5)]
    assert objective.weights(progress)[:, 0].tolist() == expected
    # A run that is captured once as a graph has its progress in a tensor.
    assert objective.weights(torch.tensor(progress))[:, 0].tolist() == expected


@pytest.mark.parametrize("shape", ["linear", "cosine", "quadratic"])
def test_annealing_goes_from_the_teacher_to_the_label_exactly(shape: Any) -> None:
    weights = Objective(MIXED, "sigmoid", Distil(anneal=shape)).weights
    assert weights(0.0)[:, 0].tolist() == [0.0, 1.0]
    assert weights(1.0)[:, 0].tolist() == [1.0, 0.0]
    middle = {"linear": 0.25, "cosine": (1 - math.sqrt(0.5)) / 2, "quadratic": 0.0625}[shape]
    assert float(weights(0.25)[0, 0]) == pytest.approx(middle)


def test_without_annealing_there_is_no_mix() -> None:
    assert Objective(MIXED, "sigmoid").mix(0.5) is None
    assert Objective(MIXED, "sigmoid", Distil(anneal=None)).mix(0.5) is None
    assert Objective(MIXED, "sigmoid", Distil()).mix(0.5) == 0.5


# Rows that lack something --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cross_entropy", "logits"])
def test_without_gold_the_teachers_best_class_or_its_score_stands_in(loss: Any) -> None:
    distil = Distil(loss=loss, hard=2, soft=0, anneal=None)
    logits = torch.randn(3, COLUMNS, generator=torch.Generator().manual_seed(5))
    # All logits are negative: the cells beyond mood's two classes must not win.
    teacher = speak(torch.tensor([[-4.0, -3.0, 9.0], [-1.0, -3.0, -2.0], [4.0, 0.0, 0.0]]), [0, 1, 2], distil)
    unlabelled = descend(Objective(MIXED, "unit", distil), logits, rows_of([0, 1, 2], [NAN] * 3, teacher=teacher))
    labelled = descend(Objective(MIXED, "unit", distil), logits, rows_of([0, 1, 2], [1.0, 0.0, 4.0], teacher=teacher))
    assert alike(unlabelled, labelled)


@given(lessons(), st.floats(0, 1))
def test_a_row_with_neither_label_nor_teacher_adds_nothing(
    lesson: tuple[Tensor, Batch, Distil], progress: float
) -> None:
    logits, batch, distil = lesson
    objective = Objective(MIXED, "sigmoid", distil)
    gold, teacher = batch.gold.clone(), batch.columns["logits"].clone()
    gold[0], teacher[0] = NAN, NAN
    empty = replace(batch, gold=gold, columns={"logits": teacher})
    total, gradient = descend(objective, logits, empty, progress)
    rest, _ = descend(objective, logits[1:], empty.part(slice(1, None)), progress)
    torch.testing.assert_close(total, rest, rtol=1e-5, atol=1e-5)
    assert not gradient[0].any()
    with pytest.raises(TrainingError, match="no gold label and no teacher"):
        objective.check(logits, empty)


def test_a_narrow_column_does_for_wider_tasks_without_a_teacher() -> None:
    teacher = torch.tensor([[0.5, 0.5], [NAN, NAN], [3.0, NAN]])
    teacher[0] = teacher[0].log()
    batch, logits = rows_of([0, 1, 2], [1.0, 2.0, 3.0], teacher=teacher), torch.zeros(3, COLUMNS)
    objective = Objective(MIXED, "sigmoid", Distil(anneal=None))
    objective.check(logits, batch)
    loss = objective(logits, batch)
    assert loss.counts[2].tolist() == [1, 0, 1, 0]
    assert float(loss.parts[0, 1]) == pytest.approx(math.log(3))


@pytest.mark.parametrize("size", [1e3, 1e6])
@pytest.mark.parametrize("loss", ["cross_entropy", "logits"])
def test_extreme_logits_stay_finite_with_teachers(size: float, loss: Any) -> None:
    logits = (torch.tensor([[1.0, -1, 1, -1, 0, 1, -1]]) * size).repeat(4, 1)
    distil = Distil(loss=loss, tasks={"topic": {"loss": "logits"}})
    task = [0, 1, 2, 1]
    teacher = speak(torch.tensor([[-1.0, 1, 0], [-1, 1, 1], [1, 0, 0], [1, 0, 0]]) * size, task, distil).clamp(min=-1e4)
    teacher[3] = NAN
    batch = rows_of(task, [1.0, NAN, 1.0, 2.0], teacher=teacher)
    total, gradient = descend(Objective(MIXED, "sigmoid", distil), logits, batch, 0.5)
    assert total.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize(
    ("loss", "task", "teacher_logits", "message"),
    [
        ("cross_entropy", 1, [math.log(0.5), NAN, math.log(0.5)], "task topic: a teacher's row has 2 of its 3 outputs"),
        ("logits", 1, [NAN, 1.0, 2.0], "task topic: a teacher's row has 2 of its 3 outputs"),
        ("logits", 0, [1.0, NAN, 2.0], "task mood: a teacher's row has 1 of its 2 outputs"),
        ("logits", 1, [1.0, 2.0], "task topic: a teacher's row has 2 of its 3 outputs"),
        ("logits", 1, [1.0, math.inf, 2.0], "task topic: a teacher's row holds an infinite value"),
        ("cross_entropy", 0, [0.0, -math.inf, NAN], "task mood: a teacher's row holds an infinite value"),
        ("cross_entropy", 2, [math.inf, NAN, NAN], "task stars: a teacher's row holds an infinite value"),
        ("cross_entropy", 1, [0.0, 0.0, 0.0], "task topic: a teacher's probabilities sum to 3, not to 1"),
        ("cross_entropy", 0, [math.log(0.49), math.log(0.5), 0.0], "task mood: a teacher's probabilities sum to 0.99"),
    ],
)
def test_check_refuses_what_a_teacher_cannot_say(
    loss: Any, task: int, teacher_logits: list[float], message: str
) -> None:
    teacher = torch.tensor([[NAN] * len(teacher_logits), teacher_logits])
    batch, logits = rows_of([0, task], [1.0, 1.0], teacher=teacher), torch.zeros(2, COLUMNS)
    with pytest.raises(TrainingError, match=message):
        Objective(MIXED, "sigmoid", Distil(loss=loss)).check(logits, batch)
    Objective(MIXED, "sigmoid").check(logits, batch)  # nobody listens


def test_check_takes_what_a_teacher_may_say() -> None:
    def check(loss: Any, task: int, *teacher_logits: float) -> None:
        batch = rows_of([task], [NAN], teacher=torch.tensor([teacher_logits]))
        Objective(MIXED, "sigmoid", Distil(loss=loss)).check(torch.zeros(1, COLUMNS), batch)

    check("cross_entropy", 0, math.log(0.5004), math.log(0.5), NAN)  # what lies beyond a task's outputs is not read
    check("cross_entropy", 0, math.log(0.5), math.log(0.5), math.inf)
    check("cross_entropy", 0, 0.0, -1e4)
    check("logits", 1, 100.0, -100.0, 0.0)
    check("cross_entropy", 2, 4.5)
    check("logits", 3, -7.5, NAN)


def test_check_still_refuses_wrong_gold_beside_a_teacher() -> None:
    batch = rows_of([0], [2.0], teacher=torch.zeros(1, 2))
    with pytest.raises(TrainingError, match=r"task mood: gold 2\.0 is not one of its classes"):
        Objective(MIXED, "sigmoid", Distil(loss="logits")).check(torch.zeros(1, COLUMNS), batch)


@pytest.mark.parametrize("distil", [None, Distil()])
def test_a_step_never_asks_what_a_tensor_holds(distil: Distil | None) -> None:
    # Tensors of the meta device hold nothing, so whatever waited for a value would fail.
    batch = rows_of([0, 1, 2], [1.0, NAN, 2.0], teacher=torch.zeros(3, 3)).to("meta")
    logits = torch.zeros(3, COLUMNS, device="meta", requires_grad=True)
    for progress in (0.5, torch.zeros((), device="meta")):
        Objective(MIXED, "sigmoid", distil).to("meta")(logits, batch, 3.0, progress).total.backward()
    assert logits.grad is not None and logits.grad.shape == logits.shape
