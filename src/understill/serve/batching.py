"""Batching: the rows of many requests, answered in one pass of the model."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understill.inference.cores import cores
from understill.inference.predictor import Predictor, in_words
from understill.tasks import Task

#: Rows of one request that are taken in a turn, so that a long one does not keep short ones waiting.
CHUNK = 8
#: Seconds that a pass of a slow model may take, so that who comes meanwhile need not wait for longer; and one of long
#: rows, which gain nothing from company.
PASS_SECONDS, LONG_SECONDS = 0.5, 0.005
#: Rows that a pass may have however slow the model is: with fewer it would be slower still.
MIN_ROWS = 4
#: The cost of a row, in characters: a constant, those of its texts up to a limit, since models truncate, and an eighth
#: of them all, since some tokenisers have to read them to the end.
ROW_COST, MAX_TEXT_COST, WHOLE_TEXT_COST = 16, 2000, 1 / 8

#: The cost above which a row is long.
LONG_ROW = 250

Row = dict[str, dict[str, Any]]


class NotFinite(Exception):
    """The model's output is not a finite number."""


class QueueFull(Exception):
    """There is no room for more rows; in so many seconds there should be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many rows are waiting; ask again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class ModelPass:
    """One pass of the model: its rows, those answered, the number of requests, and how long it took."""

    rows: int
    answered: int
    requests: int
    seconds: float
    error: Exception | None = None


def text_cost(text: str) -> int:
    """Return the cost of a text, in characters."""
    return min(MAX_TEXT_COST, len(text)) + int(WHOLE_TEXT_COST * len(text))


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue, with the rows answered so far."""

    texts: Sequence[str]
    pairs: Sequence[str] | None
    tasks: Sequence[Task]
    done: asyncio.Future[list[Row]]
    since: float
    begun: int = 0  # rows that the model has got
    answers: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        second = self.pairs or itertools.repeat("", len(self.texts))
        rows = zip(self.texts, second, strict=True)
        costs = (ROW_COST + text_cost(one) + text_cost(other) for one, other in rows)
        self.sums = list(itertools.accumulate(costs, initial=0))

    def cost(self, rows: int | None = None) -> int:
        """Return the cost of the next rows, or of all that are left, in characters."""
        return self.sums[len(self.texts) if rows is None else self.begun + rows] - self.sums[self.begun]

    def chunk(self) -> int:
        """Return how many rows come next."""
        return min(CHUNK, len(self.texts) - self.begun)


@dataclass(eq=False)
class RequestQueue:
    """Requests whose next rows can share a pass: of one text or of two, and short or long."""

    seconds: float  # that a pass may take
    min_rows: int  # that it may have all the same
    requests: deque[QueuedRequest] = field(default_factory=deque)
    cost: int = 0  # of what waits, in characters
    speed: float = 0.0  # characters a second; not known before the first pass, which has few rows therefore

    def put(self, request: QueuedRequest) -> None:
        """Add a request at the end."""
        self.requests.append(request)
        self.cost += request.cost()

    def take(self) -> QueuedRequest:
        """Remove the first request."""
        request = self.requests.popleft()
        self.cost -= request.cost()
        return request

    def note(self, cost: int, seconds: float) -> None:
        """Note a pass: one that is slower than expected counts at once, a quicker one by and by."""
        speed = cost / max(seconds, 1e-6)
        self.speed = min(speed, 0.8 * self.speed + 0.2 * speed) if self.speed else speed


@dataclass(frozen=True)
class Chunk:
    """Rows of a request that one pass answers."""

    request: QueuedRequest
    first: int
    end: int

    @property
    def cost(self) -> int:
        """The cost of its rows, in characters."""
        return self.request.sums[self.end] - self.request.sums[self.first]


class Batcher:
    """A model with a queue before it and a thread of its own.

    Rows gather while the model is busy, and the next pass takes them together. An idle model is asked at once.
    """

    def __init__(
        self,
        model: Predictor,
        batch: int,
        queue: int,
        wait: float = 0.0,
        on_pass: Callable[[ModelPass], None] = lambda _: None,
        on_level: Callable[[int], None] = lambda _: None,
        pass_seconds: float = PASS_SECONDS,
    ) -> None:
        self.model, self.batch, self.limit, self.wait = model, batch, queue, wait  # the limit: rows that may wait
        self.on_pass, self.on_level = on_pass, on_level  # called after each pass, and with how many rows wait
        self.waiting = 0  # rows
        long_seconds = pass_seconds * LONG_SECONDS / PASS_SECONDS
        short, long = (pass_seconds, MIN_ROWS), (long_seconds, cores())  # fewer would leave cores idle
        # By whether there are two texts, and whether rows are long. Queues take turns.
        kinds = [(pair, is_long) for is_long in (False, True) for pair in (False, True)]
        self._queues = {kind: RequestQueue(*(long if kind[1] else short)) for kind in kinds}
        self._turns = list(self._queues.values())
        self._changed = threading.Condition()
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> asyncio.Future[list[Row]]:
        """Put rows into the queue; the future holds an answer for each. Rows of a cancelled one are dropped."""
        done = self._loop.create_future()
        if not texts:
            done.set_result([])
            return done
        request = QueuedRequest(texts, pairs, tasks, done, time.monotonic())
        with self._changed:
            if self.waiting + len(texts) > self.limit:
                seconds = sum(each.cost / each.speed for each in self._turns if each.speed)
                raise QueueFull(min(60, max(1, math.ceil(seconds))))
            self.waiting += len(texts)
            self._put(request)
            self._changed.notify()
        return done

    def close(self) -> None:
        """Answer what is waiting, and end the thread."""
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _put(self, request: QueuedRequest) -> None:
        """Add a request to the queue of its next rows."""
        rows = request.chunk()
        self._queues[request.pairs is not None, request.cost(rows) > rows * LONG_ROW].put(request)

    def _work(self) -> None:
        while taken := self._take():
            queue, chunks = taken
            began = time.monotonic()
            errors: list[Exception] = []
            results = self._answer_or_split(chunks, errors)
            errors += [each for each in results if isinstance(each, NotFinite)]
            rows, seconds = sum(chunk.end - chunk.first for chunk in chunks), time.monotonic() - began
            queue.note(sum(chunk.cost for chunk in chunks), seconds)
            with suppress(RuntimeError):  # a server that was forced to end has no loop any more
                self._loop.call_soon_threadsafe(_deliver, chunks, results)
            answered = sum(len(each) for each in results if not isinstance(each, Exception))
            self.on_pass(ModelPass(rows, answered, len(chunks), seconds, errors[0] if errors else None))
            self.on_level(self.waiting)

    def _take(self) -> tuple[RequestQueue, list[Chunk]] | None:
        """Wait for rows and return those of the next pass; none when the queue is closed and empty."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self.waiting or not self._open)
                if self.wait and self._open:
                    waited = time.monotonic() - min(each.requests[0].since for each in self._waiting_queues())
                    self._changed.wait_for(
                        lambda: self.waiting >= self.batch or not self._open, max(0, self.wait / 1000 - waited)
                    )
                for queue in self._waiting_queues():
                    if chunks := self._next_chunks(queue):
                        return queue, chunks
                self.on_level(self.waiting)  # all who waited have left
                if not self._open:
                    return None

    def _waiting_queues(self) -> list[RequestQueue]:
        """Return the queues in which somebody waits, that whose turn it is first."""
        return [queue for queue in self._turns if queue.requests]

    def _next_chunks(self, queue: RequestQueue) -> list[Chunk]:
        """Take rows of a queue, a chunk of each request in turn."""
        begun: dict[QueuedRequest, int] = {}  # where the rows of this pass begin
        rows, budget = 0, queue.seconds * queue.speed
        while queue.requests and rows < self.batch and (budget > 0 or rows < queue.min_rows):
            request = queue.take()
            if request.done.done():  # cancelled, or failed by an earlier chunk
                self.waiting -= len(request.texts) - request.begun
                continue
            count = min(request.chunk(), self.batch - rows)
            if request.cost(count) > budget:
                count = 1  # so that long rows do not come in eights
            begun.setdefault(request, request.begun)
            rows, budget = rows + count, budget - request.cost(count)
            request.begun += count
            if request.begun < len(request.texts):
                request.since = time.monotonic()
                self._put(request)
        self.waiting -= rows
        self._turns.remove(queue)
        self._turns.append(queue)
        return [Chunk(request, first, request.begun) for request, first in begun.items()]

    def _answer_or_split(self, chunks: Sequence[Chunk], errors: list[Exception]) -> list[list[Row] | Exception]:
        """Answer chunks; where that fails, by halves, so that a row that fails fails nobody else's."""
        try:
            return self._answer(chunks)
        except Exception as error:
            errors.append(error)
            if len(chunks) == 1:
                return [error]
        half = len(chunks) // 2
        return [each for part in (chunks[:half], chunks[half:]) for each in self._answer_or_split(part, errors)]

    def _answer(self, chunks: Sequence[Chunk]) -> list[list[Row] | Exception]:
        """Run the model once on the rows of all chunks, with the tasks of all of them, and give each its own."""
        texts = [text for chunk in chunks for text in chunk.request.texts[chunk.first : chunk.end]]
        pairs = [text for chunk in chunks for text in (chunk.request.pairs or ())[chunk.first : chunk.end]] or None
        wanted = {task.name for chunk in chunks for task in chunk.request.tasks}
        outputs = self.model.logits(texts, pairs, [task for task in self.model.tasks if task.name in wanted])
        answers = {name: [answer.plain() for answer in in_words(each)] for name, each in outputs.items()}
        finite = {name: np.isfinite(each.logits).reshape(len(texts), -1) for name, each in outputs.items()}
        all_finite = all(each.all() for each in finite.values())
        results: list[list[Row] | Exception] = []
        start = 0
        for chunk in chunks:
            end = start + chunk.end - chunk.first
            names = [task.name for task in chunk.request.tasks]
            if all_finite or all(finite[name][start:end].all() for name in names):
                results.append([{name: answers[name][row] for name in names} for row in range(start, end)])
            else:
                results.append(NotFinite())
            start = end
        return results


def _deliver(chunks: Sequence[Chunk], results: Sequence[list[Row] | Exception]) -> None:
    """Hand answers over, in the loop's own thread."""
    for chunk, rows in zip(chunks, results, strict=True):
        request = chunk.request
        if request.done.done():
            continue
        if isinstance(rows, Exception):
            request.done.set_exception(rows)
            continue
        request.answers += rows
        if len(request.answers) == len(request.texts):
            request.done.set_result(request.answers)
