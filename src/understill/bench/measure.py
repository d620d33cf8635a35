"""Measuring exports and models of any form side by side, in this process and through HTTP."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from understill.bench.clock import (
    Ask,
    BoundedValue,
    Seconds,
    Text,
    Timings,
    Turns,
    latency_of,
    seconds_of,
    spread,
    timed,
)
from understill.bench.server import CONNECTIONS, ROWS, serving
from understill.bench.subjects import PIPELINE, PIPELINE_BATCH, Subject
from understill.events import Expected, Measuring, Watch, silent
from understill.inference.cores import cores
from understill.tasks import Task

#: What is timed of each model, in this order.
TOKENS, MODEL, HTTP = "tokenising", "text to answer", "HTTP"
#: A turn lasts at least so many seconds: a quick model answers the texts several times.
TURN = 0.3
#: Single texts that are timed, and how many of them in a turn.
SINGLES, RUN = 100, 20


@dataclass(frozen=True)
class Measurement(Timings):
    """The times of one model in the form that it has; ends of a number are the lowest and the highest round."""

    form: str
    bytes: int  # of its weights on disk

    def form_in(self, part: str) -> str:
        """Return what answers in a part: a server has its own way to ask a Hugging Face folder."""
        return "torch" if part == HTTP and self.form == PIPELINE else self.form

    def rate(self, part: str) -> BoundedValue:
        """Return the texts per second of a part."""
        return spread(self.rates(part))

    def times_as_fast(self, reference: Timings, part: str) -> BoundedValue:
        """Return how many times as many texts it does in a second, of rounds in which both took turns."""
        return spread(self.rates(part) / reference.rates(part))


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
                    "model": each.name,
                    "form": each.form,
                    "bytes": each.bytes,
                    "texts_per_second": {part: each.rates(part).tolist() for part in each.seconds},
                    "milliseconds_per_text": {
                        part: {name: 1000 * value for name, value in asdict(latency).items()}
                        for part, latency in each.latency.items()
                    },
                    **({"form_of_http": each.form_in(HTTP)} if HTTP in each.seconds else {}),
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
    watch: Watch = silent,
) -> Bench:
    """Measure models with texts: tokenising alone, from text to answer, and through servers of their own."""
    names = [str(each.path) for each in subjects]
    with ExitStack() as stack:
        asks: dict[str, list[Ask]] = {
            TOKENS: [each.tokenise for each in subjects],
            MODEL: [each.ask for each in subjects],
        }
        if http:
            asks[HTTP] = []
            for place, each in enumerate(subjects):
                watch(Measuring(names[place], "starting servers", place, len(subjects)))
                asks[HTTP].append(stack.enter_context(serving(each.path, task)).ask)
        many, single = _take_times(Turns(names, watch), asks, texts, rounds)
    return Bench(
        task.name,
        len(texts),
        float(np.mean([len((text if isinstance(text, str) else " ".join(text)).split()) for text in texts])),
        rounds,
        machine(),
        tuple(
            Measurement(
                name,
                len(texts),
                {part: tuple(seconds[place, :, 0].tolist()) for part, seconds in many.items()},
                {part: latency_of(seconds[place, :, 0]) for part, seconds in single.items()},
                subject.form,
                subject.weights.stat().st_size,
            )
            for place, (name, subject) in enumerate(zip(names, subjects, strict=True))
        ),
    )


def _take_times(
    turns: Turns, asks: Mapping[str, Sequence[Ask]], texts: Sequence[Text], rounds: int
) -> tuple[dict[str, Seconds], dict[str, Seconds]]:
    """Return the seconds of all texts, and of single ones, by part."""
    models, singles = len(turns.names), [part for part in asks if part != TOKENS]
    turns.total = models * len(asks)
    repeats: dict[str, list[int]] = {part: [] for part in asks}  # how often a model answers all texts in a turn
    expected = 0.0
    for part, own in asks.items():
        for place, ask in enumerate(own):
            turns.tell(place, f"{part}, warm-up")
            ask(texts[:1])
            seconds = seconds_of(ask, texts)
            repeats[part].append(max(1, math.ceil(TURN / seconds)))
            expected += rounds * repeats[part][-1] * seconds
            expected += (SINGLES + SINGLES // RUN) * seconds_of(ask, texts[:1]) if part in singles else 0
    turns.done, turns.total = 0, models * (rounds * len(asks) + SINGLES // RUN * len(singles))
    turns.watch(Expected(expected))
    runs = {part: [timed(ask) for ask in own] for part, own in asks.items()}
    return (
        {part: turns.many(runs[part], [texts] * models, rounds, repeats[part], part) for part in asks},
        {part: turns.single(runs[part], texts, SINGLES, RUN, part) for part in singles},
    )


def machine() -> dict[str, Any]:
    """Tell what the numbers were made on."""
    versions: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": cores(),
        "processor": _processor(),
        "python": platform.python_version(),
    }
    for name in ("understill", "onnxruntime", "tokenizers", "torch", "transformers", "uvicorn"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    if "torch" in sys.modules:
        versions["torch_threads"] = sys.modules["torch"].get_num_threads()
    return versions


def _processor() -> str:
    """Return the processor's name; Linux reports more than Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
