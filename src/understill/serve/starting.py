"""Starting: one process or several to answer at an address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from types import FrameType

from prometheus_client.multiprocess import mark_process_dead

from understill.errors import UserError
from understill.serve.listening import listen
from understill.serve.logs import set_up_logs, tell
from understill.serve.measures import SHARED
from understill.serve.running import Server, threads_of
from understill.serve.settings import Settings

#: Seconds before a worker that ended by itself is replaced.
PAUSE = 1.0


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve a model until the process is told to stop; `say` hears where, as soon as it answers."""
    listening = listen(settings.host, settings.port)
    set_up_logs(settings.log)
    host, port = listening.getsockname()[:2]
    if not settings.keys and host not in ("127.0.0.1", "::1"):
        tell("whoever reaches this address can ask: there are no keys", logging.WARNING, address=host)

    def ready() -> None:
        say(f"serving {settings.model} at http://{f'[{host}]' if ':' in host else host}:{port}")

    if settings.workers == 1:
        Server(settings, ready).run([listening])
    else:
        Supervisor(settings, listening, ready).run()


@dataclass(frozen=True)
class Worker:
    """A process that answers, and the line on which it says how it fares."""

    process: BaseProcess
    line: Connection


class Supervisor:
    """Keeps several workers at one socket: starts them, replaces one that ends by itself, and ends them all."""

    def __init__(self, settings: Settings, listening: socket.socket, ready: Callable[[], None]) -> None:
        self.settings, self.listening, self.ready = settings, listening, ready
        self.workers: list[Worker] = []
        self.beginners: set[Worker] = set()  # those of the first that have not said yet that they are ready
        self.stopping = False
        self.mistake = ""

    def run(self) -> None:
        """Keep workers running until a signal comes."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._stop)
        with TemporaryDirectory(prefix="understill-") as shared:
            os.environ[SHARED] = shared
            for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch's, and the tokenisers'
                os.environ.setdefault(name, str(threads_of(self.settings.workers)))
            for _ in range(self.settings.workers):
                self.beginners.add(self._start())
            while self.workers:
                self._attend()
        if self.mistake:
            raise UserError(self.mistake)

    def _start(self, late: bool = False) -> Worker:
        spawn = get_context("spawn")  # a fork would copy the threads' locks, and not the threads
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=work, args=(self.settings, self.listening, theirs, late))
        process.start()
        theirs.close()
        self.workers.append(worker := Worker(process, ours))
        if self.stopping:
            process.terminate()
        return worker

    def _attend(self) -> None:
        """Wait for a worker to say something or to end."""
        heard = wait([each for worker in self.workers for each in (worker.process.sentinel, worker.line)])
        for worker in list(self.workers):
            if worker.line in heard:
                self._listen_to(worker)
            if worker.process.sentinel in heard:
                self._bury(worker)

    def _listen_to(self, worker: Worker) -> None:
        try:
            mistake = worker.line.recv()
        except (EOFError, OSError):  # it has ended, and its sentinel says so too
            return
        if mistake:
            self._give_up(mistake)
        elif worker in self.beginners:
            self.beginners.remove(worker)
            if not self.beginners:
                self.ready()

    def _bury(self, worker: Worker) -> None:
        worker.process.join()
        worker.line.close()
        self.workers.remove(worker)
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        if self.stopping:
            return
        if worker in self.beginners:
            fix = "what it logged may say why; if memory ran out, take fewer --workers"
            self._give_up(f"a worker ended with {worker.process.exitcode} before it was ready → {fix}")
        else:
            tell("a worker has ended and is replaced", logging.ERROR, exit=worker.process.exitcode)
            time.sleep(PAUSE)
            if not self.stopping:
                self._start(late=True)

    def _give_up(self, mistake: str) -> None:
        self.mistake = mistake
        self._stop()

    def _stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Let the workers end what they are at; at the second signal they end at once."""
        for worker in self.workers:
            if self.stopping and number:
                worker.process.kill()
            else:
                with suppress(OSError):  # it may have ended
                    worker.line.send("")  # so that it knows that all of them end
                worker.process.terminate()
        self.stopping = True
        self.listening.close()  # the workers have it; only when nobody has is it really closed


def work(settings: Settings, listening: socket.socket, line: Connection, late: bool) -> None:
    """Be a worker: tell the supervisor when ready, or what the mistake is, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all; the supervisor passes it on
    set_up_logs(settings.log)
    server = WorkerServer(settings, line, late)
    try:
        server.run([listening])
    except UserError as error:
        line.send(str(error))
        sys.exit(2)


class WorkerServer(Server):
    """A server that does not outlive its supervisor."""

    def __init__(self, settings: Settings, line: Connection, late: bool) -> None:
        super().__init__(settings, lambda: line.send(""), signals=(signal.SIGTERM,), late=late)
        self.line = line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Watch the line, which can be read when its other end is gone."""
        asyncio.get_running_loop().add_reader(self.line.fileno(), self._end)
        await super().startup(sockets)

    def is_last(self) -> bool:
        """Tell whether all workers end: the supervisor has sent word, or is gone."""
        return self.line.poll()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self.line.fileno())
        self.should_exit = True
