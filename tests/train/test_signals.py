"""A signal while a model is trained: a checkpoint after the step, and the same bits when it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from helpers import TASKS, same, some_batches, some_model, weights_of
from understill import pipeline
from understill.errors import Interrupted
from understill.events import Evaluated, Event, Resumed
from understill.losses.fused import FusedObjective
from understill.models.folder import load_model
from understill.recipe import Recipe
from understill.recipe.schema import Machine, Training
from understill.train import fit as fitting
from understill.train.device import make_accelerator
from understill.train.loop import Step
from understill.train.signals import SIGNALS


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_checkpoint_from_which_it_goes_on_to_the_same_bits(
    number: signal.Signals, make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Evaluated) and event.step == 3:
            os.kill(os.getpid(), number)

    before = handlers()
    with pytest.raises(Interrupted, match=f"stopped by {number.name} after step 4 of 6") as raised:
        pipeline.train_some(pipeline.make_study(make_tiny()), (), stop)
    assert raised.value.number == number and handlers() == before
    assert [path.name for path in (tmp_path / "runs").rglob("checkpoint-*")] == ["checkpoint-4"]
    events: list[Event] = []
    (resumed,) = pipeline.train_some(pipeline.make_study(make_tiny()), (), events.append)
    assert [event.step for event in events if isinstance(event, Resumed)] == [4]
    (whole,) = pipeline.train_some(pipeline.make_study(make_tiny(output={"folder": str(tmp_path / "whole")})), ())
    assert same(*(weights_of(load_model(each.folder).model) for each in (resumed, whole)))
    assert resumed.history == whole.history


def test_a_signal_during_the_last_evaluation_is_not_forgotten(make_tiny: Callable[..., Recipe]) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Evaluated) and event.step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="after step 6 of 6"):
        pipeline.train_some(pipeline.make_study(make_tiny()), (), stop)
    (model,) = pipeline.train_some(pipeline.make_study(make_tiny()), ())
    assert [entry["step"] for entry in model.history] == [3, 6]


def begun(folder: Path, tiny: Path) -> Generator[fitting.Event]:
    """Return a training that has taken a step."""
    events = fitting.fit(
        some_model(tiny),
        FusedObjective(TASKS, "sigmoid"),
        some_batches(),
        Training(steps=8, batch=8, lr=1e-3, checkpoint="never", evaluate="never"),
        accelerator=make_accelerator(Machine(device="cpu", threads=1), "fp32"),
        seed=0,
        folder=folder,
        evaluate=lambda model: (0.0, {}),
    )
    assert any(isinstance(event, Step) for event in events)
    return events


def test_of_models_trained_in_turns_all_write_a_checkpoint_when_one_has_seen_the_signal(
    tiny: Path, tmp_path: Path
) -> None:
    with SIGNALS, SIGNALS:
        one, two = (begun(tmp_path / name, tiny) for name in ("one", "two"))
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            next(event for event in one if isinstance(event, Step))
        two.close()
    assert sorted(path.name for path in tmp_path.glob("*/checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]


def test_a_training_that_is_left_for_another_reason_writes_nothing(tiny: Path, tmp_path: Path) -> None:
    with SIGNALS:
        begun(tmp_path, tiny).close()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_the_second_signal_ends_the_process_at_once() -> None:
    program = """
import os, signal, time
from understill.train.signals import SIGNALS
with SIGNALS:
    os.kill(os.getpid(), signal.SIGINT)
    assert SIGNALS.number == signal.SIGINT
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGTERM and "once more stops at once" in ended.stderr


def test_signals_that_are_ignored_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SIGNALS:
            os.kill(os.getpid(), signal.SIGINT)
            assert SIGNALS.number == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_train_without_listening() -> None:
    before, seen = handlers(), list[object]()

    def listen() -> None:
        with SIGNALS:
            seen.extend(handlers())

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == before
