"""Connections: HTTP as uvicorn speaks it, with limits on what a client may send, how slowly, and over how many."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from logging import WARNING
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from understill.serve.logs import log_event

#: Bytes of a request's line and headers together, and how many headers there may be.
MAX_HEAD, MAX_HEADERS = 2**16, 200
#: Seconds in which a request's headers have to arrive, and a response has to be taken.
HEAD_SECONDS, WRITE_SECONDS = 10, 30
#: Seconds in which a client that was refused may go on sending, and how much; it is ignored.
LINGER, LINGER_BYTES = 2, 2**20
#: Longer than the minute after which proxies drop an idle connection, so that they do, and not the server.
KEEP_ALIVE = 75
#: Requests that may wait behind the one being answered on the same connection.
MAX_PIPELINED = 16
#: Pieces of a chunked body beyond which they must hold so many bytes on average: each costs as much as a kilobyte.
MANY_CHUNKS, MIN_CHUNK = 1000, 64
#: Seconds after a client has closed its half when it is looked whether it is still there. The system of one that has
#: left objects to the first, of which the next one learns: the sooner, the less is computed for nobody.
PROBES = (0.0, 0.005, 0.02, 0.1, 1.0)
#: Seconds between two log lines about connections that were cut.
LOG_SECONDS = 10


class Connections:
    """The open connections of a process: how many there may be, and which of them wait for their client."""

    def __init__(self, limit: int, count: Callable[[str], None]) -> None:
        self.limit, self.count = limit, count  # the latter is called with the reason whenever one is cut
        self.open: set[LimitedProtocol] = set()
        self.waiting: dict[LimitedProtocol, None] = {}  # those that wait for their clients, longest first
        self._logged = -math.inf

    def make_room(self) -> bool:
        """Where there are too many, close the one that has waited longest for its client; tell whether there is one."""
        if len(self.open) <= self.limit:
            return True
        self.count("limit")
        if time.monotonic() - self._logged > LOG_SECONDS:
            self._logged = time.monotonic()
            log_event("the limit on connections is reached", WARNING, limit=self.limit, waiting=len(self.waiting))
        if len(self.waiting) < 2:  # the newest one waits too
            return False
        longest = next(iter(self.waiting))
        self.forget(longest)
        longest.transport.abort()
        return True

    def forget(self, connection: LimitedProtocol) -> None:
        """Count a connection no more."""
        self.open.discard(connection)
        self.waiting.pop(connection, None)

    def sweep(self) -> None:
        """End what has taken too long."""
        now = time.monotonic()
        for connection in [each for each in self.open if each.deadline < now]:
            connection.expire(now)


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    limits: Connections  # of a subclass that each server makes

    head = pieces = piece_bytes = 0
    reading_head = reading_body = refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; where there are too many, that which has waited longest for its client is closed."""
        super().connection_made(transport)
        self.limits.open.add(self)
        self._wait(HEAD_SECONDS)
        if not self.limits.make_room():
            self.refuse(503, "too many connections; ask again in 1 s", b"retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.limits.forget(self)
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        """Wait for the client, behind all others that wait for theirs."""
        self.deadline = time.monotonic() + seconds
        self.limits.waiting.pop(self, None)
        self.limits.waiting[self] = None

    def _go_on(self) -> None:
        self.deadline = math.inf
        self.limits.waiting.pop(self, None)

    def expire(self, now: float) -> None:
        """Close a connection whose client has taken too long; if that takes too long too, cut it."""
        if self.reading_head or self.reading_body or self.flow.write_paused:
            self.limits.count("slow")
        if self.transport.is_closing() or self.flow.write_paused or self.refused:
            self.transport.abort()
        elif self.reading_head:
            self.refuse(408, f"the headers have not come in {HEAD_SECONDS} s → send them at once")
        else:
            self.deadline = now + LINGER
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, headers no further than they may reach: to parse long ones takes quadratic time."""
        if self.refused:
            self.head += len(data)
            return self.transport.abort() if self.head > LINGER_BYTES else None
        if self.timeout_keep_alive_task:  # the first bytes of another request
            self._wait(HEAD_SECONDS)
        while data and not self.refused and not self.transport.is_closing():
            in_head = not self.reading_body
            size = MAX_HEAD - self.head if in_head else len(data)
            piece, data = data[:size], data[size:]
            super().data_received(piece)
            self.head = self.head + len(piece) if in_head and self.reading_head else 0
            if self.head >= MAX_HEAD:
                self._refuse_head()

    def _refuse_head(self) -> None:
        self.limits.count("headers")
        most = f"{MAX_HEAD:,} bytes or {MAX_HEADERS} lines"
        self.refuse(431, f"the headers have more than {most} → send texts in the body")

    def on_message_begin(self) -> None:
        """Begin with a request's headers."""
        super().on_message_begin()
        self.reading_head, self.reading_body = True, False
        self.pieces = self.piece_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, if there are not too many."""
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse_head()
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        """Begin with a request, if not too many wait before it."""
        self.reading_head, self.reading_body = False, True
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at once")
        self.deadline = math.inf  # its body has a time limit in the app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, unless there are very many very small ones."""
        self.pieces += 1
        self.piece_bytes += len(body)
        if self.pieces > MANY_CHUNKS and self.piece_bytes < MIN_CHUNK * self.pieces:
            raise ValueError("too many chunks")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """From here on it is the server's turn."""
        self.reading_body = False
        if not self.cycle.response_complete:
            self._go_on()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there."""
        super().on_response_complete()
        if self.refused and not self.transport.is_closing():  # what came after this request
            self.transport.write_eof()
            self._wait(LINGER)
        elif self.transport.is_closing() or self.flow.write_paused:
            self._wait(WRITE_SECONDS)
        elif self.cycle.response_complete:  # which is the last of several
            self._wait(HEAD_SECONDS if self.reading_body else KEEP_ALIVE)

    def pause_writing(self) -> None:
        """Wait for a client that does not take its answer."""
        super().pause_writing()
        self._wait(WRITE_SECONDS)

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        if not self.cycle.response_complete:
            self._go_on()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that has closed its half, unless it has left: at first the two look the same."""
        cycle = self.cycle
        waits = cycle and not (cycle.more_body or cycle.response_started or self.pipeline or self.refused)
        if not waits or cycle.scope["http_version"] != "1.1":
            return None
        cycle.keep_alive = False
        for seconds in PROBES:
            self.loop.call_later(seconds, self._probe)
        return True

    def _probe(self) -> None:
        """Send what every client skips; the system of one that has left objects, and the connection is lost."""
        if not (self.cycle.response_started or self.refused or self.transport.is_closing()):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.refuse(400, "this is no HTTP request, or one of a shape that no client sends")

    def refuse(self, status: int, message: str, header: bytes = b"") -> None:
        """Answer in the app's stead and close a little later, since who still sends would not see the answer."""
        if self.refused or self.transport.is_closing():
            return
        self.refused = True
        if self.pipeline or (self.cycle and not self.cycle.response_complete and not self.reading_body):
            self.pipeline.clear()  # an earlier request is being answered, and its answer comes first
            return
        body = json.dumps({"error": message}, ensure_ascii=False).encode()
        kind = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
        self.transport.write(b"".join((STATUS_LINE[status], kind, header, b"\r\n", body)))
        self.transport.write_eof()
        if self.cycle:  # for the app, the client has left
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._wait(LINGER)


def protocol_of(limits: Connections) -> type[asyncio.Protocol]:
    """Return the protocol of connections that share limits."""
    members: dict[str, Any] = {"limits": limits}
    return type("HttpProtocol", (LimitedProtocol,), members)
