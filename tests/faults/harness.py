"""A tiny recipe run hundreds of times with one fault each, forked from a process that has imported everything.

`python tests/faults/harness.py FOLDER SEED COUNT` writes a line of JSON for each run. It is a process of its own, since
only one without threads can be forked safely.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":  # before libraries look at it: no thread may be there when a process is forked
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["HF_HUB_OFFLINE"] = "1"

import yaml
from injection import AtWrite, Syscalls, copied, same_time

from corruption import results_in
from tiny import save_tiny

#: How a run with a fault may end; only the last is a failure.
OUTCOMES = ("complete", "one sentence", "killed", "failed")
#: Seconds after which a run hangs; the machine may be very busy.
PATIENCE = 120.0

Arrange = Callable[[], object]


@dataclass(frozen=True)
class Ended:
    """A process that has ended: its exit status, below zero for a signal, and what it printed."""

    code: int
    text: str

    @property
    def refused(self) -> bool:
        """Whether it ended with one sentence."""
        sentences = [line for line in self.text.splitlines() if line.startswith("error: ")]
        return self.code == 2 and len(sentences) == 1 and "Traceback" not in self.text


@dataclass(frozen=True)
class Trial:
    """One run with a fault, and how it and the one after it ended."""

    kind: str
    what: str
    outcome: str
    detail: str = ""


class Process:
    """The program, forked, with what is to go wrong arranged in it; what it prints goes to a pipe."""

    def __init__(self, arguments: list[str], arrange: Arrange) -> None:
        self.read, write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        code = 1
        try:
            os.dup2(write, 1)
            os.dup2(write, 2)
            os.closerange(3, 64)  # what the parent has open is not the program's
            from understill.cli import main

            arrange()
            main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def stopped(self) -> bool:
        """Wait until it is stopped, or has ended."""
        result = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return result is not None and result.si_code == os.CLD_STOPPED

    def over(self, seconds: float) -> bool:
        """Wait so long for its end."""
        until = time.monotonic() + seconds
        while not (ended := os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            if time.monotonic() > until:
                break
            time.sleep(0.005)
        return ended is not None

    def end(self) -> Ended:
        """Wait for its end; one that hangs is killed."""
        hangs = not self.over(PATIENCE)
        if hangs:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self.read, "rb") as file:
            text = file.read().decode(errors="replace")
        return Ended(99, f"it hangs: {text}") if hangs else Ended(os.waitstatus_to_exitcode(status), text)


class Harness:
    """A recipe, what it comes to without a fault, and the faults."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.chance = root.resolve(), random.Random(seed)
        self.runs, self.recipe = self.root / "runs", self.root / "recipe.yaml"
        self.arguments = ["run", str(self.recipe), "--no-report"]

    # Without a fault --------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Run the recipe without a fault, import what it imports, and keep it finished and interrupted."""
        values = {
            "name": "tiny",
            "data": {"demo": 24},
            "tasks": ["mood"],
            "encoder": {"name": str(self.root / "encoder"), "max_length": 16},
            "teachers": [{"name": "large"}],
            "targets": {"weak": "keep"},
            "student": {
                "encoder": {"name": "bilstm", "words": {"size": 8, "hidden": 8, "dense": 8}},
                "augment": {"times": 2, "pos": 0},
                "baseline": False,
            },
            "training": {"steps": 4, "batch": 8, "lr": 1e-3, "evaluate": "2 steps", "checkpoint": "2 steps"},
            "output": {"folder": str(self.runs)},
            "machine": {"device": "cpu", "threads": 1},
        }
        self.recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
        self._forked(lambda: save_tiny(self.root / "encoder"))
        names = self.root / "modules"

        def run() -> None:
            from understill.cli import main

            try:
                main(self.arguments)
            finally:
                names.write_text("\n".join(sys.modules), encoding="utf-8")

        self._forked(run)
        for name in names.read_text(encoding="utf-8").split():
            if not name.endswith("__main__"):
                with suppress(ImportError, AttributeError, RuntimeError, ValueError):
                    importlib.import_module(name)
        self._measure()

    def _forked(self, call: Callable[[], object]) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            os.dup2(2, 1)
            try:
                call()
            except SystemExit as stop:
                os._exit(int(stop.code or 0))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def _measure(self) -> None:
        """Run it once more, now warm, to know its writes, reads, system calls, seconds and bytes."""
        counts = self.root / "counts"
        shutil.rmtree(self.runs)
        began = time.monotonic()
        ended = Process(self.arguments, AtWrite(self.root, counts=counts).install).end()
        assert ended.code == 0, ended.text
        self.seconds = time.monotonic() - began
        self.writes, self.reads = map(int, counts.read_text(encoding="utf-8").split())
        self.clean = results_in(self.runs, "tiny")
        files = [path for path in self.runs.rglob("*") if path.is_file() and not path.is_symlink()]
        self.largest, self.bytes = max(path.stat().st_size for path in files), sum(p.stat().st_size for p in files)
        self.finished = copied(self.runs, self.root / "finished")
        shutil.rmtree(self.runs)
        at_checkpoint = AtWrite(self.root, act=self._die, where="checkpoint-2", number=2, event="os.rename")
        assert Process(self.arguments, at_checkpoint.install).end().code == -signal.SIGKILL
        self.interrupted = copied(self.runs, self.root / "interrupted")

    @staticmethod
    def _die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    # Trials -----------------------------------------------------------------------------------------------------------

    def trials(self, count: int) -> list[Trial]:
        """Make so many runs, of each kind of fault about as many."""
        done = []
        for number in range(count):
            kind = KINDS[number % len(KINDS)]
            shutil.rmtree(self.runs, ignore_errors=True)
            trial: Trial = getattr(self, f"_fault_{kind.replace(' ', '_')}")(kind)
            done.append(trial)
            print(json.dumps(asdict(trial)), flush=True)
        return done

    def _with(self, kind: str, what: str, arrange: Arrange, *, killed: bool = False, whole: bool = True) -> Trial:
        return self._judge(kind, what, [Process(self.arguments, arrange).end()], killed, whole)

    def _judge(self, kind: str, what: str, ended: list[Ended], killed: bool = False, whole: bool = True) -> Trial:
        """Sort how processes with a fault ended; where any did not complete, the next one has to."""
        for each in ended:
            if each.code and not each.refused and not (killed and each.code == -signal.SIGKILL):
                return Trial(kind, what, "failed", f"exit {each.code}: {each.text[-3000:]}")
        worst = next((each for each in ended if each.code), None)
        outcome = "complete" if not worst else "killed" if worst.code < 0 else "one sentence"
        detail = "" if not worst else next((line for line in worst.text.splitlines() if "error: " in line), "")
        if worst:
            again = Process(self.arguments, lambda: None).end()
            if again.code:
                return Trial(kind, what, "failed", f"after {detail}: exit {again.code}: {again.text[-3000:]}")
        differing = self._differing(whole)
        return (
            Trial(kind, what, "failed", f"{outcome} {detail}: {differing}")
            if differing
            else Trial(kind, what, outcome, detail)
        )

    def _differing(self, whole: bool) -> str:
        """Say what differs from the clean run, or is damaged."""
        result = results_in(self.runs, "tiny")
        names = [name for name in {**self.clean, **result} if self.clean.get(name) != result.get(name)]
        if not whole:  # once a student is trained, nobody misses what it was made of; verify names it
            names = [name for name in names if name in result or not name.startswith("artifacts/targets-")]
        if names:
            return f"results differ: {names}"
        if whole:
            ended = Process(["verify", str(self.runs / "tiny")], lambda: None).end()
            return f"verify: {ended.text}" if ended.code else ""
        return ""

    # Faults -----------------------------------------------------------------------------------------------------------

    def _number(self, total: int) -> int:
        return self.chance.randint(1, total)

    def _fault_killed_at_a_write(self, kind: str) -> Trial:
        number = self._number(self.writes)
        return self._with(kind, f"write {number}", AtWrite(self.root, number, self._die).install, killed=True)

    def _fault_killed_at_a_moment(self, kind: str) -> Trial:
        process, moment = Process(self.arguments, lambda: None), self.chance.uniform(0, self.seconds)
        if not process.over(moment):
            os.kill(process.pid, signal.SIGKILL)
        return self._judge(kind, f"after {moment:.2f} s", [process.end()], killed=True)

    def _fault_failing_write(self, kind: str) -> Trial:
        number, error = self._number(self.writes), self.chance.choice([5, 12, 13, 24, 28, 30, 36, 122])
        ever = self.chance.random() < 0.5
        what = f"{os.strerror(error)} at write {number}{' and after' if ever else ''}"
        return self._with(kind, what, AtWrite(self.root, number, error=error, ever=ever).install)

    def _fault_failing_read(self, kind: str) -> Trial:
        number, error = self._number(self.reads), self.chance.choice([5, 12, 24])
        at_read = AtWrite(self.root, number, error=error, reads=True)
        return self._with(kind, f"{os.strerror(error)} at read {number}", at_read.install)

    def _fault_no_memory(self, kind: str) -> Trial:
        number = self._number(self.writes)
        return self._with(kind, f"at write {number}", AtWrite(self.root, number, error=0).install)

    def _fault_too_large_file(self, kind: str) -> Trial:
        limit = int(10 ** self.chance.uniform(1, len(str(self.largest)) - 0.5))

        def arrange() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        return self._with(kind, f"{limit:,} bytes", arrange)

    def _fault_too_many_files(self, kind: str) -> Trial:
        more = self.chance.randint(0, 12)

        def arrange() -> None:
            used = len(os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        return self._with(kind, f"{more} more may be open", arrange)

    def _fault_full_disk(self, kind: str) -> Trial:
        size = int(self.bytes * self.chance.uniform(0.02, 1.0)) // 4096 + 8
        self.runs.mkdir()
        try:
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={4 * size}k", "tmpfs", self.runs], capture_output=True, text=True
            )
        except OSError as error:
            return Trial(kind, "", "skipped", str(error))
        if mounted.returncode:
            return Trial(kind, "", "skipped", mounted.stderr.strip())
        try:
            ended = Process(self.arguments, lambda: None).end()
            subprocess.run(["mount", "-o", "remount,size=64m", self.runs], check=True)  # room is made
            return self._judge(kind, f"{4 * size:,} kB", [ended])
        finally:
            subprocess.run(["umount", self.runs], check=True)

    def _fault_system_call(self, kind: str) -> Trial:
        """Let a system call fail or kill, so that what libraries in C++ and Rust write is hit too."""
        # Of the writes that Python tells of, about half are calls that are counted here.
        number, error = self._number(self.writes // 2), self.chance.choice(["EIO", "ENOSPC", "SIGKILL"])
        process = Process(self.arguments, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        assert process.stopped()
        with Syscalls(process.pid, number, error) as tracer:
            if tracer.why_not:
                os.kill(process.pid, signal.SIGKILL)
                process.end()
                return Trial(kind, "", "skipped", tracer.why_not)
            os.kill(process.pid, signal.SIGCONT)
            ended = process.end()
        return self._judge(kind, f"{error} at call {number}", [ended], killed=error == "SIGKILL")

    def _fault_damaged_file(self, kind: str) -> Trial:
        state = self.chance.choice([self.finished, self.interrupted])
        copied(state, self.runs)
        # Once a student is finished, nobody reads what it was made of.
        unread = ("targets-", "augmented-") if state is self.finished else ()
        by_kind: dict[tuple[str, ...], list[Path]] = {}
        for path in sorted(self.runs.rglob("*")):
            parts = path.relative_to(self.runs).parts
            if (
                path.is_file()
                and path.stat().st_size
                and not path.is_symlink()
                and not any(part.startswith((*unread, ".")) for part in parts)
            ):
                by_kind.setdefault(tuple(part.split("-")[0] for part in parts), []).append(path)
        path = self.chance.choice(by_kind[self.chance.choice(list(by_kind))])
        content, how = (
            bytearray(path.read_bytes()),
            self.chance.choice(["flipped", "flipped", "cut", "emptied", "gone"]),
        )
        if how == "gone":
            path.unlink()
        else:
            content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
            kept = {"flipped": len(content), "cut": self.chance.randrange(len(content)), "emptied": 0}[how]
            path.write_bytes(content[:kept] if how == "flipped" else path.read_bytes()[:kept])
        what = f"{how}: {path.relative_to(self.runs)} ({state.name})"
        return self._with(kind, what, lambda: None, whole=False)

    def _fault_vanished_folder(self, kind: str) -> Trial:
        reads, seed = self.chance.random() < 0.5, self.chance.random()
        number = self._number(self.reads if reads else self.writes)

        def vanish() -> None:
            folders = [*self.runs.glob("artifacts/*/"), *self.runs.glob("cache/*/"), *self.runs.glob("*/"), self.runs]
            shutil.rmtree(random.Random(seed).choice(sorted(folders)), ignore_errors=True)

        what = f"at {'read' if reads else 'write'} {number}"
        return self._with(kind, what, AtWrite(self.root, number, vanish, reads=reads).install, whole=False)

    def _fault_second_process(self, kind: str) -> Trial:
        first, pause = Process(self.arguments, lambda: None), self.chance.uniform(0, self.seconds)
        time.sleep(pause)
        second = Process(self.arguments, lambda: None)
        return self._judge(kind, f"after {pause:.2f} s", [first.end(), second.end()])

    def _fault_stopped_process(self, kind: str) -> Trial:
        number, dies = self._number(self.writes), self.chance.random() < 0.3
        stop = AtWrite(self.root, number, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        first = Process(self.arguments, stop.install)
        stopped = first.stopped()
        second = Process(self.arguments, lambda: None)
        second.over(self.seconds)  # it may wait for the first
        if stopped:
            os.kill(first.pid, signal.SIGKILL if dies else signal.SIGCONT)
        what = f"at write {number}, then {'killed' if dies else 'continued'}"
        return self._judge(kind, what, [first.end(), second.end()], killed=dies)

    def _fault_jumping_clock(self, kind: str) -> Trial:
        number, years = self._number(self.writes), self.chance.choice([-30, -1, -1e-4, 1e-4, 2e-4, 1, 10])
        seconds = years * 365 * 86400
        jump = AtWrite(self.root, number, lambda: same_time(seconds))
        if self.chance.random() < 0.5:  # files of another time, too
            copied(self.interrupted, self.runs)
            for path in self.runs.rglob("*"):
                at = max(0.0, path.lstat().st_mtime + seconds)
                os.utime(path, (at, at), follow_symlinks=False)
        return self._with(kind, f"by {seconds:,.0f} s at write {number}", jump.install)


#: The kinds of faults.
KINDS = tuple(name.removeprefix("_fault_").replace("_", " ") for name in vars(Harness) if name.startswith("_fault_"))


def as_table(trials: list[Trial]) -> str:
    """Count outcomes by kind of fault."""
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(trial.kind, Counter())[trial.outcome] += 1
    names = (*OUTCOMES, "skipped")
    lines = [f"{'fault':<20}" + "".join(f"{name:>14}" for name in ("runs", *names))]
    for kind, own in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        lines.append(f"{kind:<20}{own.total():>14}" + "".join(f"{own[name] or '':>14}" for name in names))
    return "\n".join(lines)


if __name__ == "__main__":
    harness = Harness(Path(sys.argv[1]), int(sys.argv[2]))
    harness.build()
    print(as_table(harness.trials(int(sys.argv[3]))), file=sys.stderr)
