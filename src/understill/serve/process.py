"""Running: one process that answers, from its socket to its end."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from understill.runtime.cores import cores
from understill.serve.app import make_app
from understill.serve.listening import BACKLOG, let_nobody_begin, take_waiting
from understill.serve.logs import tell
from understill.serve.prometheus import ServerMetrics
from understill.serve.service import Service
from understill.serve.settings import ServerSettings, name_of

#: Seconds that connections have, once nobody else can connect, to bring a request that is on its way.
LAST_CALL = 2.0
#: Seconds for connections that are being made: longer than the way there and back. A packet that was lost is sent again
#: only after a second, and its connection is cut off; to wait for that too would make every end as long.
HANDSHAKE = 0.3
MOMENT = 0.1
#: Seconds that requests have to be answered after that; then the process ends without them.
PATIENCE = 30
#: Longer than the minute after which proxies drop a connection, so that they do, and not the server under their hands.
KEEP_ALIVE = 75
#: Seconds in which a second signal is the first once more: what starts programs may pass on what they have got already.
ECHO = 0.5


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a server; whoever started it with nohup does not want SIGHUP among them."""
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


class Server(uvicorn.Server):
    """Loads a model, answers, and ends when it is told to, with all that was asked answered."""

    def __init__(
        self,
        settings: ServerSettings,
        ready: Callable[[], None],
        *,
        signals: tuple[signal.Signals, ...],
        late: bool = False,
    ) -> None:
        self.service = Service(settings, ServerMetrics())
        self.ready, self.signals = ready, signals
        self.late = late  # the first connection is taken when the model is there, and not before
        self.told = math.inf  # when it was told to stop
        self.drains = True
        self.failure: Exception | None = None
        config = uvicorn.Config(
            make_app(self.service),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=PATIENCE,
            backlog=BACKLOG,
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until a signal comes; a model that cannot be loaded is an error."""
        super().run(sockets)
        if self.failure:
            raise self.failure
        tell("ended")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals in turn with all else; uvicorn would raise them again afterwards, and spoil the exit code."""
        for each in self.signals:
            asyncio.get_running_loop().add_signal_handler(each, self.take, each)
        yield

    def take(self, number: int) -> None:
        """Begin to end; at the second signal, end at once."""
        if time.monotonic() - self.told > ECHO:
            tell("ended at once", logging.WARNING, signal=signal.Signals(number).name)
            os._exit(128 + number)
        self.stop(number)

    def stop(self, number: int) -> None:
        """Begin to end, unless that has been begun."""
        if self.should_exit:
            return
        if self.service.status == "loading":  # nothing can be lost yet
            tell("ended")
            os._exit(0)  # a thread that loads a model cannot be stopped, and would be waited for
        self.should_exit, self.told = True, time.monotonic()
        self.drains = number != signal.SIGINT  # who presses Ctrl+C has no proxy that has to be told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen while the model is being loaded, so that probes learn of it."""
        self.loading = asyncio.create_task(self._load())
        if self.late:
            await self.loading
        if not self.failure:
            await super().startup(sockets)

    async def _load(self) -> None:
        try:
            await self.service.load(threads_of(self.service.settings.workers))
        except Exception as error:
            self.failure = error
            self.should_exit = True
        else:
            tell("ready", model=name_of(self.service.settings.model))
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in such an order that no request is lost: turn clients away, stop listening, answer, close."""
        self.service.status = "draining"
        if not self.failure:
            tell("draining" if self.drains else "ending")
            if self.drains:
                await self._wait(self.service.settings.drain)
            await self._stop_listening(sockets or [])
            await self._wait(LAST_CALL, until_empty=True)
        await super().shutdown(sockets)
        await asyncio.to_thread(self.service.close)

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Let nobody begin a connection, take those that are there, and only then close the door."""
        if self.is_last():
            for listening in sockets:
                let_nobody_begin(listening)
            await self._wait(HANDSHAKE)
        waiting = [connection for listening in sockets for connection in take_waiting(listening)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def is_last(self) -> bool:
        """Tell whether nobody goes on listening at the same socket."""
        return True

    async def _wait(self, seconds: float, until_empty: bool = False) -> None:
        """Wait so long, or until nobody has been connected for a moment."""
        loop = asyncio.get_running_loop()
        now = seen = loop.time()
        end = now + seconds
        while now < end and not (until_empty and now - seen > MOMENT):
            await asyncio.sleep(MOMENT / 5)
            now = loop.time()
            # A connection that is just being made is not among them yet; hence the moment.
            seen = now if self.server_state.connections else seen

    def _protocol(self) -> asyncio.Protocol:
        state = self.server_state
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return kind(config=self.config, server_state=state, app_state=self.lifespan.state)


def threads_of(workers: int) -> int:
    """Share the cores among workers."""
    return max(1, cores() // workers)
