"""The service: the model and its teacher behind their queues, asked and compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from heapq import nlargest
from logging import WARNING
from pathlib import Path
from typing import Any, Literal

from starlette.exceptions import HTTPException

from understill.errors import UserError
from understill.inference.loading import load
from understill.inference.predictor import Predictor
from understill.serve.batching import Batcher, ModelPass, Row
from understill.serve.logs import log_error, log_event
from understill.serve.prometheus import ServerMetrics
from understill.serve.schemas import Question
from understill.serve.settings import ServerSettings, name_of
from understill.tasks import Task

#: Scores differ when they lie further apart than this part of their task's range.
MAX_DIFFERENCE = 0.1
#: Requests with large bodies that are read and answered at the same time; the others wait unread.
LARGE_REQUESTS = 16


class QueuedModel:
    """A model under its name, behind its queue."""

    def __init__(
        self, part: str, folder: Path, model: Predictor, settings: ServerSettings, metrics: ServerMetrics
    ) -> None:
        self.part, self.name, self.model, self.metrics = part, name_of(folder), model, metrics
        self.batcher = Batcher(
            model, settings.batch, settings.queue, settings.wait, self._note, metrics.waiting.labels(part).set
        )

    def submit(self, question: Question, tasks: Sequence[Task]) -> asyncio.Future[list[Row]]:
        """Put a question into the queue."""
        return self.batcher.submit(question.texts if tasks else [], question.pairs, tasks)

    async def reply(
        self, answers: asyncio.Future[list[Row]], rows: int, began: float, top_k: int | None
    ) -> dict[str, Any]:
        """Wait for the answers and say whose they are; of a model that has none of the tasks, rows are empty."""
        result = await answers or [{} for _ in range(rows)]
        if top_k:
            result = [{task: _likeliest(answer, top_k) for task, answer in row.items()} for row in result]
        return {"model": self.name, "answers": result, "milliseconds": round(1000 * (time.perf_counter() - began), 3)}

    def _note(self, done: ModelPass) -> None:
        self.metrics.count_pass(self.part, done.rows, done.answered, done.seconds)
        if done.error is not None:
            log_error("a pass failed", done.error, part=self.part, rows=done.rows, requests=done.requests)


class Service:
    """What the routes stand on."""

    def __init__(self, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.status: Literal["loading", "ready", "draining"] = "loading"
        self.model: QueuedModel | None = None
        self.teacher: QueuedModel | None = None
        self.large_requests = asyncio.Semaphore(LARGE_REQUESTS)

    async def load(self, threads: int) -> None:
        """Load the model, and the teacher where there is one; nothing is answered before both are warm."""
        settings = self.settings
        model = await asyncio.to_thread(_warm, settings.model, threads)
        if settings.teacher:
            teacher = await asyncio.to_thread(_warm, settings.teacher, threads)
            if not any(_same(one, other) for one in model.tasks for other in teacher.tasks):
                names = ", ".join(task.name for task in model.tasks)
                raise UserError(f"--teacher {settings.teacher} has no task of the model's, which are {names}")
            for one in model.tasks:
                if any(one.name == other.name and not _same(one, other) for other in teacher.tasks):
                    event = "the teacher's task has other labels or another range, and is left out"
                    log_event(event, WARNING, task=one.name)
            self.teacher = QueuedModel("teacher", settings.teacher, teacher, settings, self.metrics)
        self.model = QueuedModel("model", settings.model, model, settings, self.metrics)
        if self.status == "loading":
            self.status = "ready"

    def close(self) -> None:
        """Answer what waits, and end the models' threads."""
        for each in (self.model, self.teacher):
            if each:
                each.batcher.close()

    def facts(self) -> dict[str, Any]:
        """Return what can be asked, as `TaskList` has it."""
        settings, model = self.settings, self._loaded
        limits = {"rows": settings.max_rows, "characters": settings.max_characters, "bytes": settings.max_bytes}
        tasks = [
            {
                "name": task.name,
                "kind": task.kind.name,
                "pair": task.pair,
                "labels": list(task.labels) if task.kind.has_classes else None,
                "range": list(task.range) if task.range else None,
                "tokens": model.model.max_lengths[task.name],
            }
            for task in model.model.tasks
        ]
        teacher = self.teacher.name if self.teacher else None
        return {"model": model.name, "teacher": teacher, "limits": limits, "tasks": tasks}

    async def answer(self, question: Question) -> dict[str, Any]:
        """Answer a question, with the teacher beside the model where it is asked for."""
        model, began, rows = self._loaded, time.perf_counter(), len(question.texts)
        top_k = question.top_k or self.settings.top_k
        self._check_size(question)
        tasks = model.model.tasks_for(question.texts, question.pairs, question.tasks)
        if not question.teacher:
            return await model.reply(model.submit(question, tasks), rows, began, top_k)
        if not self.teacher:
            raise UserError("this server has no teacher → start it with --teacher MODEL")
        shared = [other for task in tasks for other in self.teacher.model.tasks if _same(task, other)]
        own = model.submit(question, tasks)
        try:
            others = self.teacher.submit(question, shared)
        except BaseException:
            own.cancel()
            raise
        reply, teacher = await asyncio.gather(
            model.reply(own, rows, began, top_k), self.teacher.reply(others, rows, began, top_k)
        )
        both = zip(reply["answers"], teacher["answers"], strict=True)
        return reply | {"teacher": teacher, "differ": [_differ(tasks, *answers) for answers in both]}

    @property
    def _loaded(self) -> QueuedModel:
        if self.model is None:
            raise HTTPException(503, "the model is being loaded; ask again in 1 s", {"Retry-After": "1"})
        return self.model

    def _check_size(self, question: Question) -> None:
        rows, limit = len(question.texts), self.settings.max_characters
        if rows > self.settings.max_rows:
            raise HTTPException(413, f"{rows:,} rows are more than {self.settings.max_rows:,} → send them in parts")
        for texts, what in ((question.texts, "text"), (question.pairs or (), "second text")):
            for number, text in enumerate(texts, 1):
                if len(text) > limit:
                    size = f"{len(text):,} characters; {limit:,} may be sent"
                    raise HTTPException(413, f"{what} {number} has {size} → cut it, the model reads its beginning only")


def _warm(folder: Path, threads: int) -> Predictor:
    """Load a model and let it answer once, so that the first request does not wait for what is made on first use."""
    model = load(folder, "auto", threads)
    for pair in (False, True):
        if tasks := model.choose(None, pair):
            model.finite_logits(["a"], ["a"] if pair else None, tasks)
    return model


def _likeliest(answer: dict[str, Any], count: int) -> dict[str, Any]:
    """Return an answer with the probabilities of its likeliest classes alone, its label's first."""
    if "probabilities" not in answer:
        return answer
    # Of equal probabilities, the label's goes first: the logits may have differed by less than shows in them.
    best = nlargest(count, answer["probabilities"].items(), key=lambda item: (item[1], item[0] == answer["label"]))
    return {**answer, "probabilities": dict(best)}


def _same(one: Task, other: Task) -> bool:
    """Whether two models' tasks are the same question, with the same answers to choose from."""
    if (one.name, one.kind, one.pair, one.range) != (other.name, other.kind, other.pair, other.range):
        return False
    return one.kind.same_choices(one, other)


def _differ(tasks: Sequence[Task], one: Row, other: Row) -> list[str]:
    """Name the tasks that two models answer differently; scores without a range have no scale to differ on."""
    shared = [task for task in tasks if task.name in other]
    return [task.name for task in shared if task.kind.differ(task, one[task.name], other[task.name], MAX_DIFFERENCE)]
