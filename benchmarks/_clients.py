"""The clients of load.py: many connections at once, each asking its next request when it has the answer to its last."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Question:
    """A request as it goes over the wire, and the model's answers to it without a server."""

    sent: bytes
    rows: int
    want: list[dict[str, Any]]


@dataclass
class Outcome:
    """What became of the requests of all clients."""

    milliseconds: list[float] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)  # number of the question, body
    rows: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    lost_at: list[float] = field(default_factory=list)  # seconds of time.perf_counter
    turned_away: int = 0  # clients that could not connect any more


class NotSent(Exception):
    """The connection was closed before anything was sent."""


class Client(asyncio.Protocol):
    """One connection; `ask` sends a request and waits for the whole answer."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.answer: asyncio.Future[tuple[int, bytes, bool]] | None = None
        self.size = -1
        self.open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.size < 0:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.data[:end]).lower()
            self.status = int(head[9:12])
            self.closing = b"\r\nconnection: close" in head
            self.size = end + 4 + int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            self.start = end + 4
        if len(self.data) >= self.size and self.answer and not self.answer.done():
            self.answer.set_result((self.status, bytes(self.data[self.start : self.size]), self.closing))

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self.answer and not self.answer.done():
            self.answer.set_exception(error or ConnectionResetError("closed"))

    async def ask(self, sent: bytes) -> tuple[int, bytes, bool]:
        """Send a request and return status and body, and whether the server is about to close the connection."""
        self.data.clear()
        self.size = -1
        self.answer = asyncio.get_running_loop().create_future()
        if not self.open:
            raise NotSent
        self.transport.write(sent)
        return await self.answer


async def client(
    port: int, turns: Iterator[int], asked: Sequence[Question], outcome: Outcome, until: float, keep: bool
) -> None:
    """Ask one request after the other until it is time, or until nobody answers any more."""
    loop = asyncio.get_running_loop()
    connection: Client | None = None
    while time.perf_counter() < until:
        if connection is None or not connection.open:
            try:
                _, connection = await loop.create_connection(Client, "127.0.0.1", port)
            except ConnectionRefusedError:
                outcome.turned_away += 1
                return
            except OSError as error:
                outcome.errors[f"connecting: {type(error).__name__}"] += 1
                continue
        number = next(turns)
        began = time.perf_counter()
        try:
            status, body, closing = await connection.ask(asked[number].sent)
        except NotSent:
            connection = None
            continue
        except OSError as error:
            outcome.lost += 1
            outcome.lost_at.append(time.perf_counter())
            outcome.errors[type(error).__name__] += 1
            connection = None
            continue
        outcome.milliseconds.append(1000 * (time.perf_counter() - began))
        outcome.statuses[status] += 1
        if status == 200:
            outcome.rows += asked[number].rows
            outcome.answers.append((number, body))
        if closing or not keep:
            connection.transport.close()
            connection = None
    if connection:
        connection.transport.close()


async def press(
    port: int, asked: Sequence[Question], seconds: float, clients: int, *, keep: bool = True, stop: int | None = None
) -> tuple[Outcome, float]:
    """Have clients ask for so long; the process `stop` gets SIGTERM when a third of the time has passed."""
    outcome, began = Outcome(), time.perf_counter()
    turns = itertools.cycle(range(len(asked)))
    running = [client(port, turns, asked, outcome, began + seconds, keep) for _ in range(clients)]
    if stop:
        asyncio.get_running_loop().call_later(seconds / 3, os.kill, stop, signal.SIGTERM)
    await asyncio.gather(*running)
    return outcome, time.perf_counter() - began


async def bystander(port: int, asked: Sequence[Question], seconds: float, pause: float = 0.03) -> Outcome:
    """Ask now and then, over a connection that is kept open and over new ones in turn."""
    outcome, until = Outcome(), time.perf_counter() + seconds
    kept: Client | None = None
    for number in itertools.count():
        if time.perf_counter() >= until:
            break
        began, question = time.perf_counter(), number % len(asked)
        try:
            connection = kept if kept and kept.open and number % 2 else await _connect(port)
            status, body, closing = await asyncio.wait_for(connection.ask(asked[question].sent), 30)
            outcome.statuses[status] += 1
            outcome.milliseconds.append(1000 * (time.perf_counter() - began))
            if status == 200:
                outcome.answers.append((question, body))
            if number % 2 and not closing:
                kept = connection
            else:
                connection.transport.close()
        except (OSError, NotSent) as error:  # a TimeoutError is an OSError
            outcome.errors[type(error).__name__] += 1
            kept = None
        await asyncio.sleep(pause)
    if kept:
        kept.transport.close()
    return outcome


async def _connect(port: int) -> Client:
    return (await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port))[1]
