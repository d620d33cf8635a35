"""Several processes of the same command on this machine, as torchrun starts them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from understill.inference.cores import cores

#: Seconds that processes get to end by themselves after another one has, and after they were asked to.
_GRACE, _LAST = 5.0, 60.0
#: The number by which prctl knows the signal that a process gets when its parent has died.
_PARENT_DEATH = 1


def place() -> tuple[int, int]:
    """Return the number of this process among those that it was started with, and how many they are."""
    rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if size == 1:
        os.environ.pop("LOCAL_RANK", None)  # of a torchrun with one process, which accelerate takes for several
    return rank, size


def launch(count: int, command: Sequence[str]) -> int:
    """Run a command in so many processes; return 0, or the exit code of the first that failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    usual = {"OMP_NUM_THREADS": max(1, cores() // count), "GLOO_SOCKET_IFNAME": "lo"}  # this machine talks to itself
    shared |= {name: value for name, value in usual.items() if name not in os.environ}
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        _send(processes, number)

    # A terminal sends its signals to a whole group of processes: each of ours gets them once, from here.
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for rank in range(count):
            own = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
            environment = {**os.environ, **own}
            processes.append(subprocess.Popen(command, env=environment, process_group=0, preexec_fn=_end_with_parent))
        return _wait(processes)
    finally:
        for process in processes:
            process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with_parent() -> None:
    """Have Linux send this process SIGTERM when the one that started it is gone, even if that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGTERM)


def _send(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all are done; end the others when one has failed."""
    first: int | None = None  # that has failed
    deadlines: list[tuple[float, int]] = []  # of those that are left: when they are sent which signal
    while None in (codes := [process.poll() for process in processes]):
        if first is None and any(codes):
            first, now = next(rank for rank, code in enumerate(codes) if code), time.monotonic()
            deadlines = [(now + _GRACE, signal.SIGTERM), (now + _LAST, signal.SIGKILL)]
        if deadlines and time.monotonic() > deadlines[0][0]:
            _send(processes, deadlines.pop(0)[1])
        time.sleep(0.05)
    ended = [process.returncode for process in processes]
    first = next((rank for rank, code in enumerate(ended) if code), 0) if first is None else first
    if ended[first] < 0:
        what = f"process {first} of {len(ended)}, counted from 0, was ended by {signal.Signals(-ended[first]).name}"
        hint = "" if ended[0] > 0 else "; the same command resumes from the last checkpoint"  # it said so itself
        print(f"{what}{hint}", file=sys.stderr)
    return max(ended[0], 0) or (1 if ended[first] < 0 else ended[first])
