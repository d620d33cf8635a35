"""Several processes of the same command on this machine, as torchrun starts them."""

from __future__ import annotations

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
    shared |= {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": max(1, cores() // count)}
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        _send(processes, number)

    # A terminal sends its signals to a whole group of processes: each of ours gets them once, from here.
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for rank in range(count):
            own = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
            processes.append(subprocess.Popen(command, env={**os.environ, **own}, process_group=0))
        return _wait(processes)
    finally:
        for process in processes:
            process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _send(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all are done; end the others when one has failed."""
    failed: int | None = None
    ends: list[float] = []  # when those that are left are asked to end, and when they are made to
    signals = [signal.SIGTERM, signal.SIGKILL]
    while any(process.poll() is None for process in processes):
        if failed is None and (bad := [rank for rank, each in enumerate(processes) if each.returncode]):
            failed, ends = bad[0], [time.monotonic() + _GRACE, time.monotonic() + _LAST]
        if ends and time.monotonic() > ends[0]:
            del ends[0]
            _send(processes, signals[-1 - len(ends)])
        time.sleep(0.05)
    codes = [process.returncode for process in processes]
    killed = {rank: signal.Signals(-code).name for rank, code in enumerate(codes) if code < 0}
    if failed is None:
        failed = next((rank for rank, code in enumerate(codes) if code), 0)
    if failed in killed:
        what = f"process {failed} of {len(codes)} (counted from 0) was ended by {killed[failed]}"
        print(f"error: {what} → the same command resumes from the last checkpoint", file=sys.stderr)
    return max(codes[0], 0) or (1 if codes[failed] < 0 else codes[failed])
