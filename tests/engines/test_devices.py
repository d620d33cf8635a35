"""A GPU for each model: stages go to the process that runs the fewest, and what is made is what one process makes.

There is no machine with two GPUs here: each device is a process on the CPU, and the stages are real.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import same, weights_of
from understill import pipeline
from understill.engines import devices
from understill.engines.local import Queue
from understill.errors import UserError
from understill.events import Event, Scored, TrainingState, Watch
from understill.models.folder import load_model
from understill.pipeline.stage import Resources, Stage
from understill.recipe import Recipe
from understill.recipe.schema import Machine

CPU = Machine(device="cpu")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[devices._Worker]:
    """Two devices, and their processes once there are any."""
    workers: list[devices._Worker] = []

    class Worker(devices._Worker):
        def __init__(self, device: str, recipe: Recipe, slots: int) -> None:
            super().__init__(device, recipe, slots)
            self.made: list[str] = []
            workers.append(self)

        def read(self, queue: Queue, watch: Watch) -> None:
            before = set(self.running)
            super().read(queue, watch)
            self.made += before - self.running

    monkeypatch.setattr(devices, "visible_gpus", lambda machine: ["cpu", "cpu"])
    monkeypatch.setattr(devices, "_Worker", Worker)
    return workers


def distil(make_tiny: Callable[..., Recipe], folder: Path) -> Recipe:
    return make_tiny(
        tasks=["mood", "similar"],
        teachers=[{"tasks": "each"}],
        targets={"weak": "keep"},
        student={"distil": {}},
        training={"steps": 6},
        output={"folder": str(folder)},
    )


def test_models_on_two_devices_are_those_of_one_process(
    make_tiny: Callable[..., Recipe], tmp_path: Path, two: list[devices._Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    together = pipeline.run(distil(make_tiny, tmp_path / "together"), events.append)
    assert [worker.process.returncode for worker in two] == [0, 0]
    assert all(worker.made for worker in two), "each has made something"
    assert sorted(event.model for event in events if isinstance(event, Scored)) == sorted(
        {event.model for event in events if isinstance(event, TrainingState)}
    ), "each is scored once"
    monkeypatch.undo()
    alone = pipeline.run(distil(make_tiny, tmp_path / "alone"))
    for one, other in zip(alone.models, together.models, strict=True):
        assert (one.name, one.scores, one.history) == (other.name, other.scores, other.history)
        assert same(*(weights_of(load_model(each.folder).model) for each in (one, other)))


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_run_and_the_other_writes_a_checkpoint_first(
    make_tiny: Callable[..., Recipe], tmp_path: Path, two: list[devices._Worker]
) -> None:
    def recipe() -> Recipe:
        made = distil(make_tiny, tmp_path / "runs")
        return made.model_copy(update={"training": made.training.model_copy(update={"steps": 400})})

    def kill(event: Event) -> None:
        busy = [worker for worker in two if worker.running]
        if isinstance(event, TrainingState) and len(busy) == 2:
            os.kill(two[0].process.pid, signal.SIGKILL)

    with pytest.raises(UserError, match="the process of device cpu was ended by SIGKILL → the same command resumes"):
        pipeline.run(recipe(), kill)
    assert two[1].process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert pipeline.run(recipe()).models


@pytest.mark.slow
def test_a_mistake_in_the_process_of_a_device_is_raised_here(
    make_tiny: Callable[..., Recipe], tmp_path: Path, two: list[devices._Worker]
) -> None:
    recipe = distil(make_tiny, tmp_path / "runs")
    refused = recipe.model_copy(update={"targets": recipe.targets.model_copy(update={"weak": "stop"})})
    with pytest.raises(UserError, match="should not teach"):
        pipeline.run(refused)
    assert all(worker.process.returncode is not None for worker in two)


# Who gets what --------------------------------------------------------------------------------------------------------


class Pretended:
    """A worker as far as handing out goes."""

    def __init__(self, started: bool = True) -> None:
        self.started = self.asks = started
        self.running: set[str] = set()
        self.sent: list[str] = []
        self.connection = SimpleNamespace(send=self.sent.append)


def stage(key: str, *needs: str) -> Stage:
    return Stage("train", key, key, needs, lambda watch: None, resources=Resources(places=1))


def queue_of(stages: Sequence[Stage]) -> Queue:
    return Queue(stages, [each.key for each in stages], CPU)


def hand_out(queue: Queue, workers: Sequence[Any]) -> None:
    devices._hand_out(queue, workers)


def test_a_device_that_plans_otherwise_says_so() -> None:
    device = devices._Device.__new__(devices._Device)
    device.stages, device.running, device.asked = {}, 0, True
    device.connection = SimpleNamespace(recv=lambda: "train/other")  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"another kind, with another precision → name training.precision"):
        device._begin()


def test_one_that_is_ready_does_not_wait_for_one_that_starts_with_as_little_to_do() -> None:
    workers, queue = [Pretended(started=False), Pretended()], queue_of([stage("a")])
    hand_out(queue, workers)
    assert workers[1].sent == ["a"]


def test_a_process_that_still_starts_is_waited_for_rather_than_giving_two_models_to_one() -> None:
    workers, queue = [Pretended(), Pretended(started=False)], queue_of([stage("a"), stage("b"), stage("c")])
    hand_out(queue, workers)
    assert (workers[0].sent, workers[1].sent) == (["a"], [])
    workers[0].asks = True  # it has slots for more
    hand_out(queue, workers)
    assert workers[0].sent == ["a"]
    workers[1].started = workers[1].asks = True
    hand_out(queue, workers)
    assert (workers[0].sent, workers[1].sent) == (["a", "c"], ["b"])


@given(st.data())
def test_all_stages_are_handed_out_once_after_their_needs_and_loads_differ_by_one_at_most(data: st.DataObject) -> None:
    stages: list[Stage] = []
    for number in range(data.draw(st.integers(1, 8))):
        needs = data.draw(st.sets(st.sampled_from([each.key for each in stages]))) if stages else set()
        stages.append(stage(str(number), *sorted(needs)))
    workers, queue = [Pretended() for _ in range(data.draw(st.integers(1, 4)))], queue_of(stages)
    made: list[str] = []
    while queue.unmade:
        hand_out(queue, workers)
        while any(worker.sent[-1:] and not worker.asks for worker in workers):
            for worker in workers:
                worker.asks = True
            hand_out(queue, workers)
        loads = [len(worker.running) for worker in workers]
        assert sum(loads) > 0 and (made or max(loads) - min(loads) <= 1)
        worker = data.draw(st.sampled_from([each for each in workers if each.running]))
        key = data.draw(st.sampled_from(sorted(worker.running)))
        assert all(need in made for each in stages if each.key == key for need in each.needs)
        worker.running.remove(key)
        queue.made(key)
        made.append(key)
    assert sorted(made) == sorted(each.key for each in stages)
    assert sorted(key for worker in workers for key in worker.sent) == sorted(made)


def test_stages_that_need_each_other_are_reported_rather_than_waited_for() -> None:
    with pytest.raises(AssertionError, match="stages that wait for each other"):
        hand_out(queue_of([stage("a", "b"), stage("b", "a")]), [Pretended()])


def test_one_model_is_trained_in_this_process_however_many_gpus_there_are(
    make_tiny: Callable[..., Recipe], two: list[devices._Worker]
) -> None:
    pipeline.train_some(pipeline.make_study(make_tiny()), ())
    assert not two


@pytest.mark.parametrize(("named", "names"), [(None, ["0", "1", "2"]), ("4,7", ["4", "7"]), ("GPU-ab", ["GPU-ab"])])
def test_gpus_are_named_as_in_the_environment(
    named: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr(devices, "pick_device", lambda machine: "cuda")
    monkeypatch.setattr(devices.torch.cuda, "device_count", lambda: len(names))
    assert devices.visible_gpus(CPU) == names
