"""Devices and precisions are looked for, and what is not there is refused in words."""

from __future__ import annotations

import gc
import platform
import resource
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from understill import pipeline
from understill.errors import UserError
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train import device
from understill.train.device import (
    check_trackers,
    cpu_has_bf16,
    make_accelerator,
    pick_device,
    pick_precision,
    released,
)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def test_without_a_gpu_the_processor_is_used(no_gpu: None) -> None:
    assert pick_device(Machine()) == "cpu"
    assert pick_device(Machine(device="cpu")) == "cpu"


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(name: Any, no_gpu: None) -> None:
    with pytest.raises(UserError, match=rf"machine\.device: {name} is not available here; write auto or cpu"):
        pick_device(Machine(device=name))


@pytest.mark.parametrize(("there", "expected"), [(("cuda", "mps"), "cuda"), (("mps",), "mps")])
def test_auto_takes_the_fastest(there: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    assert pick_device(Machine()) == expected
    assert pick_device(Machine(device="cpu")) == "cpu"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_on_a_processor_freed_memory_is_used_again_rather_than_fetched_anew() -> None:
    make_accelerator(Machine(device="cpu"), "fp32")
    fetched = []
    for _ in range(10):  # the first few times the heap still grows
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 24)  # 64 MiB, about as large as the gradient of an embedding
        fetched.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(fetched) < 1000  # of 16,384 pages


def test_fp16_needs_a_gpu() -> None:
    with pytest.raises(UserError, match=r"training\.precision: fp16 needs a GPU; use fp32"):
        pick_precision("fp16", "cpu")
    assert pick_precision("fp16", "cuda") == "fp16"


@pytest.mark.parametrize(
    ("place", "supported", "expected"), [("cpu", True, "fp32"), ("cuda", True, "bf16"), ("cuda", False, "fp32")]
)
def test_auto_is_bf16_only_where_the_gpu_has_it(
    place: str, supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported or including_emulation
    )
    assert pick_precision("auto", place) == expected


def test_bf16_on_a_processor_is_tried_out_without_risk() -> None:
    assert cpu_has_bf16() in (True, False)


@pytest.mark.parametrize("probe", ["import os, signal; os.kill(os.getpid(), signal.SIGILL)", "import sys; sys.exit(1)"])
def test_a_processor_that_crashes_on_bf16_is_found_out(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_PROBE", probe)
    monkeypatch.setattr(device, "cpu_has_bf16", cpu_has_bf16.__wrapped__)  # without the memory of the last answer
    with pytest.raises(UserError, match=r"training\.precision: bf16 crashes on this processor; use fp32"):
        pick_precision("bf16", "cpu")


def test_a_processor_with_bf16_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: True)
    assert pick_precision("bf16", "cpu") == "bf16"


def test_the_accelerator_is_what_the_recipe_says() -> None:
    before = torch.get_num_threads()
    try:
        accelerator = make_accelerator(Machine(device="cpu", threads=1), "fp32")
        assert accelerator.device == torch.device("cpu") and accelerator.mixed_precision == "no"
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_released_model_has_its_own_forward_and_is_freed_with_its_last_name() -> None:
    model = torch.nn.Linear(2, 2)
    AcceleratorState._reset_state()
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    released(accelerator, accelerator.prepare(model))
    assert model.forward.__func__ is torch.nn.Linear.forward and "forward" not in model.__dict__
    accelerator.free_memory()
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()
        AcceleratorState._reset_state()


def test_each_model_may_have_its_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: True)
    result = [make_accelerator(Machine(device="cpu"), each).mixed_precision for each in ("fp32", "bf16", "fp32")]
    assert result == ["no", "bf16", "no"]


def test_several_processes_that_have_not_joined_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="torchrun … -m understill run"):
        make_accelerator(Machine(device="cpu"), "fp32")


# Trackers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", 'output.trackers: "tensorbord" is not a tracker; did you mean "tensorboard"'),
        ("zork", 'output.trackers: "zork" is not a tracker; known: .*tensorboard'),
        ("all", '"all" is not a tracker'),
        ("wandb", "output.trackers: wandb is not installed; pip install wandb"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "get_available_trackers", lambda: ["tensorboard"])
    with pytest.raises(UserError, match=message):
        check_trackers(("tensorboard", name))
    with pytest.raises(UserError, match=message):
        make_accelerator(Machine(device="cpu"), "fp32", (name,))


def test_a_tracker_that_cannot_be_used_is_found_before_any_work(make_tiny: Callable[..., Recipe]) -> None:
    with pytest.raises(UserError, match="tensorboard"):
        pipeline.make_plan(make_tiny(output={"trackers": ["tensorbord"]}))


def test_tensorboard_is_told_what_happens(make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setattr("understill.train.meter.REPORT_SECONDS", 0)
    (model,) = pipeline.run(make_tiny(output={"trackers": "tensorboard"}, training={"steps": 4})).models
    (file,) = Path(model.folder).parent.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]
    assert [event.step for event in events.Scalars("dev")] == [3, 4]
    assert {"rate", "rows_per_second", "loss/mood", "mood/dev/accuracy"} <= set(events.Tags()["scalars"])


def test_without_trackers_nothing_is_written_for_them(make_tiny: Callable[..., Recipe]) -> None:
    (model,) = pipeline.run(make_tiny(training={"steps": 2})).models
    assert not list(Path(model.folder).parent.rglob("events.out*"))


@pytest.mark.parametrize(
    ("threads", "environment", "expected"), [(None, {}, 2), (3, {}, 3), (None, {"OMP_NUM_THREADS": "4"}, 4)]
)
def test_threads_are_no_more_than_a_container_may_use_unless_told(
    threads: int | None, environment: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(device, "cores", lambda: 2)
    try:
        torch.set_num_threads(4)
        device.set_threads(Machine(threads=threads))
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)
