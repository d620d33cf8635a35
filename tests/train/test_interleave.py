"""Interleaving: every job runs to its end, slots never stay empty, and models that need others come after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import same, weights_of
from understill import pipeline
from understill.engines import local
from understill.events import Scored, TrainingState
from understill.models.folder import load_model
from understill.pipeline import train_models
from understill.pipeline.plan.parts import ModelPlan
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train import interleave as interleaving
from understill.train.interleave import Job, beside_others, interleave, slots_of, slots_on


class Event:
    """A mark in a stream that the GPU reaches after it was asked for a few times."""

    patience = 0

    def __init__(self) -> None:
        self.asked = 0

    def record(self, stream: object) -> None:
        """Stand in the stream."""

    def query(self) -> bool:
        """Tell whether it was reached."""
        self.asked += 1
        return self.asked > self.patience


def pretend(patch: pytest.MonkeyPatch, patience: int = 0) -> None:
    """Let jobs have streams where there is no GPU."""
    patch.setattr(torch.cuda, "Stream", object)
    patch.setattr(torch.cuda, "Event", Event)
    patch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    patch.setattr(Event, "patience", patience)
    patch.setattr(torch.cuda, "mem_get_info", lambda: (100, 100))
    patch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    patch.setattr(torch.cuda, "memory_reserved", lambda: 0)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)


class Work:
    """Jobs of several lengths and places, with a record of what was done when."""

    def __init__(self, lengths: Sequence[int], sizes: Sequence[int] | None = None) -> None:
        self.left = list(enumerate(zip(lengths, sizes or [1] * len(lengths), strict=True)))
        self.running: dict[int, int] = {}  # the places of each job that was begun and is not over
        self.before: list[int] = []  # places taken whenever a job was begun
        self.done: list[tuple[int, int]] = []  # job and step
        self.ended: list[int] = []

    def begin(self) -> Job | None:
        if not self.left:
            return None
        number, (length, size) = self.left.pop(0)
        self.before.append(sum(self.running.values()))
        self.running[number] = size
        return Job(self.steps(number, length), size)

    def steps(self, number: int, length: int) -> Iterator[None]:
        for step in range(length):
            self.done.append((number, step))
            yield
        del self.running[number]
        self.ended.append(number)


@given(
    jobs=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=8),
    places=st.integers(1, 5),
    patience=st.integers(0, 3),
)
def test_every_job_runs_to_its_end_step_by_step(jobs: list[tuple[int, int]], places: int, patience: int) -> None:
    work = Work([length for length, _ in jobs], [size for _, size in jobs])
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, patience)
        interleave(work.begin, places)
    for number, (length, _) in enumerate(jobs):
        assert [step for job, step in work.done if job == number] == list(range(length))
    assert sorted(work.ended) == list(range(len(jobs)))
    assert all(taken < places for taken in work.before), "a job is begun only where a place is free"
    if places == 1:
        assert work.ended == list(range(len(jobs)))


def test_jobs_take_turns_and_a_free_place_is_filled_at_once(streams: None) -> None:
    work = Work([2, 4, 2, 1])
    interleave(work.begin, 2)
    # Job 0 is over when it is asked for a third step; then job 2 has its place, and takes a step as it comes in.
    assert work.done == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (1, 2), (2, 1), (1, 3), (3, 0)]
    assert work.before == [0, 1, 1, 1]


def test_a_job_waits_for_memory_and_none_is_left_half_done_when_one_fails(
    streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work([2, 2, 2])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 90)  # of 100, so that no second one fits
    interleave(work.begin, 3)
    assert work.before == [0, 0, 0] and work.ended == [0, 1, 2]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    closed = []

    def steps(number: int) -> Iterator[None]:
        try:
            yield
            if number == 1:
                raise RuntimeError("broken")
            yield
        finally:
            closed.append(number)

    jobs = [Job(steps(number)) for number in range(3)]  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="broken"):
        interleave(lambda: jobs.pop(0) if jobs else None, 3)
    assert sorted(closed) == [0, 1, 2]


def test_a_large_job_takes_the_places_of_several_small_ones(streams: None) -> None:
    work = Work([3, 3, 3, 3], [2, 1, 1, 1])
    interleave(work.begin, 3)
    assert work.before == [0, 2, 1, 2], "two small ones when it is over"
    alone = Work([3, 3], [8, 1])
    interleave(alone.begin, 4)
    assert alone.before == [0, 0] and alone.ended == [0, 1], "what needs more places than there are runs alone"


def test_one_at_a_time_needs_no_gpu() -> None:
    work = Work([2, 3])
    interleave(work.begin, 1)
    assert work.done == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("places", [1, 3])
def test_a_job_that_has_to_wait_for_others_is_asked_for_again(places: int, streams: None) -> None:
    finished: list[str] = []
    waiting = {"child": {"mother", "father"}, "mother": set(), "father": {"mother"}}

    def steps(name: str) -> Iterator[None]:
        yield
        yield
        finished.append(name)

    def begin() -> Job | None:
        ready = [name for name, needs in waiting.items() if needs <= set(finished)]
        if not ready:
            return None
        del waiting[ready[0]]
        return Job(steps(ready[0]))

    interleave(begin, places)
    assert finished == ["mother", "father", "child"]


def test_a_job_is_not_asked_for_more_than_a_few_steps_ahead_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[Event] = []
    most = 0

    class Slow(Event):
        def record(self, stream: object) -> None:
            nonlocal most
            marks.append(self)
            most = max(most, sum(mark.asked <= self.patience for mark in marks))

    pretend(monkeypatch, patience=30)
    monkeypatch.setattr(torch.cuda, "Event", Slow)
    work = Work([12, 12])
    interleave(work.begin, 2)
    assert sorted(work.ended) == [0, 1] and len(marks) == 24
    assert most == 6  # two jobs, three steps each


@pytest.mark.parametrize("places", [1, 2])
def test_a_job_that_fails_stops_them_all(places: int, streams: None) -> None:
    def steps(fails: bool) -> Iterator[None]:
        yield
        if fails:
            raise ValueError("no")
        done.append(fails)

    done: list[bool] = []
    jobs = [Job(steps(fails)) for fails in (True, False, False)]
    with pytest.raises(ValueError, match="no"):
        interleave(lambda: jobs.pop(0) if jobs else None, places)
    assert not done


def test_without_cuda_there_is_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert slots_on(Machine()) == slots_on(Machine(together=4)) == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert slots_on(Machine(device="cpu", together=4)) == 1
    assert slots_on(Machine(together=3)) == 3
    assert slots_on(Machine()) > 1


def test_a_model_takes_places_by_the_rows_of_its_batch() -> None:
    assert [slots_of(batch) for batch in (1, 16, 32, 64, 128)] == [1, 1, 1, 2, 4]


# Models --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def distil(make_tiny: Callable[..., Recipe], tmp_path: Path) -> Callable[[str], Recipe]:
    """A function that makes a tiny recipe of two tasks with a teacher each, which is the student's baseline as well."""

    def make(name: str) -> Recipe:
        return make_tiny(
            tasks=["mood", "similar"],
            models="each",
            teachers=[{"tasks": "each"}],
            targets={"weak": "keep"},
            output={"folder": str(tmp_path / name)},
        )

    return make


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return weights_of(load_model(folder).model)


def by_name(models: Sequence[ModelPlan], *names: str) -> list[ModelPlan]:
    return [next(model for model in models if model.name == name) for name in names]


def test_a_student_is_taught_after_the_teachers_it_needs(distil: Callable[[str], Recipe]) -> None:
    plan, events = pipeline.make_plan(distil("runs")), []
    (student,) = by_name(plan.models, "student-mood")
    (trained,) = train_models(plan, [student], events.append)
    assert (trained.name, trained.role) == ("student-mood", "student")
    (teacher,) = student.distillation.teachers[0].models
    begun = [event.model for event in events if isinstance(event, TrainingState)]
    assert begun == [teacher.name, "student-mood"], "and nobody it does not need"
    # A finished student needs nobody.
    teacher.folder.rename(teacher.folder.with_name("elsewhere"))
    events.clear()
    assert train_models(plan, [student], events.append) == [trained]
    assert [event.model for event in events if isinstance(event, TrainingState)] == ["student-mood"]


def test_models_that_are_the_same_are_trained_once_and_keep_their_names(distil: Callable[[str], Recipe]) -> None:
    plan, events = pipeline.make_plan(distil("runs")), []
    assert len({model.folder for model in plan.models}) == 4 < len(plan.models) == 6
    trained = train_models(plan, plan.models, events.append)
    assert [(model.name, model.role) for model in trained] == [(model.name, model.role) for model in plan.models]
    assert len([event for event in events if isinstance(event, TrainingState)]) == 4
    for task in ("mood", "similar"):
        teacher, baseline, student = (
            next(model for model in trained if model.name == f"{role}-{task}")
            for role in ("teacher", "baseline", "student")
        )
        assert (teacher.folder, teacher.scores, teacher.history) == (baseline.folder, baseline.scores, baseline.history)
        assert student.folder != teacher.folder


def test_models_taught_in_turns_are_those_taught_one_by_one(
    distil: Callable[[str], Recipe], streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train_models(plan := pipeline.make_plan(distil("alone")), plan.models)
    monkeypatch.setattr(local, "slots_on", lambda _: 3)
    events: list[Any] = []
    together = train_models(plan := pipeline.make_plan(distil("together")), plan.models, events.append)
    kinds = [type(event) for event in events if isinstance(event, (TrainingState, Scored))]
    assert kinds[:2] == [TrainingState, TrainingState], "the second was begun before the first was over"
    for one, two in zip(alone, together, strict=True):
        assert (one.name, one.scores) == (two.name, two.scores)
        assert one.folder != two.folder and same(weights(one.folder), weights(two.folder))


@pytest.mark.parametrize("slots", [1, 8])
def test_work_of_the_cpu_is_done_while_others_have_their_turns_and_its_mistakes_are_raised(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleaving, "slots_on", lambda machine: slots)
    others = threading.Event()

    def work() -> int:
        assert others.wait(30) if slots > 1 else not others.is_set(), "nobody else had a turn"
        return 7

    def job(results: list[int]) -> Iterator[None]:
        results.append((yield from beside_others(work, Machine(device="cpu"))))

    results: list[int] = []
    for _ in job(results):
        others.set()
    assert results == [7] and others.is_set() == (slots > 1)
    with pytest.raises(ZeroDivisionError):
        list(beside_others(lambda: 1 // 0, Machine(device="cpu")))
