"""The clock: how long calls take, and what many of them come to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: A text, or a pair.
Text = str | tuple[str, str]
#: Texts that `pipeline()` is told to take at once, wherever it is timed; all others choose for themselves.
PIPELINE_BATCH = 32


def apart(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """Return the first texts, and the second ones where they are pairs."""
    second = [text[1] for text in texts if not isinstance(text, str)]
    return [text if isinstance(text, str) else text[0] for text in texts], second or None


@dataclass(frozen=True)
class Latency:
    """Seconds that a single text takes."""

    median: float
    p95: float
    p99: float


def latency_of(seconds: Sequence[float]) -> Latency:
    """Return what the seconds of many single texts come to."""
    if not len(seconds):
        return Latency(math.nan, math.nan, math.nan)
    return Latency(*(float(value) for value in np.percentile(seconds, [50, 95, 99])))


def seconds_of(ask: Callable[[Sequence[Text]], object], texts: Sequence[Text]) -> float:
    """Ask about texts, and return how long that took."""
    start = time.perf_counter()
    ask(texts)
    return time.perf_counter() - start
