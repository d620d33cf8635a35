"""Labelling on a cluster, as a job of Ray Data over shards; what a shard is and when it is finished is as elsewhere."""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from understill.engines.ray import connected
from understill.errors import Problem, UserError
from understill.inference.labelling import Labeller
from understill.inference.shards import LabelJob, Shard, try_shard
from understill.inference.stream import Predicted


@contextmanager
def labelling_on_ray(address: str | None, workers: int | None) -> Iterator[Labeller]:
    """Give what labels shards by so many workers of a cluster, or by one on each of its GPUs, or of its cores."""
    with connected(address) as ray:
        try:
            importlib.import_module("ray.data")
        except ImportError as error:
            what = f"labelling on Ray needs {error.name}, which is not installed"
            raise UserError(f'{what} → pip install "understill[ray]"') from None
        yield partial(_label, ray, workers)


def _label(
    ray: Any, workers: int | None, job: LabelJob, shards: Sequence[Shard], count: Callable[[int], None]
) -> Iterator[tuple[Shard, Predicted | Problem]]:
    """Label shards by actors that keep the model; a lost one is begun again, and so is its shard."""
    there = ray.cluster_resources()
    gpus = int(job.device in ("auto", "cuda") and there.get("GPU", 0) >= 1)
    most = workers or int(there["GPU"] if gpus else there.get("CPU", 1))
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # progress is shown by our own events
    plain = replace(job, **{name: getattr(job, name).resolve() for name in ("model", "source", "target")})
    plain.facts  # noqa: B018 what decides the result is found out here, once
    full = [Shard(*(path.resolve() for path in (shard.source, shard.target, shard.record))) for shard in shards]
    numbers = ray.data.from_items(list(range(len(shards))), override_num_blocks=len(shards))
    rows = numbers.map(
        _ShardLabeller,
        fn_constructor_args=(plain, full, bool(gpus)),
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(shards))),
        num_cpus=1,
        num_gpus=gpus,
    )
    for row in rows.iter_rows():
        outcome = _read(row)
        count(outcome.rows if isinstance(outcome, Predicted) else 0)
        yield shards[row["number"]], outcome


class _ShardLabeller:
    """Labels shards by their numbers, in a worker; what comes of one is sent as plain values."""

    def __init__(self, job: LabelJob, shards: Sequence[Shard], gpu: bool) -> None:
        os.environ.setdefault("RAYON_NUM_THREADS", "1")  # of the tokeniser: a worker has one core
        self.job, self.shards = (job if gpu else replace(job, device="cpu")), shards
        self.job.__dict__["facts"] = job.facts

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        outcome = try_shard(self.job, self.shards[row["item"]], lambda rows: None, threads=1)
        return {
            "number": row["item"],
            "labelled": isinstance(outcome, Predicted),
            "outcome": json.dumps(asdict(outcome)),
        }


def _read(row: dict[str, Any]) -> Predicted | Problem:
    values = json.loads(row["outcome"])
    if not row["labelled"]:
        return Problem(**values)
    faults = tuple(Problem(**each) for each in values["faults"])
    return Predicted(values["rows"], values["unanswered"], tuple(values["tasks"]), faults)
