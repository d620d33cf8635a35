"""Injection: what makes a write, a read, a system call or the clock of a process fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: What changes a folder, as Python's audit events name it.
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "os.chmod")


class AtWrite:
    """Does something at the n-th write below a folder, or the n-th read: fails it with an error, or acts.

    An error of 0 is a MemoryError. `ever` lets what would write more fail from then on. `counts` gets how many there
    are.
    """

    def __init__(
        self,
        root: Path,
        number: int = 0,
        act: Callable[[], object] | None = None,
        *,
        error: int | None = None,
        ever: bool = False,
        reads: bool = False,
        where: str = "",
        event: str = "",
        counts: Path | None = None,
    ) -> None:
        self.root, self.number, self.act, self.error, self.ever = str(root), number, act, error, ever
        self.read, self.where, self.event, self.counts = reads, where, event, counts
        self.writes = self.reads = 0
        self.busy = False

    def install(self) -> None:
        """Watch this process from now on."""
        sync = os.fsync

        def fsync(handle: int) -> None:
            self("os.fsync", (f"{self.root}/fsync",))
            sync(handle)

        os.fsync = fsync
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy or (event not in CHANGES and event not in ("open", "os.fsync")):
            return
        path = arguments[1] if event == "os.rename" else arguments[0]
        inside = str(path).startswith(self.root) or (event in ("os.remove", "os.rmdir") and arguments[1] != -1)
        if not inside or isinstance(path, int) or (self.event and event != self.event) or self.where not in str(path):
            return
        writes = event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        self.writes, self.reads = self.writes + writes, self.reads + (not writes)
        self.busy = True
        try:
            if self.counts:
                self.counts.write_text(f"{self.writes} {self.reads}", encoding="utf-8")
            elif writes != self.read:
                self._hit(event, str(path))
        finally:
            self.busy = False

    def _hit(self, event: str, path: str) -> None:
        count = self.reads if self.read else self.writes
        # A full disk lets nothing be written, and everything be removed.
        lasting = self.ever and count > self.number and event in ("open", "os.mkdir", "os.fsync")
        if count != self.number and not lasting:
            return
        if self.act:
            self.act()
        elif self.error == 0:
            raise MemoryError
        elif self.error:
            raise OSError(self.error, os.strerror(self.error), path)


def same_time(offset: float) -> None:
    """Set this process's clock forward or back by so many seconds."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + offset
    time.time_ns = lambda: now_ns() + int(offset * 1e9)


def copied(source: Path, target: Path) -> Path:
    """Copy a folder with its links."""
    shutil.copytree(source, target, symlinks=True)
    return target


class Syscalls:
    """strace, which lets the n-th system call that writes of a stopped process fail, or be its last."""

    CALLS = "write,pwrite64,fsync,rename,renameat,renameat2,mkdir,ftruncate"

    def __init__(self, pid: int, number: int, error: str) -> None:
        self.pid, self.why_not = pid, ""
        how = f"signal={error}" if error.startswith("SIG") else f"error={error}"
        inject = f"inject={self.CALLS}:{how}:when={number}"
        self.command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={self.CALLS}", "-e", inject]
        self.tracer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Syscalls:
        try:
            self.tracer = subprocess.Popen([*self.command, "-p", str(self.pid)], stderr=subprocess.PIPE)
        except OSError as error:
            self.why_not = f"strace: {error.strerror}"
            return self
        while "TracerPid:\t0\n" in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8"):
            if self.tracer.poll() is not None:
                assert self.tracer.stderr
                self.why_not = self.tracer.stderr.read().decode().strip()
                break
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        if self.tracer:
            self.tracer.wait(timeout=60)
            assert self.tracer.stderr
            self.tracer.stderr.close()
