"""The cluster engine: stages are tasks of Ray, on whatever node has room, and all else is as in the local engine."""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from understill.engines.artifact_store import Store, finished, scratch
from understill.engines.engine import Engine, stages_by_key
from understill.engines.local import run_stages
from understill.errors import UserError
from understill.events import Asking, Event, Labelling, Reading, Tokenising, Turn, Watch
from understill.pipeline.graph import required
from understill.pipeline.stage import Stage, StageClock
from understill.recipe import Recipe

log = logging.getLogger(__name__)

#: How often a stage is begun again after its worker or its node was lost.
RETRIES = 10
#: Seconds between two looks at what the workers have done.
LOOK = 0.2
#: Stages that are part of whatever needs them, and those that only read small files, which the driver does.
WITHIN, HERE = ("vocabulary", "tokenise"), ("choose",)
#: Bytes that a stage is given, about: torch and transformers, and with training the model and its optimiser.
MEMORY, TRAINING_MEMORY = 1 << 30, 2 << 30
#: Events of which one now and then is enough, and the seconds between two of them.
FREQUENT, PAUSE = (Asking, Labelling, Reading, Tokenising), 0.5


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster of Ray, or start one on this machine, until the block ends; give the library."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError('the engine ray needs Ray, which is not installed → pip install "understill[ray]"') from None
    if ray.is_initialized():
        yield ray
        return
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # of itself Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        fix = "start one with `ray start --head`, or leave --address out for one on this machine"
        raise UserError(f"--address {address}: no cluster answers there ({error}) → {fix}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def on_ray(address: str | None = None, store: str | None = None) -> Iterator[Engine]:
    """Give the engine that runs stages on a cluster, which shares the output folder or exchanges files by a store."""
    with connected(address) as ray:
        if store:
            Store(store).check()
        yield partial(_run, ray, store)


def _run(
    ray: Any,
    store: str | None,
    recipe: Recipe,
    stages: Sequence[Stage],
    wanted: Collection[str],
    watch: Watch,
    clock: StageClock,
) -> None:
    """Run the wanted stages as tasks, each as soon as what it needs is there."""
    driver = _Driver(ray, store, recipe, stages, watch, clock)
    waiting = [stage for stage in required(stages, wanted) if stage.action not in WITHIN]
    unmade, running = {stage.key for stage in waiting}, dict[Any, Stage]()
    try:
        while waiting or running:
            ready = [stage for stage in waiting if unmade.isdisjoint(stage.needs)]
            for stage in ready:
                waiting.remove(stage)
                if task := driver.begin(stage):
                    running[task] = stage
                else:
                    unmade.remove(stage.key)
            for task in driver.look([] if ready else list(running)):
                stage = running.pop(task)
                driver.end(task, stage)
                unmade.remove(stage.key)
    finally:  # where one has failed, the others are not wanted any more
        for task in running:
            ray.cancel(task, force=True)
    clock.lap("stages on Ray")


class _Driver:
    """Begins the tasks of a run, shows what they report, and takes what they have made."""

    def __init__(
        self, ray: Any, store: str | None, recipe: Recipe, stages: Sequence[Stage], watch: Watch, clock: StageClock
    ) -> None:
        self.ray, self.recipe, self.stages, self.watch, self.clock = ray, recipe, stages, watch, clock
        self.by_key = {stage.key: stage for stage in stages}
        self.store, self.folder = Store(store) if store else None, recipe.output.path / "artifacts"
        self.given = ray.put((recipe.placed(recipe.output.path.resolve()), os.getcwd(), store))
        self.reports, self.make = _reports(ray), ray.remote(_make)

    def begin(self, stage: Stage) -> Any:
        """Begin a stage's task; None where it is done here, since it is made already or only reads small files."""
        if stage.dropped() or stage.action in HERE or stage.done():
            run_stages(_missing(self.stages, stage.key), [stage.key], self.recipe.machine, self.watch, self.clock)
            if self.store and (name := _name(stage.key)) in finished(self.folder):
                self.store.push(self.folder / name)
            return None
        task = self.make.options(**_needs(self.ray, stage, self.recipe), name=f"{stage.action} {stage.name}")
        return task.remote(self.given, stage.key, self.reports)

    def look(self, running: Sequence[Any]) -> list[Any]:
        """Return the tasks that have ended, after waiting for a moment; show what all have reported."""
        ended: list[Any] = self.ray.wait(running, timeout=LOOK)[0] if running else []
        if running and not ended and not any(node["Alive"] for node in self.ray.nodes()):
            raise UserError("the cluster has lost all its nodes → start some, and run the same command again")
        _pass_on(self.ray, self.reports, self.by_key, self.watch)
        return ended

    def end(self, task: Any, stage: Stage) -> None:
        """Bring what a task has put into the store, or raise what went wrong there."""
        again = "run the same command again; what is finished is kept"
        try:
            made: _Made = self.ray.get(task)
        except self.ray.exceptions.LocalRayletDiedError:
            raise UserError(f"the node that this process belongs to was lost → {again}") from None
        except self.ray.exceptions.RayError as error:
            what = f"lost {RETRIES + 1} times on the cluster: {str(error).strip().splitlines()[0]}"
            raise UserError(f"{stage.action} {stage.name}: {what} → {again}") from None
        if made.bug:
            raise RuntimeError(f"{stage.action} {stage.name} failed on node {made.node}:\n{made.bug}")
        if made.mistake:
            raise UserError(made.mistake)
        if self.store:
            for name in made.pushed:
                self.store.pull(self.folder / name)


def _missing(stages: Sequence[Stage], key: str) -> list[Stage]:
    """Return a stage with those that it needs and that are not done, without the others."""
    chosen = [stage for stage in required(stages, [key]) if stage.key == key or not stage.done()]
    keys = {key, *(stage.key for stage in chosen)}
    # A stage that a choice has left out is not required, and yet it is asked for.
    known = chosen or [stage for stage in stages if stage.key == key]
    return [replace(stage, needs=tuple(need for need in stage.needs if need in keys)) for stage in known]


def _needs(ray: Any, stage: Stage, recipe: Recipe) -> dict[str, Any]:
    """Return what a task asks of its node: a GPU where there are any, cores, memory, and to be begun again."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((node.get("CPU", 0) for node in alive), default=1)
    gpus = int(recipe.machine.device in ("auto", "cuda") and any(node.get("GPU") for node in alive))
    memory = TRAINING_MEMORY if stage.trains else MEMORY
    return {
        "num_cpus": min(recipe.machine.threads or 1, most), "num_gpus": gpus, "memory": memory,
        "max_retries": RETRIES,
    }  # fmt: skip


# Events ---------------------------------------------------------------------------------------------------------------


class _Reports:
    """An actor beside the driver that keeps events until the driver asks for them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def put(self, key: str, event: Any) -> None:
        self.events.append((key, event))

    def take(self) -> list[tuple[str, Any]]:
        events, self.events = self.events, []
        return events


def _reports(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(_Reports).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def _pass_on(ray: Any, reports: Any, stages: Mapping[str, Stage], watch: Watch) -> None:
    """Show the events of workers, and log what they log; which model one is about is said where it changes."""
    try:
        events = ray.get(reports.take.remote())
    except ray.exceptions.RayActorError:  # its node was lost; another one keeps them from now on
        return
    last = None
    for key, event in events:
        if isinstance(event, logging.LogRecord):
            logging.getLogger(event.name).handle(event)
        else:
            if key != last and stages[key].trains:
                watch(Turn(stages[key].name))
            last = key
            watch(event)


# In a worker ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    """What came of a task; errors travel as text, since not every exception can be sent."""

    pushed: tuple[str, ...] = ()
    mistake: str = ""
    bug: str = ""
    node: str = ""


def _make(given: tuple[Recipe, str, str | None], key: str, reports: Any) -> _Made:
    """Make what a key names, on the node of this worker."""
    import ray

    recipe, folder, url = given
    node = ray.get_runtime_context().get_node_id()
    if os.path.isdir(folder):
        os.chdir(folder)  # where relative paths of the recipe begin
    sender = _Sender(key, reports)
    try:
        with sender:
            store = Store(url) if url else None
            root = scratch(url, node) if url else recipe.output.path
            return _Made(_run_one(recipe.placed(root), key, root / "artifacts", store, sender.watch))
    except UserError as error:
        return _Made(mistake=str(error))
    except KeyboardInterrupt:  # the node goes down, and a checkpoint was written: another one begins again
        os._exit(1)
    except Exception:
        return _Made(bug=traceback.format_exc(), node=node)


def _run_one(recipe: Recipe, key: str, folder: Path, store: Store | None, watch: Watch) -> tuple[str, ...]:
    stages = stages_by_key(recipe)
    if key not in stages:
        what = f"this node plans {recipe.name} otherwise than the machine that began the run"
        why = "it has another understill, other data files, or another kind of device"
        raise UserError(f"{what}: {why} → make them alike, or name training.precision in the recipe")
    mine = sorted({_name(each) for each in _behind(stages, key)})
    pulled = [name for name in mine if store and store.pull(folder / name)]
    before = {name: content for name, content in finished(folder).items() if name in pulled or name not in mine}
    run_stages(_missing(tuple(stages.values()), key), [key], recipe.machine, watch)
    if store is None:
        return ()
    # Other tasks of this node may be at work in the same folder: theirs is not pushed from here.
    made = [name for name, content in finished(folder).items() if before.get(name) != content]
    pushed = [name for name in made if name in mine or (stages[key].action, name[:6]) == ("probe", "probe-")]
    for name in pushed:
        store.push(folder / name)
    return tuple(pushed)


def _name(key: str) -> str:
    """Return the name of the artefact that a stage makes, by its key."""
    return key.partition("/")[0]


def _behind(stages: Mapping[str, Stage], key: str) -> set[str]:
    """Return a key with all that it stands on."""
    keys, left = set[str](), [key]
    while left:
        if (each := left.pop()) not in keys:
            keys.add(each)
            left += stages[each].needs
    return keys


class _Sender(logging.Handler):
    """Sends a stage's events and warnings to the driver."""

    def __init__(self, key: str, reports: Any) -> None:
        super().__init__(logging.WARNING)
        self.key, self.reports, self.last = key, reports, dict[type, float]()

    def __enter__(self) -> None:
        logging.getLogger("understill").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("understill").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), (), None
        self.reports.put.remote(self.key, record)

    def watch(self, event: Event) -> None:
        """Send an event, unless one of its kind was sent just now."""
        now = time.monotonic()
        if not isinstance(event, FREQUENT) or now - self.last.get(type(event), 0.0) > PAUSE:
            self.last[type(event)] = now
            self.reports.put.remote(self.key, event)
