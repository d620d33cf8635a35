"""Losses and annealing shapes of plug-ins, by decorator and by entry point, from a recipe to its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from loss_cases import COLUMNS, MIXED, rows_of

from helpers import MOOD, STARS, same, weights_of
from plugins import cubic, jensen_shannon, margin
from understill import pipeline
from understill.errors import UserError
from understill.events import silent
from understill.losses import Needs, Term
from understill.losses.composed import ComposedObjective
from understill.losses.fused import FusedObjective, make_objective
from understill.losses.mixing import plugin_facts, weights_at
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model
from understill.pipeline.dataloader import Tokeniser, make_batches
from understill.pipeline.soft_targets import join_targets, read_labels
from understill.plugins import ANNEALING, LOSSES, TEACHERS, Registry
from understill.recipe import Recipe, make_recipe
from understill.recipe.schema import Anneal, Distil
from understill.report import write_report

TESTS = Path(__file__).parents[1]
SOFT: dict[str, Any] = {"hard": 0.0, "soft": 1.0, "anneal": None}


@pytest.fixture
def plugged() -> None:
    """The plug-ins, registered as their decorators do."""
    LOSSES.register("jensen_shannon")(jensen_shannon.JensenShannon)
    ANNEALING.register("cubic")(cubic.cubic)


def test_a_loss_that_is_registered_stands_in_a_recipe_and_is_composed(plugged: None) -> None:
    distil = Distil(loss="jensen_shannon", temperature=2.0, **SOFT)
    objective = make_objective((MOOD,), "unit", distil)
    assert isinstance(objective, ComposedObjective)
    assert objective.why_plain == "the loss jensen_shannon is a plug-in's"
    log_q = torch.tensor([[0.25, 0.75]]).log()
    loss = objective(torch.zeros(1, 2), rows_of([0], [1.0], teacher=log_q))
    # Of (½, ½) and (¼, ¾) the mean is (⅜, ⅝).
    p, q, m = torch.tensor([0.5, 0.5]), log_q.exp()[0], torch.tensor([0.375, 0.625])
    expected = 4 * ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.parts[2, 0], expected)


def test_each_task_may_have_a_loss_of_its_own_and_the_others_are_as_ever(plugged: None) -> None:
    teacher = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25], [3.0, 0.0, 0.0]])
    teacher[:2] = teacher[:2].log()
    batch, logits = rows_of([0, 1, 2], [1.0, 2.0, 4.0], teacher=teacher), torch.randn(3, COLUMNS)
    mixed = make_objective(MIXED, "unit", Distil(tasks={"mood": {"loss": "jensen_shannon"}}))
    ours = make_objective(MIXED, "unit", Distil())
    one, two = (each(logits, batch, 1.0, 0.25) for each in (mixed, ours))
    torch.testing.assert_close(one.parts[:, 1:], two.parts[:, 1:])
    assert one.parts[2, 0] != two.parts[2, 0] and one.parts[1, 0] == two.parts[1, 0]


def test_further_losses_are_added_to_the_soft_part_by_their_weights_and_told_by_name(plugged: None) -> None:
    log_q = torch.tensor([[0.25, 0.75]]).log()
    batch = rows_of([0], [1.0], teacher=log_q)
    objective = make_objective((MOOD,), "unit", Distil(soft=2.0, more={"jensen_shannon": 0.5}))
    assert objective.parts == ("total", "hard", "soft", "jensen_shannon")
    total, hard, soft, more = objective(torch.zeros(1, 2), batch).parts[:, 0]
    alone = make_objective((MOOD,), "unit", Distil(loss="jensen_shannon", **SOFT))(torch.zeros(1, 2), batch)
    torch.testing.assert_close(more, alone.parts[2, 0])
    torch.testing.assert_close(total, hard + 2 * (soft + 0.5 * more))


@pytest.mark.parametrize(
    ("distil", "message"),
    [
        ({"loss": "jensen"}, 'student.distil.loss: "jensen" is not allowed → did you mean "jensen_shannon"?'),
        ({"loss": "kl"}, 'student.distil.loss: "kl" is not allowed → write cross_entropy, logits or jensen_shannon'),
        ({"loss": "listwise"}, 'student.distil.loss: "listwise" is not allowed'),
        ({"anneal": "cubical"}, 'student.distil.anneal.shape: "cubical" is not allowed → did you mean "cubic"?'),
        ({"more": {"jensen_shanon": 1}}, 'there is no such loss of a plug-in → did you mean "jensen_shannon"?'),
        ({"more": {"jensen_shannon": -1}}, "student.distil.more.jensen_shannon: -1 is not allowed → write 0 or more"),
    ],
)
def test_a_name_that_nobody_registered_is_refused(distil: dict[str, Any], message: str, plugged: None) -> None:
    recipe = {"data": {"demo": {"rows": 40}}, "tasks": ["mood"], "teachers": [{}], "student": {"distil": distil}}
    with pytest.raises(UserError) as error:
        make_recipe(recipe)
    assert message in str(error.value)


def test_a_loss_for_another_kind_of_task_is_refused_with_what_to_write(plugged: None) -> None:
    with pytest.raises(UserError, match=r"jensen_shannon is for classification, and task stars is of the kind regress"):
        make_objective((MOOD, STARS), "unit", Distil(loss="jensen_shannon"))


def test_a_loss_that_needs_what_the_model_does_not_give_is_refused(plugged: None) -> None:
    class Deep(Term):
        needs = Needs(outputs=("logits", "states[3]"))

    LOSSES.register("deep")(Deep)
    with pytest.raises(UserError, match=r"the loss deep needs states\[3\] of the model, which gives logits"):
        make_objective((MOOD,), "unit", Distil(loss="deep"))


def test_losses_that_want_teachers_logits_in_two_forms_are_refused(plugged: None) -> None:
    with pytest.raises(UserError, match="the losses logits and jensen_shannon of task mood need teachers'"):
        make_objective((MOOD,), "unit", Distil(loss="logits", more={"jensen_shannon": 1.0}))


def test_a_shape_that_takes_tensors_stays_fused_and_goes_as_it_says(plugged: None) -> None:
    distil = Distil(hard=2.0, anneal=Anneal(start=0.25, end=0.75, shape="cubic"), tasks={"topic": {"anneal": "linear"}})
    objective = make_objective(MIXED, "unit", distil)
    assert isinstance(objective, FusedObjective) and objective.why_plain == ""
    for progress in (0.0, 0.5, 1.0):
        mix = 0.25 + 0.5 * progress**3
        assert objective.mix(progress) == pytest.approx(mix)
        for given in (progress, torch.tensor(progress)):
            hard, soft = objective.weights(given)
            assert hard.tolist() == pytest.approx([2 * mix, 2 * progress, 2 * mix, 2 * mix])
            assert soft.tolist() == pytest.approx([1 - mix, 1 - progress, 1 - mix, 1 - mix])
        assert weights_at(distil.of("mood"), progress) == pytest.approx((2 * mix, 1 - mix))


@pytest.mark.parametrize("shape", [lambda progress: 0.0 if progress < 0.5 else 1.0, lambda progress: round(progress)])
def test_a_shape_that_reads_numbers_is_fused_and_kept_from_the_fast_path(shape: Callable[[Any], Any]) -> None:
    ANNEALING.register("late")(shape)
    objective = make_objective((MOOD,), "unit", Distil(anneal=Anneal(shape="late")))
    assert isinstance(objective, FusedObjective)
    assert objective.why_plain == "the annealing shape late does not take tensors"
    assert objective.weights(0.25)[:, 0].tolist() == [0, 1] and objective.weights(0.75)[:, 0].tolist() == [1, 0]


def test_a_plug_in_that_changes_makes_models_anew_and_ours_leave_no_trace(plugged: None) -> None:
    assert plugin_facts(Distil()) == []
    loss, shape = plugin_facts(Distil(loss="jensen_shannon", anneal="cubic"))
    assert loss["plugin"] == "jensen_shannon" and shape["plugin"] == "cubic"
    assert len(loss["source"]) == len(shape["source"]) == 64 and loss["source"] != shape["source"]


def test_a_recipe_trains_scores_and_reports_by_a_plugged_in_loss(
    plugged: None, make_tiny: Callable[..., Recipe]
) -> None:
    def recipe(**distil: Any) -> Recipe:
        mine = {"tasks": ["mood", "similar"], "teachers": [{"tasks": "each"}], "student": {"distil": distil}}
        return make_tiny(**mine, targets={"weak": "keep"})

    own = recipe(tasks={"mood": {"loss": "jensen_shannon"}}, anneal="cubic")
    run = pipeline.run(own)
    page = write_report(run.folder, own, timing=False).read_text(encoding="utf-8")
    assert "jensen_shannon" in page and "cubic" in page
    student, other = run.models[-1], pipeline.run(recipe()).models[-1]
    assert student.role == "student" and set(student.scores) == {"mood/dev", "similar/dev"}
    one, two = (weights_of(load_model(each.folder).model) for each in (student, other))
    assert not same(one, two)
    lines = [json.loads(line) for line in (student.folder.parent / "log.jsonl").read_text().splitlines()]
    parts = {f"{task}{part}" for task in ("mood", "similar") for part in ("", "/hard", "/soft")}
    assert lines[-1]["parts"].keys() == parts


Install = Callable[..., None]


def test_a_loss_of_an_installed_package_is_found_by_its_entry_point(install: Install) -> None:
    install(LOSSES, "js", "plugins.jensen_shannon:JensenShannon", "1.5")
    install(ANNEALING, "late", "plugins.cubic:cubic")
    distil = Distil(loss="js", anneal="late")
    assert plugin_facts(distil)[0] == {"plugin": "js", "package": "js-plugin", "version": "1.5"}
    assert isinstance(make_objective((MOOD,), "unit", distil), ComposedObjective)
    assert distil.anneal is not None and distil.anneal.at(0.5) == 0.125


def test_a_plug_in_that_cannot_be_loaded_is_named_with_its_package_by_those_who_name_it(install: Install) -> None:
    install(LOSSES, "js", "plugins.jensen_shannon:Gone")
    assert make_objective((MOOD,), "unit", Distil())
    distil = Distil(loss="js")  # nothing is imported to read a recipe
    with pytest.raises(UserError, match='the loss "js" of package js-plugin cannot be loaded'):
        make_objective((MOOD,), "unit", distil)


def test_the_command_line_runs_a_recipe_with_an_installed_plug_in(tmp_path: Path, tiny: Path, install: Install) -> None:
    install(LOSSES, "js", "plugins.jensen_shannon:JensenShannon")
    install(ANNEALING, "late", "plugins.cubic:cubic")
    recipe = {
        "name": "plugged",
        "data": {"demo": {"rows": 40}},
        "tasks": ["mood"],
        "encoder": {"name": str(tiny), "max_length": 32},
        "training": {"steps": 3, "batch": 8},
        "teachers": [{}],
        "targets": {"weak": "keep"},
        "student": {"distil": {"loss": "js", "anneal": "late"}},
        "output": {"folder": str(tmp_path / "runs")},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    paths = os.pathsep.join(
        [str(tmp_path / "site-packages"), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    done = subprocess.run(
        [sys.executable, "-m", "understill", "run", str(tmp_path / "recipe.yaml")],
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "student" in done.stdout
    (page,) = (tmp_path / "runs").rglob("report.html")
    assert "js" in page.read_text(encoding="utf-8")


def test_registries_of_losses_and_shapes_are_those_that_recipes_read() -> None:
    assert isinstance(LOSSES, Registry) and LOSSES.group == "understill.losses"
    assert ANNEALING.group == "understill.annealing" and list(ANNEALING)[:3] == ["linear", "cosine", "quadratic"]


def test_a_column_that_a_loss_asks_for_comes_from_teachers_over_store_and_batch_to_the_loss(
    plugged: None, make_tiny: Callable[..., Recipe]
) -> None:
    TEACHERS.register("sure_keywords")(margin.SureKeywords)
    LOSSES.register("margin")(margin.Margin)
    words = {"calm": ["thank", "good"], "upset": ["never", "twice", "locked"]}
    teachers = [
        {"name": name, "type": "sure_keywords", "words": words, "weight": weight}
        for name, weight in (("one", 1.0), ("two", 3.0))
    ]
    recipe = make_tiny(
        tasks=["mood"], teachers=teachers, targets={"weak": "keep"}, student={"distil": {"loss": "margin"}}
    )
    run = pipeline.run(recipe)
    assert run.models[-1].role == "student" and set(run.models[-1].scores) == {"mood/dev"}
    plan = pipeline.make_plan(recipe)
    (targets,) = plan.distillations[0].targets
    assert targets.columns == ("logits", "margin")
    stored = read_labels(plan, targets).columns
    data = plan.loaded["mood"].splits["train"]
    assert stored["margin"].shape == (2, data.rows)
    spread = np.ptp(stored["logits"], axis=2)  # of two labels
    np.testing.assert_array_equal(stored["margin"], spread)
    joined = join_targets(plan, plan.distillations[0])["mood", "train"]
    np.testing.assert_allclose(joined["margin"], stored["margin"].mean(axis=0))
    student = plan.models[-1]
    tokens = Tokeniser(load_tokenizer(recipe.encoder.name), {"mood": 32}, run.folder / "cache", silent)
    batch = make_batches(plan, student, tokens, {("mood", "train"): joined})[0]
    np.testing.assert_array_equal(batch.columns["margin"].numpy(), joined["margin"][batch.row.numpy()])
    loss = make_objective((plan.loaded["mood"].task,), "unit", Distil(loss="margin", **SOFT))(torch.zeros(8, 2), batch)
    there = batch.columns["margin"][~batch.columns["margin"].isnan()]
    torch.testing.assert_close(loss.parts[2, 0], there.square().sum())
    assert 0 < len(there) == loss.counts[2, 0]


def test_a_teacher_without_the_column_that_a_loss_needs_is_named(make_tiny: Callable[..., Recipe]) -> None:
    LOSSES.register("margin")(margin.Margin)
    recipe = make_tiny(tasks=["mood"], teachers=[{}], targets={"weak": "keep"}, student={"distil": {"loss": "margin"}})
    with pytest.raises(UserError, match=r"teacher .* gives logits, and a loss of task mood needs margin"):
        pipeline.run(recipe)
