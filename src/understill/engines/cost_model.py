"""A plan past this machine: what a recipe would take on many GPUs, by figures that were measured on one.

docs/scale.md says where each figure comes from, and how far to trust what follows from it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understill.errors import UserError, nearest
from understill.estimate import Estimate
from understill.pipeline.graph import study_stages
from understill.pipeline.plan.parts import Study
from understill.pipeline.stage import Stage

#: Of one H200 in bf16: multiplications and additions a second, training and labelling, with `minilm`'s shape.
TRAINING, LABELLING = 1.03e14, 3.55e14
#: Tokens a second that 16 cores give it from files of text, reading and writing them included; a cautious figure.
TOKENISING = 2.0e6
#: Seconds of a step however small it is, of a stage beside its work, and of a worker until it is ready.
STEP, STAGE, START = 0.0014, 0.5, 20.0
#: Seconds that Ray takes for a task, and rows of a shard.
TASK, SHARD = 0.0014, 1_000_000
#: Bytes of Parquet for a token of text and a number; of token files for a token; in memory for a row to be learnt from.
TEXT, NUMBER, TOKEN, ROW = 2.9, 4.0, 2.0, 265.0
#: Bytes of memory that a machine is taken to have.
MEMORY = 1e11
#: Outputs of a task, where only their order of magnitude matters.
OUTPUTS = 3


@dataclass(frozen=True)
class Cluster:
    """What a plan is made for."""

    gpus: int = 8
    rows: float = 0.0  # that are to be labelled and learnt from, once
    price: float = 3.0  # of a GPU with its share of a machine, an hour

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """Read `gpus=64,rows=1e9,price=2.5`."""
        kinds, values = {"gpus": int, "rows": float, "price": float}, dict[str, float]()
        for part in text.split(","):
            name, _, value = (each.strip() for each in part.partition("="))
            if name not in kinds:
                raise UserError(f'--plan: there is no "{name}" → {nearest(name, kinds)}, as in --plan gpus=64,rows=1e9')
            try:
                values[name] = kinds[name](value)
                if not 0 < values[name] < math.inf:
                    raise ValueError
            except ValueError:
                raise UserError(f"--plan {part}: this is no number above 0 → write {name}=64") from None
        return cls(**values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cost:
    """What a part of a plan takes."""

    what: str
    hours: float  # by the clock
    gpu_hours: float
    bytes: float  # that it writes
    bound: str = ""  # what it waits for most


def scale_plan(study: Study, times: Mapping[str, Estimate], cluster: Cluster) -> list[Cost]:
    """Return what training a recipe's models takes on a cluster, and labelling and learning from so many rows."""
    stages, seconds = study_stages(study), {name: _seconds(each) for name, each in times.items()}
    clock = makespan(stages, seconds, cluster.gpus)
    busy, weights = sum(seconds.values()), sum(4.0 * each.parameters for each in times.values())
    longest = max(seconds, key=lambda name: seconds[name], default="")
    costs = [Cost(f"train {len(times)} models", clock / 3600, busy / 3600, weights, longest)]
    if cluster.rows and times:
        large = max(times.values(), key=lambda each: each.inner)
        student = next((times[name] for name in times if name.endswith("student")), large)
        costs += [label_cost(cluster, large.tokens, large.inner), learn_cost(cluster, student)]
    return costs


def _seconds(model: Estimate) -> float:
    """Return the time of a model's training on one GPU."""
    rows = model.steps * model.batch
    return max(model.steps * STEP, 6.0 * rows * model.tokens * model.inner / TRAINING) * model.odds


def makespan(stages: Sequence[Stage], seconds: Mapping[str, float], gpus: int) -> float:
    """Return when the last stage ends, if each takes one GPU as soon as one is free and what it needs is there."""
    waiting, done, now = list(stages), set[str](), 0.0
    running: list[tuple[float, str]] = []
    known = {stage.key for stage in stages}
    while waiting or running:
        ready = [stage for stage in waiting if {need for need in stage.needs if need in known} <= done]
        # Long ones first, so that none is left to run alone at the end.
        for stage in sorted(ready, key=lambda each: -seconds.get(each.name, 0.0))[: gpus - len(running)]:
            waiting.remove(stage)
            own = seconds.get(stage.name, 0.0) if stage.trains else 0.0
            heapq.heappush(running, (now + own + STAGE, stage.key))
        now, key = heapq.heappop(running)
        done.add(key)
    return now + START


def label_cost(cluster: Cluster, tokens: float, inner: int) -> Cost:
    """Return what labelling the rows takes, from text, with a shard for each task."""
    rows, shards = cluster.rows, math.ceil(cluster.rows / SHARD)
    bounds = {
        "tokenising on 16 cores for each GPU": rows * tokens / TOKENISING,
        "multiplications": 2.0 * rows * tokens * inner / LABELLING,
    }
    bound = max(bounds, key=lambda name: bounds[name])
    # The last shards do not fill all GPUs; and one process hands out all tasks.
    turns = math.ceil(shards / cluster.gpus) / (shards / cluster.gpus)
    clock = max(bounds[bound] / cluster.gpus * turns, shards * TASK) + START
    what = f"label {rows:.0e} rows in {shards:,} shards"
    written = rows * (tokens * TEXT + (OUTPUTS + 2) * NUMBER)
    return Cost(what, clock / 3600, cluster.gpus * clock / 3600, written, bound)


def learn_cost(cluster: Cluster, student: Estimate) -> Cost:
    """Return what one pass of the student over these rows takes, if it is spread evenly over all GPUs."""
    clock = 6.0 * cluster.rows * student.tokens * student.inner / TRAINING / cluster.gpus + START
    memory = cluster.rows * ROW
    bound = "multiplications" if memory < MEMORY else f"memory: {memory / 1e9:,.0f} GB on every machine"
    written = cluster.rows * (student.tokens * TOKEN + OUTPUTS * NUMBER)
    return Cost(f"learn from {cluster.rows:.0e} rows once", clock / 3600, cluster.gpus * clock / 3600, written, bound)
