"""What a recipe leaves open is chosen by rule and by a trial on held-out rows, said, kept and can be pinned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from understill.events import Tuned
from understill.models.folder import load_model
from understill.pipeline import hyperparameter_search, hyperparameters, make_plan, run
from understill.pipeline.dataloader import ModelInputs, Tokeniser, make_batches
from understill.pipeline.hyperparameter_search import candidates_of, choose, foreseen, longer
from understill.pipeline.hyperparameters import Choice, Shape, by_rule, shape_of
from understill.pipeline.initial_weights import first_weights, prepare_heads
from understill.pipeline.model_training import TrainedModel
from understill.pipeline.pinned_recipe import pinned
from understill.pipeline.plan.parts import ModelPlan
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.teachers.folds import fold_of


@pytest.fixture
def open_recipe(recipe_values: dict[str, Any]) -> Callable[..., Recipe]:
    """A function that makes the tiny recipe without a learning rate, with changes."""

    def make(**changes: Any) -> Recipe:
        values = {**recipe_values, "tasks": ["mood"], "training": {"batch": 8}, **changes}
        return make_recipe(values)

    return make


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows more, so that a model trains in a second; few rows are enough for a trial."""
    monkeypatch.setattr(hyperparameters, "EXTRA_ROWS", 96)
    monkeypatch.setattr(hyperparameters, "PASSES", 2)
    monkeypatch.setattr(hyperparameter_search, "TRIED", 40)


def shape(rows: int = 500, classes: int = 2, **changes: Any) -> Shape:
    facts = {"width": 384, "own": False, "cut": False, "taught": False, "steps_per_epoch": 10, **changes}
    return Shape({"mood": rows}, classes, **facts)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


# The rule -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_rows_have_more_steps_and_no_lower_rate_but_fewer_passes(one: int, other: int) -> None:
    few, many = sorted((one, other))
    fewer, more = (hyperparameters.steps_for(rows, 1, 32) for rows in (few, many))
    assert fewer <= more
    assert fewer * 32 / few >= more * 32 / many - 32 / many - 1e-6
    assert hyperparameters._rate(shape(few))[0] <= hyperparameters._rate(shape(many))[0] <= 1e-4
    assert hyperparameters.steps_for(few, 1, 32) >= 75, "there is a least number of updates"


def test_a_wider_encoder_has_a_lower_rate_and_one_without_layers_a_higher() -> None:
    assert hyperparameters._rate(shape(width=768))[0] == pytest.approx(hyperparameters._rate(shape())[0] / 2)
    assert hyperparameters._rate(shape(cut=True))[0] > hyperparameters._rate(shape())[0]
    assert hyperparameters._rate(shape(own=True))[0] == hyperparameters.RANDOM_RATE


def test_steps_are_counted_in_words_that_fit_their_number() -> None:
    assert hyperparameters._seen(1, shape(1066), "zero", few=False) == "1 pass over 1,066 rows"
    assert hyperparameters._seen(2.5, shape(1066), "zero", few=False) == "2.5 passes over 1,066 rows"


def test_few_rows_a_class_begin_with_contrast_many_classes_with_a_probe_and_others_at_zero(
    open_recipe: Callable[..., Recipe],
) -> None:
    (model,) = make_plan(open_recipe()).models
    assert by_rule(model, shape(30), 200).settings.training.start == "contrastive"
    assert by_rule(model, shape(33), 200).settings.training.start == "zero"
    assert by_rule(model, shape(500, classes=11), 200).settings.training.start == "probe"


def test_a_batch_is_no_larger_than_all_rows_unless_it_is_an_unusual_one(open_recipe: Callable[..., Recipe]) -> None:
    (model,) = make_plan(open_recipe(training={})).models
    assert by_rule(model, shape(30), 200).settings.training.batch == 30
    assert by_rule(model, shape(33), 200).settings.training.batch == 32
    (given,) = make_plan(open_recipe(training={"batch": 48})).models
    assert by_rule(given, shape(30), 200).settings.training.batch == 48
    (named,) = make_plan(open_recipe(training={"batch": 32})).models
    assert named.fingerprint == model.fingerprint, "what is written out is what was meant"


def test_a_baseline_whose_settings_are_open_is_no_plain_model(open_recipe: Callable[..., Recipe]) -> None:
    """The rule gives a baseline no trial, as its student has none, so a plain model's weights are others."""
    (plain,) = make_plan(open_recipe()).models
    plan = make_plan(open_recipe(teachers=[{"tasks": "each", "encoder": {"layers": 1}}]))
    (baseline,) = (model for model in plan.models if model.role == "baseline")
    assert baseline.fingerprint != plain.fingerprint
    given = {"training": {"batch": 8, "lr": 1e-3, "steps": 3}}
    (plain,) = make_plan(open_recipe(**given)).models
    plan = make_plan(open_recipe(**given, teachers=[{"tasks": "each", "encoder": {"layers": 1}}]))
    assert plain.fingerprint in {model.fingerprint for model in plan.models if model.role == "baseline"}


def test_a_kind_of_head_that_is_named_is_not_one_that_is_open(open_recipe: Callable[..., Recipe]) -> None:
    (open_one,) = make_plan(open_recipe(tasks=["follows"])).models
    (named,) = make_plan(open_recipe(tasks=["follows"], heads={"tasks": {"follows": {"kind": "linear"}}})).models
    assert named.fingerprint != open_one.fingerprint


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("epochs", ["auto", 3])
def test_a_baseline_on_fewer_rows_takes_the_students_steps_where_they_are_open(
    open_recipe: Callable[..., Recipe], epochs: Any, layers: int
) -> None:
    augment = {"times": 2, "pos": 0, "tagger": "none"}
    student = {"augment": augment, "encoder": {"layers": layers}}
    changes = {"training": {"batch": 8, "epochs": epochs}, "teachers": [{"tasks": "each"}], "student": student}
    models = {model.role: model for model in make_plan(open_recipe(**changes)).models}
    steps = [
        by_rule(models[role], shape_of(models[role]), 200).settings.training.steps for role in ("student", "baseline")
    ]
    assert steps[0] == steps[1] > 0


def test_what_the_recipe_gives_stays(open_recipe: Callable[..., Recipe]) -> None:
    given_values = {"batch": 8, "steps": 7, "head_lr": 0.5, "start": "zero", "keep": "best", "evaluate": "2 steps"}
    (model,) = make_plan(open_recipe(training=given_values)).models
    training = by_rule(model, shape(30), 3).settings.training
    assert (training.steps, training.head_lr, training.start, training.keep) == (7, 0.5, "zero", "best")
    assert str(training.evaluate) == "2 steps"
    assert by_rule(model, shape(), 3).settings.training.lr != "auto"


def test_too_few_dev_rows_choose_nothing(open_recipe: Callable[..., Recipe]) -> None:
    (model,) = make_plan(open_recipe()).models
    few, many = (by_rule(model, shape(), dev) for dev in (hyperparameters.LEAST_DEV - 1, hyperparameters.LEAST_DEV))
    assert (few.settings.training.keep, many.settings.training.keep) == ("last", "best")
    assert any("too small to choose by" in reason for reason in few.reasons)


def test_a_given_learning_rate_leaves_nothing_open(make_tiny: Callable[..., Recipe]) -> None:
    (model,) = make_plan(make_tiny(tasks=["mood"])).models
    training = model.settings.training
    assert (training.start, training.epochs, training.keep, model.settings.heads.pairs) == (
        "fresh",
        3.0,
        "best",
        "linear",
    )


# The trial ------------------------------------------------------------------------------------------------------------


def test_candidates_are_two_rates_and_a_probe_for_texts_and_both_readings_for_pairs(
    open_recipe: Callable[..., Recipe],
) -> None:
    (texts,) = make_plan(open_recipe()).models
    (pairs,) = make_plan(open_recipe(tasks=["similar"])).models
    for model, names in (
        (texts, ["heads at zero", "probe first", "thrice the rate"]),
        (pairs, ["siamese", "cross-encoder"]),
    ):
        form = Shape({task.name: 900 for task in model.tasks}, 2, 384, False, False, False, 10)
        settings = by_rule(model, form, 200).settings
        assert list(candidates_of(model, settings, form)) == names
        small = Shape({task.name: 100 for task in model.tasks}, 2, 384, False, False, False, 10)
        assert len(candidates_of(model, settings, small)) == 1


def test_few_pairs_have_a_third_of_the_steps_and_those_of_classes_begin_with_a_probe(
    open_recipe: Callable[..., Recipe],
) -> None:
    for name, classes, start in (("follows", 3, "fitted"), ("similar", 1, "zero")):
        (model,) = make_plan(open_recipe(tasks=[name])).models
        few, more = (
            by_rule(model, Shape({name: rows}, classes, 384, False, False, False, 10), 200).settings.training
            for rows in (47, 100)
        )
        assert (few.start, more.start) == (start, "zero")
        assert few.steps == math.ceil(hyperparameters.steps_for(47, 1, 8) / 3)
        assert more.steps == hyperparameters.steps_for(100, 1, 8)


def test_many_pairs_of_classes_are_read_together_without_a_trial_and_scores_still_have_one(
    open_recipe: Callable[..., Recipe],
) -> None:
    many = hyperparameters.CROSS_ENCODER_FROM
    for name, count in (("follows", 1), ("similar", 2)):
        (model,) = make_plan(open_recipe(tasks=[name])).models
        form = Shape({name: many}, 3, 384, False, False, False, 10)
        settings = by_rule(model, form, 200).settings
        assert settings.heads.pairs == ("linear" if count == 1 else "siamese")
        assert len(candidates_of(model, settings, form)) == count


def _chosen(model: ModelPlan, scores: dict[str, float], held: int) -> Choice:
    settings = by_rule(model, shape(900), 200)
    candidates = candidates_of(model, settings.settings, shape(900))
    trial = {name: {"mood": scores[name]} for name in candidates}
    return choose(settings, candidates, trial, model.tasks, held)


def test_the_first_candidate_stays_unless_another_is_clearly_better(open_recipe: Callable[..., Recipe]) -> None:
    (model,) = make_plan(open_recipe()).models
    scores = {"probe first": 0.82, "heads at zero": 0.80, "thrice the rate": 0.70}
    assert _chosen(model, scores, 100).settings.training.start == "zero", "2 points of 100 rows are noise"
    assert _chosen(model, scores, 10_000).settings.training.start == "probe"
    higher = {"probe first": 0.50, "heads at zero": 0.50, "thrice the rate": 0.80}
    before, after = by_rule(model, shape(900), 200).settings.training, _chosen(model, higher, 100).settings.training
    assert after.rate == pytest.approx(3 * before.rate)


@pytest.mark.parametrize(("reached", "factor"), [(0.70, 3), (0.72, 3), (0.76, 1)])
def test_a_trial_no_better_than_a_constant_answer_leads_to_thrice_the_steps(
    reached: float, factor: int, open_recipe: Callable[..., Recipe]
) -> None:
    (model,) = make_plan(open_recipe()).models
    before = by_rule(model, shape(), 0)
    trial = {"heads at zero": {"mood": 0.6}, "probe first": {"mood": reached}}
    # Of 400 rows, a standard error is at most 2.5 points.
    after = longer(before, model.settings, trial, [0.70], 400)
    steps, looks = before.settings.training.steps, before.settings.training.evaluate.count
    assert steps and (after.settings.training.steps, after.settings.training.evaluate.count) == (
        factor * steps,
        factor * looks,
    )
    assert ("three times as many" in after.reasons[-1]) == (factor == 3)
    given = open_recipe(training={"batch": 8, "steps": 7})
    (model,) = make_plan(given).models
    assert longer(by_rule(model, shape(), 0), model.settings, trial, [0.9], 400).settings.training.steps == 7


def test_each_pair_task_gets_the_reading_that_did_better_on_it(open_recipe: Callable[..., Recipe]) -> None:
    (model,) = make_plan(open_recipe(tasks=["follows", "similar"])).models
    form = Shape({"follows": 500, "similar": 500}, 3, 384, False, False, False, 10)
    before = by_rule(model, form, 200)
    candidates = candidates_of(model, before.settings, form)
    trial = {"siamese": {"follows": 0.4, "similar": 0.8}, "cross-encoder": {"follows": 0.6, "similar": 0.5}}
    heads = choose(before, candidates, trial, model.tasks, 200).settings.heads
    assert {task.name: heads.siamese(task) for task in model.tasks} == {"follows": False, "similar": True}


def test_trials_take_at_most_a_third_and_never_see_the_rows_that_judge_them(
    open_recipe: Callable[..., Recipe], quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = hyperparameter_search.fit

    def spy(*arguments: Any, **more: Any) -> Any:
        seen.append((arguments[2], arguments[3]))
        return real(*arguments, **more)

    monkeypatch.setattr(hyperparameter_search, "fit", spy)
    recipe = open_recipe()
    plan = make_plan(recipe)
    result = run(recipe)
    chosen = result.models[0].chosen
    assert chosen is not None
    assert len(seen) == 3
    assert sum(training.steps for _, training in seen) <= chosen["settings"]["training"]["steps"] / 3
    held = np.flatnonzero(fold_of(plan.loaded["mood"].splits["train"], 5) == 0)
    for batches, training in seen:
        rows = {int(row) for number in range(training.steps) for row in batches[number].row}
        assert rows
        assert not rows & set(held.tolist())


# What comes of it -----------------------------------------------------------------------------------------------------


def test_a_recipe_without_training_says_what_it_chose_and_its_pinned_copy_trains_the_same_model(
    open_recipe: Callable[..., Recipe], quick: None, tmp_path: Path
) -> None:
    events: list[Any] = []
    result = run(open_recipe(), events.append)
    (tuned,) = [event for event in events if isinstance(event, Tuned)]
    record = json.loads((result.folder / "run.json").read_text())
    assert record["models"]["multi"]["chosen"]["reasons"] == list(tuned.reasons)
    assert any("held-out rows" in reason for reason in tuned.reasons)
    copy = result.folder / "pinned.yaml"
    assert all(reason in copy.read_text() for reason in tuned.reasons)
    again = run(load_recipe(copy, ("name=again", f"output.folder={tmp_path / 'elsewhere'}")))
    assert again.models[0].chosen is None
    first, second = weights_of(result.models[0].folder), weights_of(again.models[0].folder)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not (again.folder / "pinned.yaml").exists()


def test_a_teacher_is_pinned_as_its_own_model_was_chosen_and_not_as_one_whose_name_goes_on(
    open_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    def trained(name: str, rate: float) -> TrainedModel:
        settings = {"encoder": {"name": name}, "heads": {}, "training": {"lr": rate}}
        return TrainedModel(name, "teacher", tmp_path, {}, [], 0.0, {"settings": settings, "reasons": []})

    recipe = open_recipe(teachers=[{"name": "large"}, {"name": "large-2"}])
    values = yaml.safe_load(pinned(recipe, [trained("large", 0.001), trained("large-2", 0.002)]))
    assert [each["training"] for each in values["teachers"]] == [{"lr": 0.001}, {"lr": 0.002}]


def test_a_choice_made_before_a_crash_holds_and_leads_to_the_same_weights(
    open_recipe: Callable[..., Recipe], quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(open_recipe(output={"folder": str(tmp_path / "whole")}))
    recipe = open_recipe(output={"folder": str(tmp_path / "cut")})

    def crash(event: Any) -> None:
        if isinstance(event, Tuned):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(recipe, crash)

    def never(*_: Any) -> Any:
        raise AssertionError("it was tried before")

    monkeypatch.setattr(hyperparameter_search, "_try", never)
    finished = run(recipe)
    first, second = weights_of(whole.models[0].folder), weights_of(finished.models[0].folder)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("start", ["zero", "probe", "fitted", "contrastive"])
def test_heads_begin_as_the_recipe_says(start: str, open_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    plan = make_plan(open_recipe(training={"batch": 8, "steps": 4, "lr": 1e-3, "start": start}))
    (model,) = plan.models
    from understill.models.encoder import load_tokenizer

    tokens = Tokeniser(load_tokenizer("tiny", model.start.place), {"mood": 32}, tmp_path, lambda event: None)
    network, fresh = first_weights(model), first_weights(model)
    inputs = ModelInputs(plan, model, "multi", tokens, {}, lambda _: None)
    for _ in prepare_heads(inputs, network, make_batches(plan, model, tokens, {})):
        pass
    head = network.heads.tasks[0].out
    moved = any(
        not torch.equal(one, other)
        for one, other in zip(network.encoder.parameters(), fresh.encoder.parameters(), strict=True)
    )
    assert moved == (start == "contrastive")
    assert bool(head.weight.abs().sum() == 0) == (start == "zero")
    assert torch.allclose(head.weight[0], -head.weight[1], atol=1e-6)


def test_a_contrastive_stage_ends_half_way_between_the_first_weights_and_the_last(
    open_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    from understill.models.encoder import load_tokenizer

    def weights(**stage: float) -> dict[str, torch.Tensor]:
        training = {"batch": 8, "steps": 4, "lr": 1e-3, "start": "contrastive", "contrastive": stage}
        plan = make_plan(open_recipe(training=training))
        (model,) = plan.models
        tokens = Tokeniser(load_tokenizer("tiny", model.start.place), {"mood": 32}, tmp_path, lambda event: None)
        network, batches = first_weights(model), make_batches(plan, model, tokens, {})
        for _ in prepare_heads(ModelInputs(plan, model, "multi", tokens, {}, lambda _: None), network, batches):
            pass
        return {name: weight.detach() for name, weight in network.encoder.named_parameters()}

    (model,) = make_plan(open_recipe()).models
    first, half, last = weights(share=0.0), weights(), weights(share=1.0)
    assert all(torch.equal(first[name], weight) for name, weight in first_weights(model).encoder.named_parameters())
    assert any(not torch.equal(first[name], last[name]) for name in first)
    for name, weight in half.items():
        torch.testing.assert_close(weight, (first[name] + last[name]) / 2)


def test_pairs_left_open_are_settled_and_the_model_loads(open_recipe: Callable[..., Recipe], quick: None) -> None:
    result = run(open_recipe(tasks=["mood", "similar"]))
    model = load_model(result.models[0].folder).model
    kinds = {task.name: model.spec.siamese(task) for task in model.tasks}
    chosen = result.models[0].chosen
    assert chosen is not None
    better = chosen["trial"]["siamese"]["similar"] >= chosen["trial"]["cross-encoder"]["similar"]
    assert kinds == {"mood": False, "similar": better}


def test_a_student_and_its_baseline_are_given_the_same(open_recipe: Callable[..., Recipe], quick: None) -> None:
    recipe = open_recipe(
        targets={"weak": "keep"},
        teachers=[{"tasks": "together"}],
        student={"encoder": {"name": "teacher", "layers": 1}, "unlabelled": 0.5},
    )
    result = run(recipe)
    chosen = {model.role: model.chosen for model in result.models}
    assert chosen["student"] and chosen["baseline"]
    assert chosen["student"]["settings"]["training"] == chosen["baseline"]["settings"]["training"]
    assert not chosen["student"]["trial"]


def test_what_is_foreseen_is_what_the_rule_gives(open_recipe: Callable[..., Recipe]) -> None:
    plan = make_plan(open_recipe())
    (model,) = plan.models
    choice, times = foreseen(model)
    training = choice.settings.training
    assert training.steps == hyperparameters.steps_for(shape_of(model).total, 1, 8)
    assert math.isclose(times, 1.0)
    assert training.rate > 0


@pytest.mark.parametrize(("rows", "steps"), [(8, 12), (30, 22)])
def test_the_steps_of_a_contrastive_stage_are_foreseen(
    rows: int, steps: int, open_recipe: Callable[..., Recipe]
) -> None:
    plan = make_plan(open_recipe(tasks={"mood": {"rows": rows}}))
    choice, times = foreseen(plan.models[0])
    assert choice.settings.training.start == "contrastive"
    assert times == pytest.approx((hyperparameters.AFTER_CONTRAST + steps) / hyperparameters.AFTER_CONTRAST)


@pytest.mark.parametrize(("task", "decided"), [("mood", "task heads start"), ("similar", "pairs are read")])
def test_nothing_is_said_of_what_a_trial_will_decide(
    task: str, decided: str, open_recipe: Callable[..., Recipe], quick: None
) -> None:
    plan = make_plan(open_recipe(tasks=[task]))
    (model,) = plan.models
    choice, _ = foreseen(model)
    by_rule_alone = by_rule(model, shape_of(model), 200).reasons
    assert any(reason.startswith(decided) for reason in by_rule_alone)
    assert not any(reason.startswith(decided) for reason in choice.reasons)
    assert choice.reasons[-1] == f"to be tried on held-out rows first: {', '.join(choice.trial)}"
