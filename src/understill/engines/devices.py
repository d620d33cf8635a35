"""The local engine: all stages in this process or, where there are several GPUs, a GPU for each model.

Then each GPU has a process, which is sent stages as they become ready: it has an interpreter and memory of its own, and
sees no other GPU. Several small models share a GPU only when no other GPU has fewer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Collection, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch

from understill.engines.engine import stages_by_key
from understill.engines.local import Queue, job, run_stages
from understill.errors import UserError
from understill.events import Event, Turn, Watch
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe
from understill.recipe.schema import Machine
from understill.train.device import pick_device
from understill.train.interleave import Job, interleave

#: Seconds that a process gets to write its checkpoints.
_LAST = 60.0


def run_locally(
    recipe: Recipe, stages: Sequence[Stage], wanted: Collection[str], watch: Watch, clock: StageClock
) -> None:
    """Run stages on this machine; several models are trained on a GPU each, where there are as many."""
    devices = visible_gpus(recipe.machine)
    queue = Queue(stages, wanted, recipe.machine)
    models = sum(stage.trains and not stage.done() for stage in queue.waiting)
    if len(devices) > 1 and models > 1:
        run_on_devices(devices[:models], recipe, queue, watch, clock)
    else:
        run_stages(stages, wanted, recipe.machine, watch, clock)


def visible_gpus(machine: Machine) -> list[str]:
    """Name the GPUs that a run may use, as CUDA_VISIBLE_DEVICES does."""
    if pick_device(machine) != "cuda":
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return (named.split(",") if named else list(map(str, range(count))))[:count]


# The process that hands out stages ------------------------------------------------------------------------------------


def run_on_devices(devices: Sequence[str], recipe: Recipe, queue: Queue, watch: Watch, clock: StageClock) -> None:
    """Run the stages of a queue in a process for each device; `cpu` is one too."""
    workers = [_Worker(device, recipe, queue.slots) for device in devices]
    by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in workers}
    try:
        while queue.unmade:
            _hand_out(queue, workers)
            for connection in wait(list(by_connection)):
                by_connection[connection].read(queue, watch)
        for worker in workers:
            worker.connection.send(None)
            worker.process.wait()
    finally:
        _end(workers)
        clock.lap("several devices")


def _hand_out(queue: Queue, workers: Sequence[_Worker]) -> None:
    """Send stages that are ready to those that run the fewest; one that still starts is waited for."""
    while free := [worker for worker in workers if worker.asks or not worker.started]:
        worker = min(free, key=lambda each: (len(each.running), not each.asks))
        stage = queue.take() if worker.asks else None
        if stage is None:
            break
        worker.running.add(stage.key)
        worker.asks = False
        worker.connection.send(stage.key)
    idle = all(worker.asks and not worker.running for worker in workers)
    assert not (idle and queue.waiting), f"stages that wait for each other: {[stage.key for stage in queue.waiting]}"


def _end(workers: Sequence[_Worker]) -> None:
    """Let all end that still run: at the first signal they write checkpoints."""
    left = [worker.process for worker in workers if worker.process.poll() is None]
    for process in left:
        process.send_signal(signal.SIGTERM)
    for process in left:
        try:
            process.wait(_LAST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Worker:
    """A process with a device to itself, as seen from the one that hands out stages."""

    def __init__(self, device: str, recipe: Recipe, slots: int) -> None:
        self.device = device
        self.started = self.asks = False  # whether it has planned, and whether it has a slot free
        self.running: set[str] = set()
        self.turn: Turn | None = None  # whom its next event is about
        self.connection, other = Pipe()
        command = [sys.executable, "-m", "understill.engines.devices", str(other.fileno())]
        own = {} if device == "cpu" else {"CUDA_VISIBLE_DEVICES": device}
        # In a group of its own: a terminal's Ctrl-C reaches the first process, which then asks each of these to stop.
        self.process = subprocess.Popen(
            command, env={**os.environ, **own}, pass_fds=[other.fileno()], process_group=0, stdin=subprocess.DEVNULL
        )
        other.close()
        self.connection.send((recipe, slots))

    def read(self, queue: Queue, watch: Watch) -> None:
        """Take what it sent: an event, a stage that is made, a request for the next one, or an error."""
        try:
            what, value = self.connection.recv()
        except (EOFError, ConnectionError):
            code = self.process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
            fix = "the same command resumes from the last checkpoint"
            raise UserError(f"the process of device {self.device} was ended {how} → {fix}") from None
        match what:
            case "asks":
                self.started = self.asks = True
            case "made":
                self.running.remove(value)
                queue.made(value)
            case "mistake":
                raise UserError(value)
            case "bug":
                raise RuntimeError(f"in the process of device {self.device}:\n{value}")
            case _:
                self._show(value, watch)

    def _show(self, event: Event, watch: Watch) -> None:
        """Pass an event on, after whom it is about: those of several processes come mixed."""
        if isinstance(event, Turn):
            self.turn = event
            return
        if self.turn:
            watch(self.turn)
        watch(event)


# The process of a device ----------------------------------------------------------------------------------------------


class _Device:
    """Runs the stages that it is sent, several in turns where slots are free."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection
        recipe, self.slots = connection.recv()
        self.stages, self.clock = stages_by_key(recipe), StageClock()
        self.running, self.asked = 0, False

    def run(self) -> None:
        """Run stages until there are no more."""
        interleave(self._begin, self.slots)

    def _begin(self) -> Job | None:
        if not self.asked:
            self.connection.send(("asks", None))
            self.asked = True
        if self.running and not self.connection.poll():
            return None
        key = self.connection.recv()
        if key is None:
            return None
        if key not in self.stages:
            what = "this device plans the run otherwise than the first: it is of another kind, with another precision"
            raise UserError(f"{what} → name training.precision in the recipe, or choose by CUDA_VISIBLE_DEVICES")
        self.asked = False
        self.running += 1
        return job(self.stages[key], lambda event: self.connection.send(("event", event)), self.clock, self._made)

    def _made(self, key: str) -> None:
        self.running -= 1
        self.connection.send(("made", key))


def main(descriptor: int) -> None:
    """Run stages for the process that holds the other end of a connection."""
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        _Device(connection).run()
    except ConnectionError:  # nobody is there any more
        raise SystemExit(1) from None
    except UserError as error:
        connection.send(("mistake", str(error)))
    except Exception:
        connection.send(("bug", traceback.format_exc()))
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGTERM) from None


if __name__ == "__main__":
    main(int(sys.argv[1]))
