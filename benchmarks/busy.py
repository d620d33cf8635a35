"""How fast training goes beside another busy process: threads that spin while they wait, or soon sleep, or one alone.

    python3 benchmarks/busy.py --out busy.json

Each variant is a process of its own, since OpenMP reads its settings once, and trains the same encoder on the same
made-up rows: batches of 32, about 32 tokens to a row. They take turns, alone and then beside a program that only
counts, which is started and ended here; the share that is left is that of the same round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from _side_by_side import ENDLESS, Ours, common_options, our_model, show, write
from understill.__main__ import WAITING
from understill.data.batch import Stream
from understill.data.batches import Batches
from understill.data.tokens import Tokens
from understill.losses.fused import FusedObjective
from understill.recipe.schema import Machine, Training
from understill.tasks import Task
from understill.train.device import make_accelerator

ROWS, BATCH, LENGTH = 2048, 32, 32
TASK = Task("made-up", "classification", ("text",), "label", ("no", "yes"))
#: What each variant's process finds in its environment.
VARIANTS = {
    "spin": {},
    "soon sleep": WAITING,
    "sleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
SETTINGS = {*WAITING, "OMP_WAIT_POLICY", "OMP_NUM_THREADS"}


def some_tokens(most: int) -> Tokens:
    """Return rows of random tokens, a few more or less than 32 to a row."""
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(LENGTH - 4, LENGTH + 5, ROWS))])
    ids = random.integers(most // 2, most, offsets[-1]).astype(np.int32)
    gold = random.integers(0, 2, ROWS).astype(np.float32)
    return Tokens(Path("nowhere"), ids, offsets, np.diff(offsets).astype(np.uint16), gold, LENGTH + 4, 0)


def work(options: argparse.Namespace) -> None:
    """Train for a burst whenever a line comes in, and say how many rows and seconds that were."""
    training = Training(steps=ENDLESS, batch=BATCH, lr=1e-4)
    model = our_model(options.encoder, [TASK], options.layers, LENGTH + 4)
    batches = Batches([Stream(0, [some_tokens(model.encoder.config.vocab_size)])], batch=BATCH, seed=0)
    loop = Ours(
        model,
        FusedObjective([TASK], model.spec.regression),
        batches,
        training,
        make_accelerator(Machine(device="cpu"), training.precision),
        limit=1,
    )
    for line in sys.stdin:
        rows = seconds = 0.0
        while seconds < float(line):
            more = loop()
            rows, seconds = rows + more[0], seconds + more[1]
        print(rows, seconds, flush=True)


class Worker:
    """A process that trains when it is asked to."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        command = [sys.executable, __file__, "--work", "--encoder", options.encoder]
        command += ["--layers", str(options.layers)] if options.layers else []
        self.process = subprocess.Popen(
            command, env={**kept, **settings}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, seconds: float) -> float:
        """Return rows per second over so many seconds."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        rows, taken = map(float, self.process.stdout.readline().split())
        return rows / taken

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Let the variants take turns, alone and beside busy processes."""
    workers = {name: Worker(options, settings) for name, settings in VARIANTS.items()}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
    try:
        for worker in workers.values():
            worker.rate(options.seconds)  # a warm-up
        for _ in range(options.rounds):
            for name, worker in workers.items():
                alone = worker.rate(options.seconds)
                with busy(options.processes):
                    rates[name].append((alone, worker.rate(options.seconds)))
    finally:
        for worker in workers.values():
            worker.close()
    return [
        {
            "variant": name,
            "alone": statistics.median(alone for alone, _ in pairs),
            "beside": statistics.median(beside for _, beside in pairs),
            "share": statistics.median(beside / alone for alone, beside in pairs),
            "rounds": pairs,
        }
        for name, pairs in rates.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--layers", type=int, help="keep only so many layers of the encoder; 2 with --small")
    parser.add_argument("--seconds", type=float, help="of a burst; 3, and 1 with --small")
    parser.add_argument("--processes", type=int, default=1, help="busy processes beside the training")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.encoder = options.encoder or "minilm"
    if options.work:
        work(options)
        return
    options.layers = options.layers or (2 if options.small else None)
    options.seconds = options.seconds or (1.0 if options.small else 3.0)
    result = measure(options)
    first = result[0]
    lines = [
        [
            each["variant"], f"{each['alone']:,.0f}", f"{each['beside']:,.0f}", f"{each['share']:.0%}",
            f"{each['alone'] / first['alone']:.2f}", f"{each['beside'] / first['beside']:.2f}",
        ]
        for each in result
    ]  # fmt: skip
    beside = f"beside {options.processes} busy"
    columns = [
        "variant",
        "rows/s alone",
        f"rows/s {beside}",
        "share left",
        "× spinning, alone",
        f"× spinning, {beside}",
    ]
    show("training, medians of rounds that took turns", 1, columns, lines)
    settings = {
        name: getattr(options, name) for name in ("encoder", "layers", "seconds", "processes", "rounds")
    }  # fmt: skip
    write(options.out, "cpu", settings, result)


if __name__ == "__main__":
    main()
