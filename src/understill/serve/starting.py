"""Starting: one process or several to answer at an address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory

from prometheus_client.multiprocess import mark_process_dead

from understill.errors import UserError
from understill.serve.listening import listen
from understill.serve.logs import set_up_logs, tell
from understill.serve.process import ECHO, Server, ending_signals, threads_of
from understill.serve.prometheus import SHARED
from understill.serve.settings import ServerSettings

#: Seconds before a worker that ended by itself is replaced; twice as many each time that the new one fails too.
PAUSE, LONGEST = 1.0, 60.0
#: What a terminal sends to all processes of a program.
_TO_ALL = (signal.SIGINT, signal.SIGHUP)


def serve(settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve a model until the process is told to stop; `say` hears where, as soon as it answers."""
    listening = listen(settings.host, settings.port)
    set_up_logs(settings.log)
    host, port = listening.getsockname()[:2]
    if not settings.keys and host not in ("127.0.0.1", "::1"):
        tell("whoever reaches this address can ask: there are no keys", logging.WARNING, address=host)

    def ready() -> None:
        say(f"serving {settings.model} at http://{f'[{host}]' if ':' in host else host}:{port}")

    if settings.workers == 1:
        Server(settings, ready, signals=ending_signals()).run([listening])
    else:
        Supervisor(settings, listening, ready).run()


@dataclass(eq=False)
class Worker:
    """A process that answers, and the line on which it says how it fares."""

    process: BaseProcess
    line: Connection
    answers: bool = False


class Supervisor:
    """Keeps several workers at one socket: starts them, replaces one that ends by itself, and ends them all."""

    def __init__(self, settings: ServerSettings, listening: socket.socket, ready: Callable[[], None]) -> None:
        self.settings, self.listening, self.ready = settings, listening, ready
        self.workers: list[Worker] = []
        self.begun = False  # all of the first have said that they are ready
        self.replacing: list[float] = []  # when
        self.pause = PAUSE
        self.stopping = False
        self.told = 0.0  # when it was told to stop
        self.hurried_by = 0  # the second signal
        self.mistake = ""

    def run(self) -> None:
        """Keep workers running until a signal comes."""
        resource_tracker.ensure_running()  # later it would let signals through that are held back
        with TemporaryDirectory(prefix="understill-") as shared, noted_signals() as signals:
            os.environ[SHARED] = shared
            for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch's, and the tokenisers'
                os.environ.setdefault(name, str(threads_of(self.settings.workers)))
            for _ in range(self.settings.workers):
                self._start()
            while self.workers or not self.stopping:
                self._attend(signals)
        if self.mistake:
            raise UserError(self.mistake)
        if self.hurried_by:
            tell("ended at once", logging.WARNING, signal=signal.Signals(self.hurried_by).name)
            sys.exit(128 + self.hurried_by)
        tell("ended")

    def _start(self) -> None:
        spawn = get_context("spawn")  # a fork would copy the threads' locks, and not the threads
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=work, args=(self.settings, self.listening, theirs, self.begun))
        with held_signals():
            process.start()
        theirs.close()
        self.workers.append(Worker(process, ours))

    def _attend(self, signals: socket.socket) -> None:
        """Wait for a signal, for a worker to say something or to end, or for the time to replace one."""
        lines = [each for worker in self.workers for each in (worker.process.sentinel, worker.line)]
        seconds = max(0.0, min(self.replacing) - time.monotonic()) if self.replacing else None
        heard = wait([signals, *lines], seconds)
        if signals in heard:
            for number in signals.recv(100):
                self._take(number)
        for worker in list(self.workers):
            if worker.line in heard:
                self._listen_to(worker)
            if worker.process.sentinel in heard:
                self._bury(worker)
        for due in [each for each in self.replacing if each <= time.monotonic()]:
            self.replacing.remove(due)
            self._start()

    def _listen_to(self, worker: Worker) -> None:
        try:
            mistake = worker.line.recv()
        except (EOFError, OSError):  # it has ended, and its sentinel says so too
            return
        if self.stopping:
            return
        if not mistake:
            worker.answers, self.pause = True, PAUSE
            if not self.begun and all(each.answers for each in self.workers):
                self.begun = True
                self.ready()
        elif self.begun and any(each.answers for each in self.workers):
            tell("a worker cannot begin", logging.ERROR, worker=worker.process.pid, why=mistake)
        else:
            self._give_up(mistake)

    def _bury(self, worker: Worker) -> None:
        worker.process.join()
        worker.line.close()
        self.workers.remove(worker)
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        code = worker.process.exitcode
        if self.stopping:
            return
        if self.begun:
            facts = {"worker": worker.process.pid, "exit": code, "seconds": self.pause}
            tell("a worker has ended and is replaced", logging.ERROR, **facts)
            self.replacing.append(time.monotonic() + self.pause)
            self.pause = min(2 * self.pause, LONGEST)
        else:
            fix = "what it logged may say why; if memory ran out, take fewer --workers"
            self._give_up(f"a worker ended with {code} before it was ready → {fix}")

    def _give_up(self, mistake: str) -> None:
        """End with a mistake; nobody asks yet, or nobody is answered any more, so that nothing is lost."""
        self.stopping, self.mistake = True, mistake
        for worker in self.workers:
            worker.process.kill()

    def _take(self, number: int) -> None:
        """Begin to end; at the second signal, end at once."""
        if not self.stopping:
            self._stop(number)
        elif time.monotonic() - self.told > ECHO:
            self.hurried_by = number
            for worker in self.workers:
                worker.process.kill()

    def _stop(self, number: int) -> None:
        """Tell the workers that all of them end, and by which signal."""
        self.stopping, self.told = True, time.monotonic()
        self.replacing.clear()
        for worker in self.workers:
            with suppress(OSError):  # it may have ended
                worker.line.send(number)
        self.listening.close()  # the workers have it; only when nobody has is it really closed


@contextmanager
def noted_signals() -> Iterator[socket.socket]:
    """Have signals wait at a socket, as their numbers, instead of coming in the middle of something else."""
    here, there = socket.socketpair()
    there.setblocking(False)
    with here, there:
        signal.set_wakeup_fd(there.fileno())
        for each in ending_signals():
            signal.signal(each, lambda number, frame: None)
        try:
            yield here
        finally:
            signal.set_wakeup_fd(-1)


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold back what a terminal sends to all; a process started meanwhile never gets it, but by the supervisor."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_ALL)


def work(settings: ServerSettings, listening: socket.socket, line: Connection, late: bool) -> None:
    """Be a worker: tell the supervisor when ready, or what the mistake is, and end when it does."""
    set_up_logs(settings.log, os.getpid())
    try:
        WorkerServer(settings, line, late).run([listening])
    except UserError as error:
        line.send(str(error))
        sys.exit(2)


class WorkerServer(Server):
    """A server that does not outlive its supervisor."""

    def __init__(self, settings: ServerSettings, line: Connection, late: bool) -> None:
        super().__init__(settings, lambda: line.send(""), signals=(signal.SIGTERM,), late=late)
        self.line = line
        self.all_end = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Watch the line, which can be read when there is a word, or nobody at its other end."""
        asyncio.get_running_loop().add_reader(self.line.fileno(), self._hear)
        await super().startup(sockets)

    def take(self, number: int) -> None:
        """Begin to end; some send a signal to all processes, so that it says no more than the supervisor does."""
        self.stop(number)

    def is_last(self) -> bool:
        """Tell whether all workers end: the supervisor has sent word, or is gone."""
        return self.all_end

    def _hear(self) -> None:
        asyncio.get_running_loop().remove_reader(self.line.fileno())
        self.all_end = True
        try:
            self.stop(self.line.recv())
        except (EOFError, OSError):
            self.stop(signal.SIGTERM)
