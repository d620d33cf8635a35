"""The supervisor: one process or several that answer at an address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from understill.errors import UserError
from understill.serve.logs import log_event, set_up_logs
from understill.serve.process import DEADLINE, ECHO, Server, ending_signals, threads_of
from understill.serve.prometheus import SHARED
from understill.serve.settings import ServerSettings
from understill.serve.sockets import listen

#: Seconds before a worker that died is replaced; twice as many each time that the new one fails too.
PAUSE, LONGEST = 1.0, 60.0
#: Seconds without a sign of life after which a worker is killed and replaced; a stopped one gives none.
LIVENESS = 10
#: Names of this machine for itself: a page whose own name leads here, by DNS rebinding, has another.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: What a terminal sends to all processes of a program.
_TO_ALL = (signal.SIGINT, signal.SIGHUP)


def serve(settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve a model until a signal comes; `say` gets the address as soon as it answers."""
    listening = listen(settings.host, settings.port)
    set_up_logs(settings.log)
    host, port = listening.getsockname()[:2]
    local = ip_address(host).is_loopback
    if local or settings.hosts:
        settings = replace(settings, hosts=(*settings.hosts, *LOOPBACK, host))
    if not settings.keys and not local:
        log_event("no API keys: anyone who can reach this address can send requests", logging.WARNING, address=host)

    def ready() -> None:
        say(f"serving {settings.model} at http://{f'[{host}]' if ':' in host else host}:{port}")

    if settings.workers == 1:
        Server(settings, ready).run([listening])
    else:
        Supervisor(settings, listening, ready).run()


class Supervisor:
    """Keeps several workers at one socket: starts them, replaces one that dies, and ends them all."""

    def __init__(self, settings: ServerSettings, listening: socket.socket, ready: Callable[[], None]) -> None:
        self.settings, self.listening, self.ready = settings, listening, ready
        self.workers: dict[BaseProcess, Connection] = {}
        self.alive: dict[BaseProcess, Any] = {}  # bytes in shared memory, which workers set and the supervisor clears
        self.answering: set[BaseProcess] = set()  # those that have loaded their model
        self.begun = False  # all of the first have
        self.stopped = 0.0  # when the first signal came
        self.killed_by = 0  # the second signal
        self.late = False  # some have not ended by the deadline
        self.error = ""

    def run(self) -> None:
        """Keep workers running until a signal comes."""
        resource_tracker.ensure_running()  # later it would unblock the signals that are blocked here
        with TemporaryDirectory(prefix="understill-") as shared:
            os.environ[SHARED] = shared
            for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch's, and the tokenisers'
                os.environ.setdefault(name, str(threads_of(self.settings.workers)))
            asyncio.run(self._run())
        if self.error:
            raise UserError(self.error)
        if self.killed_by:
            log_event("ended at once", logging.WARNING, signal=signal.Signals(self.killed_by).name)
            sys.exit(128 + self.killed_by)
        if self.late:
            log_event("ended with requests unanswered: something hangs", logging.ERROR)
            sys.exit(1)
        log_event("ended")

    async def _run(self) -> None:
        self.stopping = asyncio.Event()
        for each in ending_signals():
            asyncio.get_running_loop().add_signal_handler(each, self._stop_or_kill, each)
        watching = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._keep_one() for _ in range(self.settings.workers)))
        watching.cancel()

    async def _watch(self) -> None:
        """Kill workers that give no sign of life, and all that have not ended when a shutdown has to."""
        missed: Counter[BaseProcess] = Counter()  # in turns of this loop: when the whole machine sleeps, nobody is late
        while True:
            await asyncio.sleep(1)
            for worker in self.answering:
                missed[worker] = 0 if self.alive[worker].value else missed[worker] + 1
                self.alive[worker].value = 0
                if missed[worker] == LIVENESS:
                    log_event("a worker does not respond and is killed", logging.ERROR, worker=worker.pid)
                    worker.kill()
            if self.stopped and time.monotonic() - self.stopped > self.settings.drain + DEADLINE:
                self.late = True
                self._kill_all()

    async def _keep_one(self) -> None:
        """Run one worker after the other."""
        pause = PAUSE
        while not self.stopping.is_set():
            worker = self._start()
            if await self._gets_ready(worker):
                pause = PAUSE
                await _receive(self.workers[worker])  # nothing more comes: it has ended
            self._bury(worker, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause)
            pause = min(2 * pause, LONGEST)

    def _start(self) -> BaseProcess:
        spawn = get_context("spawn")  # a fork would copy the threads' locks, and not the threads
        ours, theirs = spawn.Pipe()
        alive = spawn.RawValue("b")
        worker = spawn.Process(target=work, args=(self.settings, self.listening, theirs, self.begun, alive))
        # What a terminal sends to all stays blocked in the worker, which hears of it from the supervisor alone.
        signal.pthread_sigmask(signal.SIG_BLOCK, _TO_ALL)
        worker.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_ALL)
        theirs.close()
        self.workers[worker], self.alive[worker] = ours, alive
        return worker

    async def _gets_ready(self, worker: BaseProcess) -> bool:
        """Wait until a worker is ready, or has said why it cannot be, or has ended."""
        message = await _receive(self.workers[worker])
        if message == "":
            self.answering.add(worker)
            if not self.begun and len(self.answering) == self.settings.workers and not self.stopping.is_set():
                self.begun = True
                self.ready()
        elif message and not self.stopping.is_set():
            if self.begun and self.answering:
                log_event("a worker cannot begin", logging.ERROR, worker=worker.pid, why=message)
            else:
                self._give_up(message)
        return message == ""

    def _bury(self, worker: BaseProcess, pause: float) -> None:
        worker.join()
        self.workers.pop(worker).close()
        del self.alive[worker]
        self.answering.discard(worker)
        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
        if self.stopping.is_set():
            return
        if self.begun:
            facts = {"worker": worker.pid, "exit": worker.exitcode, "seconds": pause}
            log_event("a worker has ended and is replaced", logging.ERROR, **facts)
        else:
            fix = "what it logged may say why; if memory ran out, take fewer --workers"
            self._give_up(f"a worker ended with {worker.exitcode} before it was ready → {fix}")

    def _give_up(self, error: str) -> None:
        """End with an error; nobody asks yet, or nobody is answered any more, so that nothing is lost."""
        self.error = error
        self.stopping.set()
        self._kill_all()

    def _kill_all(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _stop_or_kill(self, number: int) -> None:
        """Have all workers shut down; at the second signal, kill them."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.stopped = time.monotonic()
            for pipe in self.workers.values():
                with suppress(OSError):  # it may have ended
                    pipe.send(number)
            self.listening.close()  # the workers have it; only when nobody has is it really closed
        elif time.monotonic() - self.stopped > ECHO:
            self.killed_by = number
            self._kill_all()


async def _receive(pipe: Connection) -> str | None:
    """Wait for what a worker sends: an empty string when it is ready, or why it cannot be; None when it has ended."""
    readable, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), readable.set)
    await readable.wait()
    loop.remove_reader(pipe.fileno())
    try:
        return str(pipe.recv())
    except (EOFError, OSError):
        return None


def work(settings: ServerSettings, listening: socket.socket, pipe: Connection, late: bool, alive: Any) -> None:
    """Be a worker: tell the supervisor when ready, or what the error is, and end when it does."""
    set_up_logs(settings.log, os.getpid())
    try:
        Server(settings, lambda: pipe.send(""), pipe, late, lambda: setattr(alive, "value", 1)).run([listening])
    except UserError as error:
        pipe.send(str(error))
        sys.exit(2)
