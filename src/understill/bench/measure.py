"""Measuring: models take turns, in a random order in every round, so that noise hits them alike."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from understill.bench.server import CONNECTIONS, ROWS, serving
from understill.bench.subjects import Subject
from understill.evaluate.clock import Latency, Text, latency_of, seconds_of
from understill.ship.forms import PIPELINE_BATCH
from understill.tasks import Task

#: What is timed of each model, in this order.
TOKENS, MODEL, HTTP = "tokenising", "text to answer", "HTTP"
#: A turn lasts at least so many seconds: a quick model answers the texts several times.
TURN = 0.3
#: Single texts that are timed, and how many of them in a turn: one model's threads take a while to come to rest.
SINGLES, RUN = 100, 20

Ask = Callable[[Sequence[Text]], object]


@dataclass(frozen=True)
class Measuring:
    """A model has its turn, so far the last of so many."""

    who: str
    what: str
    turn: int
    total: int


Watch = Callable[[Measuring], None]


@dataclass(frozen=True)
class Spread:
    """The middle of all rounds, with the lowest and the highest of them."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    """What was measured of one model."""

    model: str
    form: str
    bytes: int  # of its weights on disk
    rates: Mapping[str, tuple[float, ...]]  # texts per second, by part and round
    latency: Mapping[str, Latency]  # of single texts, by part

    def rate(self, part: str) -> Spread:
        """Return the texts per second of a part."""
        return _spread(self.rates[part])

    def times(self, other: Measured, part: str) -> Spread:
        """Return how many times as many texts per second it answers, of rounds in which both took turns."""
        return _spread([mine / theirs for mine, theirs in zip(self.rates[part], other.rates[part], strict=True)])


@dataclass(frozen=True)
class Bench:
    """Models side by side."""

    task: str
    texts: int
    words: float  # of a text, or of a pair, on average
    rounds: int
    machine: Mapping[str, Any]
    models: tuple[Measured, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all that was measured."""
        settings = {"pipeline_batch": PIPELINE_BATCH, "http_connections": CONNECTIONS, "http_rows": ROWS}
        return {**asdict(self), "settings": {**settings, "single_texts": SINGLES}}


def measure(
    subjects: Sequence[Subject],
    task: Task,
    texts: Sequence[Text],
    *,
    rounds: int = 5,
    http: bool = True,
    watch: Watch | None = None,
) -> Bench:
    """Measure models with texts: tokenising alone, from text to answer, and through servers of their own."""
    generator, watch = np.random.default_rng(0), watch or (lambda turn: None)
    with ExitStack() as stack:
        parts: dict[str, list[Ask]] = {
            TOKENS: [each.tokenise for each in subjects],
            MODEL: [each.ask for each in subjects],
        }
        if http:
            parts[HTTP] = [stack.enter_context(serving(each.path, task)).ask for each in subjects]
        names = [str(each.path) for each in subjects]
        rates = {part: _many(part, names, asks, texts, rounds, generator, watch) for part, asks in parts.items()}
        singles = {
            part: _single(part, names, asks, texts, generator, watch) for part, asks in parts.items() if part != TOKENS
        }
    return Bench(
        task.name,
        len(texts),
        float(np.mean([len((text if isinstance(text, str) else " ".join(text)).split()) for text in texts])),
        rounds,
        machine(),
        tuple(
            Measured(
                name,
                subject.form,
                subject.weights.stat().st_size,
                {part: tuple(found[place]) for part, found in rates.items()},
                {part: latency_of(found[place]) for part, found in singles.items()},
            )
            for place, (name, subject) in enumerate(zip(names, subjects, strict=True))
        ),
    )


def _many(
    part: str,
    names: Sequence[str],
    asks: Sequence[Ask],
    texts: Sequence[Text],
    rounds: int,
    generator: np.random.Generator,
    watch: Watch,
) -> list[list[float]]:
    """Return the texts per second of each model and round."""
    total, turn = len(asks) * (rounds + 1), 0
    again = []
    for name, ask in zip(names, asks, strict=True):
        watch(Measuring(name, f"{part}, warm-up", turn, total))
        ask(texts[:1])
        again.append(max(1, math.ceil(TURN / seconds_of(ask, texts))))
        turn += 1
    found: list[list[float]] = [[] for _ in asks]
    for number in range(rounds):
        for place in generator.permutation(len(asks)).tolist():
            watch(Measuring(names[place], f"{part}, round {number + 1} of {rounds}", turn, total))
            seconds = sum(seconds_of(asks[place], texts) for _ in range(again[place]))
            found[place].append(again[place] * len(texts) / seconds)
            turn += 1
    return found


def _single(
    part: str,
    names: Sequence[str],
    asks: Sequence[Ask],
    texts: Sequence[Text],
    generator: np.random.Generator,
    watch: Watch,
) -> list[list[float]]:
    """Return the seconds of single texts, the same ones for each model."""
    found: list[list[float]] = [[] for _ in asks]
    drawn = generator.integers(len(texts), size=(SINGLES // RUN, RUN))
    for turn, numbers in enumerate(drawn.tolist()):
        for place in generator.permutation(len(asks)).tolist():
            watch(Measuring(names[place], f"{part}, single texts", turn, len(drawn)))
            asks[place](texts[:1])
            found[place] += [seconds_of(asks[place], [texts[number]]) for number in numbers]
    return found


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.median(values)), min(values), max(values))


def machine() -> dict[str, Any]:
    """Tell what the numbers were made on."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": platform.python_version(),
    }
    for name in ("understill", "onnxruntime", "tokenizers", "torch", "transformers", "uvicorn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if "torch" in sys.modules:
        found["torch_threads"] = sys.modules["torch"].get_num_threads()
    return found


def _processor() -> str:
    """Return the processor's name; what Linux tells is more than Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
