"""A model and its teacher are asked together, and compared where they have the same task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_batching import LENGTH, Counting

from kinds import MOOD, STARS, TASKS
from understill.serve.batching import QueueFull
from understill.serve.prometheus import ServerMetrics
from understill.serve.schemas import Question
from understill.serve.service import QueuedModel, Service, _same
from understill.serve.settings import ServerSettings


def test_a_task_is_the_same_where_its_answers_can_be_compared() -> None:
    assert all(_same(task, task) for task in TASKS)
    assert _same(MOOD, replace(MOOD, labels=MOOD.labels[::-1])), "answers come by name, not by place"
    assert not _same(MOOD, replace(MOOD, labels=("calm", "angry")))
    assert not _same(STARS, replace(STARS, range=(0.0, 5.0)))
    assert not _same(MOOD, replace(MOOD, name="mode")) and not _same(MOOD, replace(MOOD, text=("one", "two")))


def play(scene: Callable[[Service, Counting, Counting], Awaitable[None]], queue: int = 600) -> None:
    """Play a scene with a service of two counting models."""

    async def run() -> None:
        metrics, settings = ServerMetrics(), ServerSettings(Path("model"), queue=queue)
        service, model, teacher = Service(settings, metrics), Counting(), Counting()
        model.max_lengths = teacher.max_lengths = {}
        service.model = QueuedModel("model", Path("model"), model, settings, metrics)
        service.teacher = QueuedModel("teacher", Path("teacher"), teacher, settings, metrics)
        try:
            await asyncio.wait_for(scene(service, model, teacher), 30)
        finally:
            model.free.set()
            teacher.free.set()
            await asyncio.to_thread(service.close)

    asyncio.run(run())


def question(texts: list[str], **more: Any) -> Question:
    return Question(texts=texts, tasks=["length"], **more)


def test_scores_differ_beyond_a_tenth_of_the_range() -> None:
    async def scene(service: Service, model: Counting, teacher: Counting) -> None:
        reply = await service.answer(question(["a"], teacher=True))
        assert reply["differ"] == [[]] and reply["teacher"]["answers"] == reply["answers"]

    play(scene)


def test_where_the_teacher_has_no_room_the_model_does_not_work_in_vain() -> None:
    async def scene(service: Service, model: Counting, teacher: Counting) -> None:
        assert service.model and service.teacher
        for each in (model, teacher):
            each.free.clear()
        busy = [each.batcher.submit(["x"], None, [LENGTH]) for each in (service.model, service.teacher)]
        assert model.busy.wait(30) and teacher.busy.wait(30)
        full = service.teacher.batcher.submit(["y"] * 600, None, [LENGTH])
        with pytest.raises(QueueFull):
            await service.answer(question(["in vain"], teacher=True))
        full.cancel()
        model.free.set()
        teacher.free.set()
        await asyncio.gather(*busy)
        await service.answer(question(["after"]))
        assert not any("in vain" in texts for texts, _ in model.passes)

    play(scene)
