"""The clock: models take turns over the same texts, in a random order in every round, so that noise hits them alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understill.events import Measuring, Watch, silent

#: A text, or a pair.
Text = str | tuple[str, str]
#: What answers texts.
Ask = Callable[[Sequence[Text]], object]
#: What answers texts and returns the seconds of each part of that.
Run = Callable[[Sequence[Text]], Sequence[float]]
#: Seconds, [models, rounds or single texts, parts].
Seconds = NDArray[np.float64]


def split_pairs(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """Return the first texts, and the second ones where they are pairs."""
    second = [text[1] for text in texts if not isinstance(text, str)]
    return [text if isinstance(text, str) else text[0] for text in texts], second or None


def seconds_of(ask: Ask, texts: Sequence[Text]) -> float:
    """Ask about texts, and return how long that took."""
    start = time.perf_counter()
    ask(texts)
    return time.perf_counter() - start


def timed(ask: Ask) -> Run:
    """Return a run that asks, and has its seconds as the only part."""
    return lambda texts: [seconds_of(ask, texts)]


# Statistics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency:
    """Seconds that a single text takes."""

    median: float
    p95: float
    p99: float


def latency_of(seconds: ArrayLike) -> Latency:
    """Return the percentiles of the seconds of many single texts."""
    values = np.asarray(seconds, np.float64)
    if not len(values):
        return Latency(math.nan, math.nan, math.nan)
    return Latency(*(float(value) for value in np.percentile(values, [50, 95, 99])))


@dataclass(frozen=True)
class BoundedValue:
    """A number with a low and a high end."""

    value: float
    low: float
    high: float


def spread(values: NDArray[np.float64]) -> BoundedValue:
    """Return the median of rounds with the lowest and the highest of them."""
    return BoundedValue(float(np.median(values)), float(values.min()), float(values.max()))


def t_interval(values: NDArray[np.float64]) -> BoundedValue:
    """Return the geometric mean of rounds with its 95 % t interval: factors are as likely twice as half."""
    from scipy.special import stdtrit  # exports are timed where it is not installed

    logs = np.log(values)
    middle = float(logs.mean())
    if len(logs) < 2:
        return BoundedValue(math.exp(middle), 0.0, math.inf)
    reach = float(stdtrit(len(logs) - 1, 0.975) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return BoundedValue(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


@dataclass(frozen=True)
class Timings:
    """The times of one model."""

    name: str
    texts: int
    seconds: Mapping[str, tuple[float, ...]]  # for all texts, by part and round
    latency: Mapping[str, Latency]  # of single texts, by part

    def rates(self, part: str) -> NDArray[np.float64]:
        """Return the texts per second of a part, round by round."""
        return self.texts / np.array(self.seconds[part])

    def rate(self, part: str) -> BoundedValue:
        """Return the texts per second of a part with their 95 % interval."""
        return t_interval(self.rates(part))

    def times_as_fast(self, reference: Timings, part: str) -> BoundedValue:
        """Return how many times as many texts it does in a second, of rounds in which both took turns."""
        return t_interval(self.rates(part) / reference.rates(part))


# Turns ----------------------------------------------------------------------------------------------------------------


class Turns:
    """Models that take turns; `watch` gets an event for each turn."""

    def __init__(self, names: Sequence[str], watch: Watch = silent) -> None:
        self.names, self.watch = names, watch
        self.done = self.total = 0
        self.generator = np.random.default_rng(0)

    def tell(self, place: int, what: str) -> None:
        """Tell that it is the turn of a model."""
        self.watch(Measuring(self.names[place], what, self.done, self.total))
        self.done += 1

    def many(
        self,
        runs: Sequence[Run],
        texts: Sequence[Sequence[Text]],
        rounds: int,
        repeats: Sequence[int] | None = None,
        part: str = "",
    ) -> Seconds:
        """Return the seconds that each model takes for its texts, the mean of its repeats in each round."""
        seconds: list[list[NDArray[np.float64]]] = [[] for _ in runs]
        for number in range(rounds):
            for place in self.generator.permutation(len(runs)).tolist():
                self.tell(place, f"{part}, round {number + 1} of {rounds}")
                passes = [runs[place](texts[place]) for _ in range(repeats[place] if repeats else 1)]
                seconds[place].append(np.mean(passes, axis=0))
        return np.array(seconds)

    def single(self, runs: Sequence[Run], texts: Sequence[Text], count: int, group: int = 1, part: str = "") -> Seconds:
        """Return the seconds of single texts, the same ones for each model.

        In a group, a model has one text to warm up: the threads of the one before take a while to come to rest.
        """
        seconds: list[list[Sequence[float]]] = [[] for _ in runs]
        for numbers in self.generator.integers(len(texts), size=(count // group, group)).tolist():
            for place in self.generator.permutation(len(runs)).tolist():
                self.tell(place, f"{part}, single texts")
                if group > 1:
                    runs[place](texts[:1])
                seconds[place] += [runs[place]([texts[number]]) for number in numbers]
        return np.array(seconds)


def time_answers(ask: Ask, texts: Sequence[Text]) -> tuple[Latency, BoundedValue]:
    """Return the latency of one text, and how many texts per second are answered at once."""
    ask(texts[:1])
    turns, run = Turns([""]), timed(ask)
    single, many = turns.single([run], texts, 30), turns.many([run], [texts], 3)
    return latency_of(single[0, :, 0]), t_interval(len(texts) / many[0, :, 0])
