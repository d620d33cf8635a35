"""Measuring: models take turns, in a random order in every round, so that noise hits them alike."""

from __future__ import annotations

import math
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
from understill.bench.subjects import PIPELINE, Subject
from understill.evaluate.clock import PIPELINE_BATCH, Latency, Text, latency_of, seconds_of
from understill.events import Expected, Measuring, Watch
from understill.runtime.cores import cores
from understill.tasks import Task

#: What is timed of each model, in this order.
TOKENS, MODEL, HTTP = "tokenising", "text to answer", "HTTP"
#: A turn lasts at least so many seconds: a quick model answers the texts several times.
TURN = 0.3
#: Single texts that are timed, and how many of them in a turn: one model's threads take a while to come to rest.
SINGLES, RUN = 100, 20

Ask = Callable[[Sequence[Text]], object]


@dataclass(frozen=True)
class Spread:
    """The middle of all rounds, with the lowest and the highest of them."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """What was measured of one model."""

    model: str
    form: str
    bytes: int  # of its weights on disk
    rates: Mapping[str, tuple[float, ...]]  # texts per second, by part and round
    latency: Mapping[str, Latency]  # of single texts, by part

    def form_in(self, part: str) -> str:
        """Return what answers in a part: a server has its own way to ask a Hugging Face folder."""
        return "torch" if part == HTTP and self.form == PIPELINE else self.form

    def rate(self, part: str) -> Spread:
        """Return the texts per second of a part."""
        return _spread(self.rates[part])

    def times(self, other: Measurement, part: str) -> Spread:
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
    models: tuple[Measurement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all that was measured, with the unit in each name."""
        return {
            "task": self.task,
            "texts": self.texts,
            "words_per_text": self.words,
            "rounds": self.rounds,
            "machine": dict(self.machine),
            "models": [
                {
                    "model": each.model,
                    "form": each.form,
                    "bytes": each.bytes,
                    "texts_per_second": {part: list(rates) for part, rates in each.rates.items()},
                    "milliseconds_per_text": {
                        part: {name: 1000 * value for name, value in asdict(latency).items()}
                        for part, latency in each.latency.items()
                    },
                    **({"form_of_http": each.form_in(HTTP)} if HTTP in each.rates else {}),
                }
                for each in self.models
            ],
            "settings": {
                "pipeline_batch": PIPELINE_BATCH,
                "http_connections": CONNECTIONS,
                "http_rows": ROWS,
                "single_texts": SINGLES,
            },
        }


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
    names = [str(each.path) for each in subjects]
    watch = watch or (lambda event: None)
    with ExitStack() as stack:
        parts: dict[str, list[Ask]] = {
            TOKENS: [each.tokenise for each in subjects],
            MODEL: [each.ask for each in subjects],
        }
        if http:
            parts[HTTP] = []
            for place, each in enumerate(subjects):
                watch(Measuring(names[place], "starting servers", place, len(subjects)))
                parts[HTTP].append(stack.enter_context(serving(each.path, task)).ask)
        turns = Turns(names, parts, texts, rounds, watch)
        rates = {part: turns.many(part) for part in parts}
        singles = {part: turns.single(part) for part in parts if part != TOKENS}
    return Bench(
        task.name,
        len(texts),
        float(np.mean([len((text if isinstance(text, str) else " ".join(text)).split()) for text in texts])),
        rounds,
        machine(),
        tuple(
            Measurement(
                name,
                subject.form,
                subject.weights.stat().st_size,
                {part: tuple(found[place]) for part, found in rates.items()},
                {part: latency_of(found[place]) for part, found in singles.items()},
            )
            for place, (name, subject) in enumerate(zip(names, subjects, strict=True))
        ),
    )


class Turns:
    """Models that take turns, in each part of what is measured."""

    def __init__(
        self, names: Sequence[str], parts: Mapping[str, Sequence[Ask]], texts: Sequence[Text], rounds: int, watch: Watch
    ) -> None:
        self.names, self.parts, self.texts, self.rounds, self.watch = names, parts, texts, rounds, watch
        self.generator = np.random.default_rng(0)
        self.done, self.total = 0, len(names) * len(parts)
        self.again: dict[str, list[int]] = {}  # how often a model answers all texts in a turn
        seconds = 0.0
        for part, asks in parts.items():
            self.again[part] = []
            for place, ask in enumerate(asks):
                self._tell(place, f"{part}, warm-up")
                ask(texts[:1])
                many = seconds_of(ask, texts)
                self.again[part].append(max(1, math.ceil(TURN / many)))
                seconds += rounds * self.again[part][-1] * many
                seconds += (SINGLES + SINGLES // RUN) * seconds_of(ask, texts[:1]) if part != TOKENS else 0
        self.done = 0
        self.total = len(names) * (rounds * len(parts) + SINGLES // RUN * sum(part != TOKENS for part in parts))
        watch(Expected(seconds))

    def many(self, part: str) -> list[list[float]]:
        """Return the texts per second of each model and round."""
        asks, again = self.parts[part], self.again[part]
        found: list[list[float]] = [[] for _ in asks]
        for number in range(self.rounds):
            for place in self._order():
                self._tell(place, f"{part}, round {number + 1} of {self.rounds}")
                seconds = sum(seconds_of(asks[place], self.texts) for _ in range(again[place]))
                found[place].append(again[place] * len(self.texts) / seconds)
        return found

    def single(self, part: str) -> list[list[float]]:
        """Return the seconds of single texts, the same ones for each model."""
        asks = self.parts[part]
        found: list[list[float]] = [[] for _ in asks]
        for numbers in self.generator.integers(len(self.texts), size=(SINGLES // RUN, RUN)).tolist():
            for place in self._order():
                self._tell(place, f"{part}, single texts")
                asks[place](self.texts[:1])
                found[place] += [seconds_of(asks[place], [self.texts[number]]) for number in numbers]
        return found

    def _order(self) -> list[int]:
        """Draw who comes when in a round."""
        return [int(place) for place in self.generator.permutation(len(self.names))]

    def _tell(self, place: int, what: str) -> None:
        self.watch(Measuring(self.names[place], what, self.done, self.total))
        self.done += 1


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.median(values)), min(values), max(values))


def machine() -> dict[str, Any]:
    """Tell what the numbers were made on."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": cores(),
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
