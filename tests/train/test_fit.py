"""Fitting: evaluation, the best weights, early stopping and reports, and going on where a run was cut off."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import TASKS, padding_of, same, some_batches, some_model, weights_of
from understill.data.batches import Batches
from understill.errors import TrainingError
from understill.events import Evaluated, Fitted, Report, Resumed
from understill.losses.fused import FusedObjective
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Anneal, Distil, Machine, Training
from understill.recipe.section import Every
from understill.train import fit as fitting
from understill.train import meter
from understill.train.checkpoint import save_checkpoint
from understill.train.device import cpu_has_bf16, make_accelerator
from understill.train.fit import fit, is_due
from understill.train.loop import Step

Event = Report | Evaluated | Fitted
#: Steps in an epoch of the made-up rows.
EPOCH = some_batches().steps_per_epoch


def training(**settings: Any) -> Training:
    return Training(**{"steps": 8, "batch": 8, "lr": 1e-3, "checkpoint": "never", "evaluate": "never", **settings})


class Scripted:
    """An evaluation whose scores are given, and which remembers the weights it saw."""

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)
        self.seen: list[dict[str, torch.Tensor]] = []

    def __call__(self, model: MultiTaskModel) -> tuple[float, dict[str, dict[str, float]]]:
        assert not model.training
        self.seen.append(weights_of(model))
        score = self.scores[len(self.seen) - 1] if self.scores else 0.1 * len(self.seen)
        return score, {"mood/dev": {"accuracy": score}}


def start(
    folder: Path,
    model: MultiTaskModel,
    settings: Training,
    evaluate: Callable[[MultiTaskModel], Any] | None = None,
    precision: str = "fp32",
    distil: Distil | None = None,
    batches: Batches | None = None,
    together: int = 1,
) -> Iterator[Event]:
    events = fit(
        model,
        FusedObjective(TASKS, "sigmoid", distil),
        batches or some_batches(),
        settings,
        accelerator=make_accelerator(Machine(device="cpu", threads=1), precision),
        seed=0,
        folder=folder,
        evaluate=evaluate or Scripted(),
        together=together,
    )
    return (event for event in events if not isinstance(event, (Step, Resumed)))


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report after every step."""
    monkeypatch.setattr(meter, "REPORT_SECONDS", 0)


def run(folder: Path, tiny: Path, settings: Training, evaluate: Any = None) -> tuple[MultiTaskModel, list[Event]]:
    model = some_model(tiny)
    return model, list(start(folder, model, settings, evaluate))


# When things happen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("3 steps", [3, 6, 8]),
        ("4 steps", [4, 8]),
        ("100 steps", [8]),
        ("0.5 steps", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("0.25 epochs", [5, 8]),  # an epoch has 18 steps
        ("1 epoch", [8]),
        ("never", []),
    ],
)
def test_evaluation_comes_when_it_is_due_and_at_the_end(
    every: str, expected: list[int], tiny: Path, tmp_path: Path
) -> None:
    assert EPOCH == 18
    _, events = run(tmp_path, tiny, training(evaluate=every))
    assert [event.step for event in events if isinstance(event, Evaluated)] == expected
    assert isinstance(events[-1], Fitted) and [entry["step"] for entry in events[-1].history] == expected


@pytest.mark.parametrize(
    ("every", "expected"), [("3 steps", [3, 6, 8]), ("0.0000001 minutes", list(range(1, 9))), ("never", [8])]
)
def test_checkpoints_come_when_they_are_due_and_at_the_end(
    every: str, expected: list[int], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []

    def note(folder: Path, step: int, *rest: Any) -> None:
        saved.append(step)
        save_checkpoint(folder, step, *rest)

    monkeypatch.setattr(fitting, "save_checkpoint", note)
    run(tmp_path, tiny, training(checkpoint=every))
    assert saved == expected


class Clock:
    """A clock that goes on by so many seconds whenever a step is taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.now, self.seconds, real = 0.0, list(seconds), fitting.steps

        def slow(*given: Any, **named: Any) -> Iterator[Step]:
            for step in real(*given, **named):
                self.now += self.seconds[min(step.number, len(self.seconds)) - 1]
                yield step

        monkeypatch.setattr(fitting.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(fitting, "steps", slow)

    def __call__(self, model: MultiTaskModel) -> tuple[float, dict[str, dict[str, float]]]:
        """Evaluate for a minute and a half."""
        self.now += 90
        return 0.5, {}


def test_the_first_checkpoint_comes_after_a_minute_and_the_others_as_the_recipe_says(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(fitting, "save_checkpoint", lambda folder, step, *rest: saved.append(step))
    Clock(monkeypatch, 20)
    run(tmp_path / "five", tiny, training(checkpoint="5 minutes", steps=35))
    assert saved == [3, 18, 33]
    saved.clear()
    run(tmp_path / "half", tiny, training(checkpoint="0.5 minutes", steps=5))
    assert saved == [2, 4]


def test_of_models_that_are_trained_together_each_has_its_first_checkpoint_later_by_as_many_minutes(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(fitting, "save_checkpoint", lambda folder, step, *rest: saved.append(step))
    Clock(monkeypatch, 20)
    list(start(tmp_path / "three", some_model(tiny), training(checkpoint="5 minutes", steps=30), together=3))
    list(start(tmp_path / "nine", some_model(tiny), training(checkpoint="5 minutes", steps=20), together=9))
    assert saved == [9, 24, 15], "after three minutes, then after five; and never later than the recipe says"


def test_the_time_left_is_not_judged_by_slow_first_steps_nor_by_evaluations(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, 60, 30, 10, 2)  # and 2 seconds for every other step
    events = list(start(tmp_path, some_model(tiny), training(steps=14, evaluate="6 steps"), clock))
    left = {event.step: event.seconds_left for event in events if isinstance(event, Report)}
    # Until the first evaluation nobody knows what one takes; that of a step comes after its report.
    assert left == {
        1: None, 2: None, 3: None, 4: None, 5: None, 6: 8 * 2, 7: 7 * 2 + 2 * 90, 8: 6 * 2 + 2 * 90,
        9: 5 * 2 + 2 * 90, 10: 4 * 2 + 2 * 90, 11: 3 * 2 + 2 * 90, 12: 2 * 2 + 2 * 90, 13: 2 + 90, 14: 90,
    }  # fmt: skip


def test_the_time_left_follows_a_machine_that_slows_down(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, *[1] * 20, 10)
    events = list(start(tmp_path, some_model(tiny), training(steps=60), None))
    left = {event.step: event.seconds_left for event in events if isinstance(event, Report)}
    assert left[20] == pytest.approx(40)
    assert 8 * 20 < left[40] < 10 * 20, "ten seconds a step, of which there are 20"


@given(st.integers(1, 3000), st.integers(1, 500), st.sampled_from(["steps", "epochs"]), st.integers(1, 300))
def test_an_interval_is_kept_to_in_exact_arithmetic(hundredths: int, epoch: int, unit: Any, steps: int) -> None:
    every = Every(count=hundredths / 100, unit=unit)
    period = Fraction(hundredths, 100) * (epoch if unit == "epochs" else 1)
    due = [step for step in range(1, steps + 1) if is_due(every, step, epoch)]
    # A multiple of the period lies in (step - 1, step].
    assert due == [step for step in range(1, steps + 1) if step // period > (step - 1) // period]


# Best, last, and enough ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "kept"), [("best", 1), ("last", 3)])
def test_the_weights_kept_are_the_best_which_are_called_so_or_the_last(
    keep: str, kept: int, tiny: Path, tmp_path: Path
) -> None:
    evaluate = Scripted(0.2, 0.7, 0.7, 0.1)
    model, events = run(tmp_path, tiny, training(evaluate="2 steps", keep=keep), evaluate)
    assert same(weights_of(model), evaluate.seen[kept])
    assert not same(evaluate.seen[1], evaluate.seen[3])
    called = [event.best for event in events if isinstance(event, Evaluated)]
    assert called == ([True, True, False, False] if keep == "best" else [False] * 4)
    done = events[-1]
    assert isinstance(done, Fitted) and done.best_step == 4 and not done.early
    assert not model.training


def test_without_evaluation_the_last_weights_are_kept(tiny: Path, tmp_path: Path) -> None:
    model, events = run(tmp_path, tiny, training())
    assert isinstance(events[-1], Fitted) and events[-1].best_step == -1
    again, _ = run(tmp_path / "again", tiny, training(keep="last"))
    assert same(weights_of(model), weights_of(again))


def test_a_score_that_is_no_number_stops_training(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="step 4: the dev score is not a number"):
        run(tmp_path, tiny, training(evaluate="2 steps"), Scripted(0.1, float("nan")))


def test_evaluation_does_not_change_what_is_learnt(tiny: Path, tmp_path: Path) -> None:
    one, _ = run(tmp_path / "one", tiny, training(evaluate="1 steps", keep="last"))
    two, _ = run(tmp_path / "two", tiny, training())
    assert same(weights_of(one), weights_of(two))


def test_training_stops_when_the_score_has_not_risen_for_so_long(tiny: Path, tmp_path: Path) -> None:
    evaluate = Scripted(0.5, 0.6, 0.6, 0.55)
    model, events = run(tmp_path, tiny, training(evaluate="1 steps", patience=2), evaluate)
    done = events[-1]
    assert isinstance(done, Fitted) and done.early and (done.step, done.total, done.best_step) == (4, 8, 2)
    assert same(weights_of(model), evaluate.seen[1])


def test_a_rise_starts_the_patience_anew(tiny: Path, tmp_path: Path) -> None:
    evaluate = Scripted(0.5, 0.4, 0.6, 0.4, 0.7, 0.4, 0.3)
    _, events = run(tmp_path, tiny, training(evaluate="1 steps", patience=2), evaluate)
    assert isinstance(events[-1], Fitted) and events[-1].step == 7


def test_a_run_that_stopped_early_stays_stopped(tiny: Path, tmp_path: Path) -> None:
    settings = training(evaluate="1 steps", patience=1)
    first, _ = run(tmp_path, tiny, settings, Scripted(0.5, 0.4))
    second, events = run(tmp_path, tiny, settings, Scripted(0.9))
    assert [type(event) for event in events] == [Fitted]
    assert same(weights_of(first), weights_of(second))


def test_only_the_weights_that_may_still_be_needed_lie_on_disk(tiny: Path, tmp_path: Path) -> None:
    settings = training(evaluate="1 steps", checkpoint="4 steps")
    most = 0
    for event in start(tmp_path, some_model(tiny), settings):
        most = max(most, len(list(tmp_path.glob("best-*"))))
        if isinstance(event, Fitted):
            assert [path.name for path in tmp_path.glob("best-*")] == ["best-8.safetensors"]
    # Every evaluation was the best: the one the checkpoint refers to, the last one and, for a moment, the one before.
    assert most <= 3


# Reports -------------------------------------------------------------------------------------------------------------


def test_reports_add_up_what_happened_since_the_last(tiny: Path, tmp_path: Path, talkative: None) -> None:
    model = some_model(tiny, dropout=0.0)
    batches = some_batches()
    objective = FusedObjective(TASKS, "sigmoid")
    loss = objective(model(batches[0]), batches[0])
    reports = [event for event in start(tmp_path, model, training()) if isinstance(event, Report)]
    assert [report.step for report in reports] == list(range(1, 9))
    first = reports[0]
    counts = loss.counts[0].tolist()
    assert first.loss == pytest.approx(loss.total.item() / 8, rel=1e-4)
    expected = {task.name: float(loss.parts[0, i]) / counts[i] for i, task in enumerate(TASKS) if counts[i]}
    assert first.parts == pytest.approx(expected, rel=1e-4)
    assert first.total == 8 and first.epoch == 1 / EPOCH and first.micro_batch == 8
    assert first.rows_per_second > 0
    assert [report.seconds_left is None for report in reports] == [True] * 5 + [False] * 3
    assert reports[5].seconds_left > 0 and reports[-1].seconds_left == 0
    assert first.padding == pytest.approx(padding_of(batches[0]))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(report.step, report.loss) for report in reports]
    assert first.mix is None and "lambda" not in lines[0]


def test_a_quick_run_is_reported_once_at_its_end(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "REPORT_SECONDS", 1e9)
    _, events = run(tmp_path, tiny, training())
    assert [event.step for event in events if isinstance(event, Report)] == [8]


# Losses that are not numbers ------------------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_stops_before_anything_is_kept(tiny: Path, tmp_path: Path) -> None:
    model, calls = some_model(tiny), 0

    def spoil(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            with torch.no_grad():
                model.heads.tasks[1].out.bias.fill_(float("nan"))

    model.encoder.register_forward_pre_hook(spoil)
    evaluate = Scripted()
    with pytest.raises(TrainingError, match="step 5: the loss of topic is no longer a number"):
        list(start(tmp_path, model, training(checkpoint="3 steps", evaluate="2 steps"), evaluate))
    assert len(evaluate.seen) == 2
    assert [path.name for path in tmp_path.glob("*checkpoint*")] == ["checkpoint-3"]
    assert [path.name for path in tmp_path.glob("best-*")] == ["best-2.safetensors"]


def test_bf16_trains_weights_that_stay_fp32(tiny: Path, tmp_path: Path) -> None:
    if not cpu_has_bf16():
        pytest.skip("this processor cannot do bf16")
    model = some_model(tiny)
    before = weights_of(model)
    list(start(tmp_path, model, training(steps=2, keep="last"), precision="bf16"))
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert all(value.isfinite().all() for value in model.parameters()) and not same(weights_of(model), before)


# Going on ------------------------------------------------------------------------------------------------------------


def cut_off(
    folder: Path, model: MultiTaskModel, settings: Training, step: int, evaluate: Any = None, **how: Any
) -> None:
    """Train until a step is done but not yet saved, and walk away."""
    for event in start(folder, model, settings, evaluate, **how):
        if event.step == step:
            return
    raise AssertionError("it came to its end")


@pytest.mark.parametrize("optimizer", ["adamw", "adamax", "adadelta"])
def test_going_on_from_any_checkpoint_ends_with_the_same_bits(
    optimizer: str, tiny: Path, tmp_path: Path, talkative: None
) -> None:
    settings = training(optimizer=optimizer, checkpoint="1 steps", layer_decay=0.9, steps=7)
    whole, events = run(tmp_path / "whole", tiny, settings)
    for step in range(1, 8):
        folder = tmp_path / str(step)
        cut_off(folder, some_model(tiny), settings, step)
        # Nothing but the folder is handed on; fresh heads of another seed show that it holds all weights.
        again = some_model(tiny, seed=9 if step > 1 else 0)
        rest = list(start(folder, again, settings))
        assert rest[0].step == step
        assert same(weights_of(again), weights_of(whole)), step
        log = (folder / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in log] == list(range(1, 8))
        assert [json.loads(line)["loss"] for line in log] == [e.loss for e in events if isinstance(e, Report)]


def test_a_run_cut_off_many_times_ends_with_the_same_bits_and_history(
    tiny: Path, tmp_path: Path, talkative: None
) -> None:
    settings = training(checkpoint="2 steps", evaluate="1 steps", patience=4)
    scores = [0.1, 0.5, 0.3, 0.4, 0.45, 0.2, 0.1, 0.1]

    def by_step(done: int) -> Scripted:
        return Scripted(*scores[done:])

    whole, events = run(tmp_path / "whole", tiny, settings, by_step(0))
    folder, done = tmp_path / "cut", 0
    for step in (1, 2, 3, 4, 5):
        cut_off(folder, some_model(tiny), settings, step, by_step(done))
        done = (step - 1) // 2 * 2
    model, rest = run(folder, tiny, settings, by_step(done))
    assert rest[-1] == events[-1]
    assert isinstance(rest[-1], Fitted) and (rest[-1].best_step, rest[-1].step) == (2, 6)
    assert same(weights_of(model), weights_of(whole))


def test_going_on_says_from_which_step(tiny: Path, tmp_path: Path, talkative: None) -> None:
    settings = training(checkpoint="2 steps")
    how: dict[str, Any] = {"accelerator": make_accelerator(Machine(device="cpu", threads=1), "fp32"), "seed": 0}
    how |= {"folder": tmp_path, "evaluate": Scripted()}
    objective = FusedObjective(TASKS, "sigmoid")
    first = next(event for event in fit(some_model(tiny), objective, some_batches(), settings, **how))
    assert not isinstance(first, Resumed)
    cut_off(tmp_path, some_model(tiny), settings, 5)
    assert next(fit(some_model(tiny), objective, some_batches(), settings, **how)) == Resumed(4, 8)


def test_a_finished_run_gives_its_weights_again_without_a_step(tiny: Path, tmp_path: Path) -> None:
    settings = training(evaluate="2 steps")
    first, events = run(tmp_path, tiny, settings, Scripted(0.1, 0.9, 0.2, 0.3))
    second, again = run(tmp_path, tiny, settings)
    assert again == events[-1:]
    assert same(weights_of(first), weights_of(second))


def test_with_a_damaged_checkpoint_training_starts_anew(
    tiny: Path, tmp_path: Path, talkative: None, caplog: pytest.LogCaptureFixture
) -> None:
    settings = training(checkpoint="1 steps", evaluate="1 steps")
    whole, _ = run(tmp_path / "whole", tiny, settings)
    cut_off(tmp_path / "cut", some_model(tiny), settings, 5)
    (state,) = (tmp_path / "cut").glob("checkpoint-*/state.safetensors")
    state.write_bytes(state.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        model, rest = run(tmp_path / "cut", tiny, settings)
    assert "cannot be read" in caplog.text
    assert rest[0].step == 1
    assert same(weights_of(model), weights_of(whole))


def test_pieces_made_small_by_lack_of_memory_stay_small_after_a_restart(
    tiny: Path, tmp_path: Path, talkative: None
) -> None:
    settings = training(checkpoint="1 steps")

    def scarce(model: MultiTaskModel, steps: int) -> MultiTaskModel:
        calls = 0

        def look(_: Any, inputs: tuple[Any, ...]) -> None:
            nonlocal calls
            calls += 1
            if calls <= steps and len(inputs[0]) > 4:  # later batches would have fitted
                raise torch.OutOfMemoryError

        model.encoder.register_forward_pre_hook(look)
        return model

    whole = scarce(some_model(tiny), 1)
    list(start(tmp_path / "whole", whole, settings))
    cut_off(tmp_path / "cut", scarce(some_model(tiny), 1), settings, 4)
    again = some_model(tiny)
    reports = [event for event in start(tmp_path / "cut", again, settings) if isinstance(event, Report)]
    assert {report.micro_batch for report in reports} == {4}
    assert same(weights_of(again), weights_of(whole))


# Teachers ------------------------------------------------------------------------------------------------------------


def taught_batches(*, silent: str = "", gold: float | None = None) -> Batches:
    """The usual rows with a teacher's word on most of them; none for the task `silent`, and gold as said."""
    streams = []
    for stream in some_batches().streams:
        task, (tokens,) = TASKS[stream.task], stream.sources
        random = np.random.default_rng(stream.task)
        raw = random.normal(size=(len(tokens), task.outputs))
        output = 3 + raw if task.kind.name == "regression" else raw - np.log(np.exp(raw).sum(axis=1, keepdims=True))
        output[:: 1 if task.name == silent else 5] = np.nan
        if gold is not None:
            tokens.gold[~np.isnan(output[:, 0])] = gold
        streams.append(replace(stream, columns={"logits": output.astype(np.float32)}))
    return Batches(streams, batch=8, seed=0, window=2, pad=0)


def learnt(folder: Path, tiny: Path, **how: Any) -> dict[str, torch.Tensor]:
    model = some_model(tiny, dropout=0.1)
    list(start(folder, model, training(steps=4), **how))
    return weights_of(model)


@pytest.mark.parametrize("loss", ["cross_entropy", "logits"])
def test_with_all_weight_on_gold_the_weights_are_those_of_plain_training(loss: str, tiny: Path, tmp_path: Path) -> None:
    distil = Distil.model_validate({"loss": loss, "temperature": 3, "anneal": 1})
    plain = learnt(tmp_path / "plain", tiny)
    assert same(learnt(tmp_path / "all", tiny, distil=distil, batches=taught_batches()), plain)
    assert not same(learnt(tmp_path / "none", tiny, distil=Distil(), batches=taught_batches()), plain)
    # A recipe without a word on teachers does not hear them.
    assert same(learnt(tmp_path / "deaf", tiny, batches=taught_batches()), plain)


def test_with_all_weight_on_teachers_the_weights_are_those_of_pure_distillation(tiny: Path, tmp_path: Path) -> None:
    annealed = Distil.model_validate({"temperature": 2, "anneal": 0})
    pure = Distil(temperature=2, hard=0, soft=1, anneal=None)
    weights = learnt(tmp_path / "annealed", tiny, distil=annealed, batches=taught_batches())
    assert same(weights, learnt(tmp_path / "pure", tiny, distil=pure, batches=taught_batches()))
    # Other gold on the rows with a teacher is not noticed.
    for gold in (1.0, float("nan")):
        folder = tmp_path / str(gold)
        assert same(weights, learnt(folder, tiny, distil=annealed, batches=taught_batches(gold=gold)))


def test_reports_tell_hard_and_soft_parts_and_the_mix(tiny: Path, tmp_path: Path, talkative: None) -> None:
    model, batches = some_model(tiny, dropout=0.0), taught_batches(silent="stars")
    distil = Distil(hard=2, anneal=Anneal(shape="cosine"))
    loss = FusedObjective(TASKS, "sigmoid", distil)(model(batches[0]), batches[0])
    settings = training(batch=8)
    reports = [e for e in start(tmp_path, model, settings, distil=distil, batches=batches) if isinstance(e, Report)]
    counts, sums = loss.counts.tolist(), loss.parts.tolist()
    expected = {}
    for index, task in enumerate(TASKS):
        for kind, name in enumerate([task.name, f"{task.name}/hard", f"{task.name}/soft"]):
            if counts[0][index] and (kind == 0 or counts[2][index]):
                expected[name] = sums[kind][index] / counts[kind][index]
    assert set(expected) == {"topic", "topic/hard", "topic/soft", "stars"}
    assert reports[0].parts == pytest.approx(expected, rel=1e-4)
    assert reports[0].loss == pytest.approx(loss.total.item() / 8, rel=1e-4)
    assert [report.mix for report in reports] == [Anneal(shape="cosine").at(step / 8) for step in range(8)]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["lambda"] for line in lines] == [report.mix for report in reports]
    assert [line["parts"] for line in lines] == [report.parts for report in reports]


def test_going_on_in_the_middle_of_annealing_ends_with_the_same_bits(
    tiny: Path, tmp_path: Path, talkative: None
) -> None:
    settings = training(checkpoint="1 steps", steps=6)
    how = {"distil": Distil(temperature=2, anneal=Anneal(shape="cosine")), "batches": taught_batches()}
    whole = some_model(tiny)
    list(start(tmp_path / "whole", whole, settings, **how))
    log = (tmp_path / "whole" / "log.jsonl").read_text()
    for step in (2, 4, 6):
        folder = tmp_path / str(step)
        cut_off(folder, some_model(tiny), settings, step, **how)
        again = some_model(tiny, seed=9)
        list(start(folder, again, settings, **how))
        assert same(weights_of(again), weights_of(whole)), step
        assert (folder / "log.jsonl").read_text() == log
