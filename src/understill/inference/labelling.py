"""Labelling at any size: every shard that is not finished, here or in several processes, each tried a few times."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

from understill.data.files import BadFile
from understill.errors import Problem, Problems, UserError, counted
from understill.events import ShardsLabelled, Watch, silent
from understill.inference.cores import cores
from understill.inference.loading import tasks_of
from understill.inference.onnx import is_export
from understill.inference.shards import (
    LabelJob,
    Shard,
    find_shards,
    finished,
    held,
    holds_nothing,
    left_over,
    refuse_others,
    try_shard,
)
from understill.inference.stream import SHOWN, Predicted, check_files

log = logging.getLogger(__name__)

#: Seconds between two looks at how far worker processes are.
LOOK = 1.0
#: What labels shards in any order, and counts the rows on the way.
Labeller = Callable[[LabelJob, Sequence[Shard], Callable[[int], None]], Iterator[tuple[Shard, Predicted | Problem]]]


@dataclass(frozen=True)
class LabelledShards:
    """How much a call has labelled, and how much was finished before."""

    shards: int
    skipped: int
    rows: int  # of this call
    unanswered: int
    seconds: float
    faults: tuple[Problem, ...] = field(default=(), compare=False)  # why the first of them have no answer


def label_shards(
    job: LabelJob, processes: int = 1, retries: int = 2, watch: Watch = silent, labeller: Labeller | None = None
) -> LabelledShards:
    """Label every shard that is not finished; those that fail again and again are raised together at the end."""
    labeller = labeller or (in_turn if processes == 1 else partial(in_processes, processes=processes))
    shards, begun = find_shards(job), time.monotonic()
    with held(job.target):
        refuse_others(job)
        for output in left_over(job, shards):
            log.warning("%s is of a shard that is no longer there; it is left as it is", output)
        waiting = [shard for shard in shards if not finished(job, shard)]
        _check_first(job, waiting)
        skipped, results, failed = len(shards) - len(waiting), list[Predicted](), dict[Shard, Problem]()
        count = _counting(job, skipped, len(shards), results, watch)
        for _ in range(retries + 1):
            failed.clear()
            with closing(labeller(job, waiting, count)) as outcomes:  # type: ignore[type-var]
                for shard, outcome in outcomes:
                    if isinstance(outcome, Predicted):
                        results.append(outcome)
                        count(0)
                    elif outcome.place == str(job.model):
                        raise UserError(outcome.what)
                    else:
                        failed[shard] = outcome
            if not (waiting := list(failed)):
                break
    if failed:
        done = f"{len(shards) - len(failed):,} of {counted(len(shards), 'shard')} labelled"
        raise Problems(f"{done}; the same command tries the others again:", list(failed.values()))
    rows, unanswered = (sum(getattr(each, name) for each in results) for name in ("rows", "unanswered"))
    faults = [fault for each in results for fault in each.faults][:SHOWN]
    return LabelledShards(len(shards), skipped, rows, unanswered, time.monotonic() - begun, tuple(faults))


def _check_first(job: LabelJob, waiting: Sequence[Shard]) -> None:
    """Refuse tasks and columns that the first readable shard lacks, before a model is loaded."""
    for shard in waiting:
        with suppress(BadFile):  # which is tried again, and then named
            if not holds_nothing(shard.source):
                shard.target.parent.mkdir(parents=True, exist_ok=True)
                check_files(shard.source, shard.target, tasks_of(job.model), job.tasks or None, job.columns)
                return


def _counting(
    job: LabelJob, skipped: int, total: int, results: Sequence[Predicted], watch: Watch
) -> Callable[[int], None]:
    """Return what counts rows and reports how far the work is."""
    rows, begun = 0, time.monotonic()

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        seconds, done = time.monotonic() - begun, len(results)
        left = seconds / done * (total - skipped - done) if done else None
        watch(ShardsLabelled(str(job.target), skipped + done, total, rows, rows / max(seconds, 1e-3), left))

    return count


# Here -----------------------------------------------------------------------------------------------------------------


def in_turn(
    job: LabelJob, shards: Sequence[Shard], count: Callable[[int], None]
) -> Iterator[tuple[Shard, Predicted | Problem]]:
    """Label shards one after the other in this process."""
    for shard in shards:
        yield shard, try_shard(job, shard, count)


def in_processes(
    job: LabelJob, shards: Sequence[Shard], count: Callable[[int], None], processes: int
) -> Iterator[tuple[Shard, Predicted | Problem]]:
    """Label shards in several processes; where one of them is killed, new ones take over."""
    waiting, context = list(shards)[::-1], get_context("spawn")
    counter, number, counted = context.Value("q", 0), context.Value("i", 0), 0
    threads = max(1, cores() // processes)
    begin = (counter, number, threads, is_export(job.model))
    while waiting:
        running: dict[Future[Predicted | Problem], Shard] = {}
        pool = ProcessPoolExecutor(min(processes, len(waiting)), context, _begin, begin)
        try:
            broken = False
            while running or (waiting and not broken):
                while waiting and not broken and len(running) < processes:
                    shard = waiting.pop()
                    try:
                        running[pool.submit(_there, job, shard, threads)] = shard
                    except BrokenProcessPool:  # a process was killed since the last look
                        waiting.append(shard)
                        broken = True
                for future in wait(running, LOOK, FIRST_COMPLETED).done:
                    shard = running.pop(future)
                    lost = isinstance(future.exception(), BrokenProcessPool)
                    broken = broken or lost  # others may have finished just before
                    what = "its process was killed, perhaps for want of memory"
                    yield shard, Problem(str(shard.source), what) if lost else future.result()
                count(counter.value - counted)
                counted = counter.value
        finally:
            pool.shutdown(cancel_futures=True)


# In a worker process --------------------------------------------------------------------------------------------------

_counter: Any = None


def _begin(counter: Any, number: Any, threads: int, export: bool) -> None:
    """Set up a worker: its share of the cores, its GPU where there are several, and where it counts rows."""
    global _counter
    _counter = counter
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokeniser
    if export:  # which needs no torch
        return
    import torch

    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        with number.get_lock():
            torch.cuda.set_device(number.value % torch.cuda.device_count())
            number.value += 1


def _there(job: LabelJob, shard: Shard, threads: int) -> Predicted | Problem:
    def count(rows: int) -> None:
        with _counter.get_lock():
            _counter.value += rows

    return try_shard(job, shard, count, threads)
