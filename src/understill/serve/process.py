"""One process that answers, from its socket to its end."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import uvicorn

from understill.inference.cores import cores
from understill.serve.app import make_app
from understill.serve.connections import KEEP_ALIVE, Connections, protocol_of
from understill.serve.logs import log_event
from understill.serve.prometheus import ServerMetrics
from understill.serve.service import Service
from understill.serve.settings import ServerSettings, name_of
from understill.serve.sockets import BACKLOG, accept_waiting, drop_new_connections

#: Seconds that connections have, once nobody else can connect, to bring a request that is on its way.
LAST_CALL = 2.0
#: Seconds for connections that are being made: longer than a round trip. A lost packet is sent again after a
#: second, and its connection is cut off; to wait for that too would make every shutdown as long.
HANDSHAKE = 0.3
MOMENT = 0.1
#: Seconds that requests have to be answered after that; then the process ends without them.
GRACE = 25
#: Seconds after draining by which a process has ended, whatever hangs: more than the three above together.
DEADLINE = 30
#: Descriptors that are kept for other things than connections.
RESERVED = 64
#: Seconds in which a second signal counts as the first: programs such as `timeout` pass on what all have got already.
ECHO = 0.5


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a server; whoever started it with nohup does not want SIGHUP among them."""
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


def threads_of(workers: int) -> int:
    """Share the cores among workers."""
    return max(1, cores() // workers)


def connections_of(wanted: int) -> int:
    """Return how many connections a process can have, after having asked for the descriptors they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED if hard == resource.RLIM_INFINITY else min(wanted + RESERVED, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(1, needed - RESERVED)


class Server(uvicorn.Server):
    """Loads a model, answers, and shuts down without losing a request.

    A worker among several has a pipe to its supervisor, which sends the signal when all of them are to end, and `beat`
    is called every second as long as its loop turns. A worker that replaces another is `late`: it accepts no connection
    before its model is loaded.
    """

    def __init__(
        self,
        settings: ServerSettings,
        ready: Callable[[], None],
        pipe: Connection | None = None,
        late: bool = False,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.service = Service(settings, ServerMetrics())
        self.ready, self.pipe, self.late, self.beat = ready, pipe, late, beat
        limit = connections_of(settings.max_connections)
        self.connections = Connections(limit, lambda reason: self.service.metrics.cut.labels(reason).inc())
        self.last = pipe is None  # nobody else goes on listening at the same socket
        self.stopped = math.inf  # when the first signal came
        self.drains = True
        self.failure: Exception | None = None
        config = uvicorn.Config(
            make_app(self.service),
            http=protocol_of(self.connections),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            backlog=BACKLOG,
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until a signal comes; a model that cannot be loaded is an error."""
        super().run(sockets)
        if self.failure:
            raise self.failure
        log_event("ended")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in the loop; uvicorn would raise them again afterwards, and spoil the exit code."""
        loop = asyncio.get_running_loop()
        if self.pipe:  # some send a signal to all processes; the supervisor decides what a second one means
            loop.add_signal_handler(signal.SIGTERM, self.stop, signal.SIGTERM)
            loop.add_reader(self.pipe.fileno(), self._read_pipe)
        else:
            for each in ending_signals():
                loop.add_signal_handler(each, self._stop_or_exit, each)
        yield

    def _read_pipe(self) -> None:
        """All workers end: the supervisor has sent a signal's number, or is gone."""
        assert self.pipe
        asyncio.get_running_loop().remove_reader(self.pipe.fileno())
        self.last = True
        try:
            self.stop(self.pipe.recv())
        except (EOFError, OSError):
            self.stop(signal.SIGTERM)

    def _stop_or_exit(self, number: int) -> None:
        """Begin to shut down; at the second signal, exit at once."""
        if time.monotonic() - self.stopped > ECHO:
            log_event("ended at once", logging.WARNING, signal=signal.Signals(number).name)
            os._exit(128 + number)
        self.stop(number)

    def stop(self, number: int) -> None:
        """Begin to shut down, unless that has been begun."""
        if self.should_exit:
            return
        if self.service.status == "loading":  # nothing can be lost yet
            log_event("ended")
            os._exit(0)  # a thread that loads a model cannot be stopped, and would be waited for
        self.should_exit, self.stopped = True, time.monotonic()
        self.drains = number != signal.SIGINT  # who presses Ctrl+C has no load balancer that has to notice
        watchdog = threading.Timer(DEADLINE + self.drains * self.service.settings.drain, self._give_up)
        watchdog.daemon = True
        watchdog.start()

    def _give_up(self) -> None:
        log_event("ended with requests unanswered: something hangs", logging.ERROR)
        os._exit(1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen while the model is being loaded, so that probes learn of it."""
        self.loading, self.ticking = asyncio.create_task(self._load()), asyncio.create_task(self._tick())
        if self.late:
            await self.loading
        if not self.failure:
            await super().startup(sockets)

    async def _tick(self) -> None:
        """Look after the connections and show that the loop turns, until the process ends."""
        while True:
            self.connections.sweep()
            self.beat()
            await asyncio.sleep(1)

    async def _load(self) -> None:
        try:
            await self.service.load(threads_of(self.service.settings.workers))
        except Exception as error:
            self.failure, self.should_exit = error, True
        else:
            log_event("ready", model=name_of(self.service.settings.model))
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, stop listening, answer what is there, close: in this order no request is lost."""
        self.service.status = "draining"
        if not self.failure:
            log_event("draining" if self.drains else "ending")
            if self.drains:
                await asyncio.sleep(self.service.settings.drain)
            await self._stop_listening(sockets or [])
            await self._last_call()
        await super().shutdown(sockets)
        await asyncio.to_thread(self.service.close)

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Let nobody begin a connection, accept those that are there, and only then close the socket."""
        if self.last:
            for listening in sockets:
                drop_new_connections(listening)
            await asyncio.sleep(HANDSHAKE)
        waiting = [connection for listening in sockets for connection in accept_waiting(listening)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    async def _last_call(self) -> None:
        """Wait until nobody has been connected for a moment: a connection that is just being made does not show yet."""
        now = seen = time.monotonic()
        end = now + LAST_CALL
        while now < end and now - seen <= MOMENT:
            await asyncio.sleep(MOMENT / 5)
            now = time.monotonic()
            seen = now if self.server_state.connections else seen

    def _protocol(self) -> asyncio.Protocol:
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
