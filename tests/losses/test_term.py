"""The fused objective gives what the terms give: values, gradients, parts and counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import COLUMNS, MIXED, lessons, own_settings, problems, rows_of
from torch import Tensor

from helpers import ANSWER, MOOD, STARS
from understill.data.batch import Batch
from understill.errors import TrainingError
from understill.losses.composed import ComposedObjective
from understill.losses.fused import FUSED, FusedObjective, make_objective
from understill.losses.objective import Objective
from understill.losses.term import Needs
from understill.plugins import LOSSES
from understill.recipe.schema import Distil
from understill.tasks import KINDS, Task

NAN = float("nan")
#: Classes, candidates, a score, and candidates again: columns 0-1, 2, 3, 4.
RANKED = (MOOD, ANSWER, STARS, replace(ANSWER, name="reply", head="reply"))


def both(tasks: tuple[Task, ...], regression: str, distil: Distil | None) -> tuple[Objective, Objective]:
    return FusedObjective(tasks, regression, distil), ComposedObjective(tasks, regression, distil)


def assert_same(forms: tuple[Objective, Objective], logits: Tensor, batch: Batch, progress: float) -> None:
    leaves = [logits.clone().requires_grad_() for _ in forms]
    one, two = (form(leaf, batch, 3.0, progress) for form, leaf in zip(forms, leaves, strict=True))
    for loss in (one, two):
        loss.total.backward()
    torch.testing.assert_close(two.total, one.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(two.parts, one.parts, rtol=1e-5, atol=1e-4)
    assert torch.equal(two.counts, one.counts)
    assert not two.parts.requires_grad


@given(problems(), st.sampled_from(["sigmoid", "unit", "raw"]))
def test_hard_terms_are_the_fused_ones(problem: tuple[Tensor, Batch], regression: str) -> None:
    assert_same(both(MIXED, regression, None), *problem, 0.0)


@settings(max_examples=200)
@given(lessons(), st.sampled_from(["sigmoid", "unit", "raw"]), st.floats(0, 1))
def test_soft_terms_weights_and_annealing_are_the_fused_ones(
    lesson: tuple[Tensor, Batch, Distil], regression: str, progress: float
) -> None:
    logits, batch, distil = lesson
    assert_same(both(MIXED, regression, distil), logits, batch, progress)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[Tensor, Batch, Distil]:
    """Queries beside rows of other kinds; gold and teachers may be there, missing, or there for some candidates."""
    distil = Distil(**draw(own_settings), tasks={"reply": draw(own_settings)})
    task, gold, group, teacher = [], [], [], []
    for place in range(draw(st.integers(1, 4))):
        number = draw(st.sampled_from([0, 1, 1, 2, 3, 3]))
        count = draw(st.integers(2, 4)) if RANKED[number].kind.grouped else 1
        raw = torch.tensor([draw(st.floats(-9, 9, width=32)) for _ in range(2 * count)]).view(count, 2)
        if distil.of(RANKED[number].name).loss == "cross_entropy":
            raw = raw.log_softmax(dim=1 if number == 0 else 0)
        if draw(st.integers(0, 3)) == 0:
            raw[draw(st.integers(0, count - 1)) :] = NAN
        values = st.floats(1, 5, width=32) if number == 2 else st.sampled_from([0.0, 1.0])
        gold += [draw(values | st.just(NAN)) for _ in range(count)]
        task, group = task + [number] * count, group + [place] * count
        teacher.append(raw)
    logits = torch.randn(len(task), 5, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 3
    return logits, rows_of(task, gold, teacher=torch.cat(teacher), group=group), distil


@settings(max_examples=200)
@given(rankings(), st.sampled_from(["sigmoid", "unit"]), st.floats(0, 1))
def test_rankings_by_terms_are_the_fused_ones(
    lesson: tuple[Tensor, Batch, Distil], regression: str, progress: float
) -> None:
    logits, batch, distil = lesson
    assert_same(both(RANKED, regression, distil), logits, batch, progress)
    assert_same(both(RANKED, regression, None), logits, batch, progress)


def test_every_pair_of_terms_that_our_kinds_name_is_fused() -> None:
    ours = [KINDS[name] for name in ("classification", "regression", "ranking")]
    assert {(kind.hard, term) for kind in ours for term in kind.soft.values()} == FUSED
    assert isinstance(make_objective(RANKED, "unit", Distil()), FusedObjective)
    assert make_objective(RANKED, "unit", Distil()).why_plain == ""


def test_every_term_says_what_it_needs_of_batch_and_model() -> None:
    hard, soft = zip(*FUSED, strict=True)
    assert all(LOSSES[name].needs == Needs() for name in hard)
    assert all(LOSSES[name].needs.columns == ("logits",) for name in soft)
    assert {name for name in soft if LOSSES[name].needs.form == "log_probabilities"} == {
        "soft_cross_entropy",
        "soft_listwise",
    }


def test_a_batch_without_anything_to_learn_has_a_gradient_of_nothing() -> None:
    logits = torch.ones(1, COLUMNS, requires_grad=True)
    loss = ComposedObjective(MIXED, "unit")(logits, rows_of([0], [NAN]))
    loss.total.backward()
    assert float(loss.total) == 0 and logits.grad is not None and not logits.grad.any()


class Twofold(type(KINDS["regression"])):  # type: ignore[misc]
    """Two scores for each row."""

    name = "twofold"

    def outputs(self, task: Task) -> int:
        return 2

    def gold_numbers(self, task: Task) -> int:
        return 2


PLACE = Task("place", Twofold(), ("text",), "label", range=(0.0, 4.0))


def test_gold_may_have_several_numbers_for_each_row() -> None:
    objective = make_objective((MOOD, PLACE), "unit", Distil(hard=1.0, soft=0.5, anneal=None))
    assert isinstance(objective, ComposedObjective)
    teacher = torch.tensor([[NAN, NAN], [4.0, 0.0], [2.0, 2.0]])
    gold = torch.tensor([[1.0, NAN], [1.0, 3.0], [NAN, NAN]])
    batch = replace(rows_of([0, 1, 1], [0.0] * 3, teacher=teacher), gold=gold)
    logits = torch.tensor([[0.0, 0.0, 9.0, 9.0], [9.0, 9.0, 0.25, 0.5], [9.0, 9.0, 0.5, 0.0]], requires_grad=True)
    objective.check(logits, batch)
    loss = objective(logits, batch)
    # Gold (1, 3) of 0 to 4 is (¼, ¾), the teacher's (4, 0) is (1, 0); of the last row the teacher's (½, ½) stands in.
    assert loss.parts[:, 1].tolist() == pytest.approx([0.0625 + 0.25 + 0.5 * (0.5625 + 0.25 + 0.25), 0.3125, 1.0625])
    assert loss.counts.tolist() == [[1, 2], [1, 2], [0, 2]]
    with pytest.raises(TrainingError, match="task place: a training row has no gold label and no teacher"):
        objective.check(logits, replace(batch, columns={}))
