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

from understill.runtime.answers import Answerer, in_words
from understill.tasks import Task

#: Rows of one request that are taken in a turn, so that a long one does not keep short ones waiting.
PIECE = 8

#: Seconds that a pass may take where the model is slow, so that who comes meanwhile need not wait for longer.
AT_MOST = 0.5
#: Rows that a pass may have however slow the model is: with fewer it would be slower still.
AT_LEAST = 4
#: What a row costs, in characters: so many whatever its texts are, and so many of them at most, since models cut.
BASE, READ = 16, 2000

Row = dict[str, dict[str, Any]]


class NotFinite(Exception):
    """The model's answer is not a number."""


class Full(Exception):
    """There is no room for more rows; in so many seconds there should be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many rows are waiting; ask again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class ModelPass:
    """What one pass of the model was: its rows, those answered, the requests they are of, and how long it took."""

    rows: int
    answered: int
    requests: int
    seconds: float
    fault: Exception | None = None


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue, and what is known of it by now."""

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
        costs = (BASE + min(READ, len(text)) + min(READ, len(other)) for text, other in rows)
        self._sums = list(itertools.accumulate(costs, initial=0))

    def cost(self, first: int, end: int) -> int:
        """Say what some of its rows cost, in characters."""
        return self._sums[end] - self._sums[first]


@dataclass(frozen=True)
class Piece:
    """Rows of a request that one pass answers."""

    request: QueuedRequest
    first: int
    end: int


class Batcher:
    """A model with a queue before it and a thread of its own.

    Rows gather while the model is at work, and the next pass takes them together. An idle model is asked at once.
    """

    def __init__(
        self,
        model: Answerer,
        batch: int,
        queue: int,
        wait: float = 0.0,
        watch: Callable[[ModelPass], None] | None = None,
        level: Callable[[int], None] | None = None,
    ) -> None:
        self.model, self.batch, self.queue, self.wait = model, batch, queue, wait
        self.watch, self.level = watch, level  # told of each pass, and of how many rows wait
        self.waiting = 0  # rows
        self._cost = 0  # of the rows that wait, in characters
        self._speed = 0.0  # characters a second
        # One text and two cannot be read in one pass.
        self._lines: dict[bool, deque[QueuedRequest]] = {False: deque(), True: deque()}
        self._news = threading.Condition()
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> asyncio.Future[list[Row]]:
        """Put rows into the queue; the future holds an answer for each. Who cancels it is not answered."""
        done = self._loop.create_future()
        if not texts:
            done.set_result([])
            return done
        request = QueuedRequest(texts, pairs, tasks, done, time.monotonic())
        cost = request.cost(0, len(texts))
        with self._news:
            if self.waiting + len(texts) > self.queue:
                raise Full(self._patience())
            self.waiting += len(texts)
            self._cost += cost
            self._lines[pairs is not None].append(request)
            self._news.notify()
        return done

    def close(self) -> None:
        """Answer what is waiting, and end the thread."""
        with self._news:
            self._open = False
            self._news.notify()
        self._thread.join()

    def _patience(self) -> int:
        """Guess how many seconds it takes to answer what is waiting."""
        return min(60, max(1, math.ceil(self._cost / self._speed))) if self._speed else 1

    def _work(self) -> None:
        while pieces := self._take():
            began = time.monotonic()
            faults: list[Exception] = []
            found = self._answer_or_split(pieces, faults)
            faults += [each for each in found if isinstance(each, NotFinite)]
            rows, seconds = sum(piece.end - piece.first for piece in pieces), time.monotonic() - began
            self._learn(sum(piece.request.cost(piece.first, piece.end) for piece in pieces) / max(seconds, 1e-6))
            with suppress(RuntimeError):  # a server that was forced to end has no loop any more
                self._loop.call_soon_threadsafe(_deliver, pieces, found)
            if self.watch:
                answered = sum(len(each) for each in found if not isinstance(each, Exception))
                self.watch(ModelPass(rows, answered, len(pieces), seconds, faults[0] if faults else None))
            if self.level:
                self.level(self.waiting)

    def _learn(self, speed: float) -> None:
        """Believe a pass that was slower than thought at once, and one that was quicker by and by."""
        self._speed = min(speed, 0.8 * self._speed + 0.2 * speed) if self._speed else speed

    def _take(self) -> list[Piece]:
        """Wait for rows and return those of the next pass; none when the queue is closed and empty."""
        with self._news:
            while True:
                self._news.wait_for(lambda: self.waiting or not self._open)
                if self.wait and self._open:
                    waited = time.monotonic() - min(line[0].since for line in self._lines.values() if line)
                    self._news.wait_for(
                        lambda: self.waiting >= self.batch or not self._open, max(0, self.wait / 1000 - waited)
                    )
                if pieces := self._next_pieces():
                    return pieces
                if self.level:
                    self.level(self.waiting)  # all who waited have left
                if not self.waiting and not self._open:
                    return []

    def _next_pieces(self) -> list[Piece]:
        """Take rows of the line whose first request has waited longest, a piece of each request in turn."""
        line = min(filter(None, self._lines.values()), key=lambda line: line[0].since, default=None)
        found: dict[QueuedRequest, Piece] = {}
        rows, left_to_spend = 0, AT_MOST * self._speed if self._speed else math.inf
        while line and rows < self.batch and (left_to_spend > 0 or rows < AT_LEAST):
            request = line.popleft()
            left = len(request.texts) - request.begun
            if request.done.done():  # given up, or failed by an earlier piece
                self._forget(request, left)
                continue
            count = min(PIECE, left, self.batch - rows)
            cost = request.cost(request.begun, request.begun + count)
            if cost > left_to_spend:  # one by one, so that long rows do not come in eights
                count, cost = 1, request.cost(request.begun, request.begun + 1)
            first = found[request].first if request in found else request.begun
            self._forget(request, count)
            request.begun += count
            found[request] = Piece(request, first, request.begun)
            rows += count
            left_to_spend -= cost
            if count < left:
                request.since = time.monotonic()
                line.append(request)
        return list(found.values())

    def _forget(self, request: QueuedRequest, rows: int) -> None:
        """Count the next rows of a request as waiting no longer."""
        self.waiting -= rows
        self._cost -= request.cost(request.begun, request.begun + rows)

    def _answer_or_split(self, pieces: Sequence[Piece], faults: list[Exception]) -> list[list[Row] | Exception]:
        """Answer pieces; where that fails, by halves, so that a row that fails fails nobody else's."""
        try:
            return self._answer(pieces)
        except Exception as error:
            faults.append(error)
            if len(pieces) == 1:
                return [error]
        half = len(pieces) // 2
        return [each for part in (pieces[:half], pieces[half:]) for each in self._answer_or_split(part, faults)]

    def _answer(self, pieces: Sequence[Piece]) -> list[list[Row] | Exception]:
        """Ask the model once for the rows of all pieces, with the tasks of all of them, and give each its own."""
        texts = [text for piece in pieces for text in piece.request.texts[piece.first : piece.end]]
        pairs = [text for piece in pieces for text in (piece.request.pairs or ())[piece.first : piece.end]] or None
        wanted = {task.name for piece in pieces for task in piece.request.tasks}
        logits = self.model.logits(texts, pairs, [task for task in self.model.tasks if task.name in wanted])
        words = {name: [answer.plain() for answer in in_words(said)] for name, said in logits.items()}
        sound = {name: np.isfinite(said.logits).reshape(len(texts), -1) for name, said in logits.items()}
        all_sound = all(each.all() for each in sound.values())
        found: list[list[Row] | Exception] = []
        start = 0
        for piece in pieces:
            end = start + piece.end - piece.first
            names = [task.name for task in piece.request.tasks]
            if all_sound or all(sound[name][start:end].all() for name in names):
                found.append([{name: words[name][row] for name in names} for row in range(start, end)])
            else:
                found.append(NotFinite())
            start = end
        return found


def _deliver(pieces: Sequence[Piece], found: Sequence[list[Row] | Exception]) -> None:
    """Hand answers over, in the loop's own thread."""
    for piece, rows in zip(pieces, found, strict=True):
        request = piece.request
        if request.done.done():
            continue
        if isinstance(rows, Exception):
            request.done.set_exception(rows)
            continue
        request.answers += rows
        if len(request.answers) == len(request.texts):
            request.done.set_result(request.answers)
