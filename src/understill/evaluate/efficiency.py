"""Efficiency: how large, how heavy and how fast models are on this machine, measured side by side."""

from __future__ import annotations

import ctypes
import gc
import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from understill.data.batch import EVERY, in_order
from understill.data.tokens import TextEncoder, Tokens
from understill.errors import UserError
from understill.evaluate.clock import Latency, Text, latency_of, seconds_of
from understill.evaluate.predict import predict_all
from understill.models.folder import WEIGHTS, ModelFolder
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder

#: What is timed: the model over tokens that are there already, and all that lies between texts and answers.
PARTS = ("model", "text to answer")
#: Where a model gets a share of the texts, these come in runs of equal lengths, and so many are a batch.
RUN = 16
#: Seconds of tokenising, and of the model.
Round = tuple[float, float]


@dataclass(frozen=True, eq=False)
class TimedModel:
    """A model to be measured, with what its texts are read by."""

    name: str
    model: MultiTaskModel
    encode: TextEncoder
    max_length: int
    file: Path | None = None  # its weights; where there is none, their size is that of the numbers
    exact: bool = False  # in the precision of its weights, and not in bfloat16, on a GPU
    sentences: int | None = None  # about so many of those given, for models that would take too long


@dataclass(frozen=True)
class BoundedValue:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Efficiency:
    """What was measured of one model."""

    name: str
    device: str
    precision: str
    parameters: int
    embeddings: int  # those of them that are vectors of words or pieces
    file_bytes: int
    flops: float  # of one text, on average: of products of matrices alone, a multiplication and an addition each
    peak_bytes: int | None  # weights and what answering takes beside them; None where the machine does not tell
    batch: int
    sentences: int
    latency: dict[str, Latency]  # by part
    seconds: dict[str, tuple[float, ...]]  # by part, of each round

    def rate(self, part: str) -> BoundedValue:
        """Return the texts per second of a part."""
        return _interval(self.sentences / np.array(self.seconds[part]))

    def times_as_fast(self, reference: Efficiency, part: str) -> BoundedValue:
        """Return how many times as many texts it does in a second, of rounds in which both took turns."""
        mine, other = (each.sentences / np.array(each.seconds[part]) for each in (self, reference))
        return _interval(mine / other)


def of_folder(name: str, folder: ModelFolder, pair: bool = False) -> TimedModel:
    """Return a loaded model folder as a candidate, for its tasks that read one text or two."""
    lengths = [folder.max_lengths[task.name] for task in folder.tasks if task.pair == pair]
    if not lengths:
        raise UserError(f"{folder.path} has no task that reads {'two texts' if pair else 'one text'}")
    return TimedModel(name, folder.model, TextEncoder(folder.tokenizer), max(lengths), folder.path / WEIGHTS)


def measure(
    candidates: Sequence[TimedModel],
    texts: Sequence[Text],
    device: str,
    *,
    batch: int = 512,
    rounds: int = 5,
    singles: int = 100,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Efficiency]:
    """Measure models on a device: all take turns, in a random order in every round, so that noise hits them alike.

    Throughput is that of `predict_all` over all texts, latency that of a single one of them, `singles` times.
    """
    if not texts:
        raise UserError("there are no texts to measure with")
    generator = np.random.default_rng(seed)
    tell = progress or (lambda what: None)
    own, peaks, batches = [], [], []
    for each in candidates:
        tell(f"{each.name}: warm-up")
        each.model.to(device).eval()
        own.append(_share(texts, each.sentences))
        batches.append(min(batch, RUN) if len(own[-1]) < len(texts) else batch)
        peaks.append(_peak(each, own[-1], batches[-1], device))
        _round(each, own[-1][:1], 1)
    many: list[list[Round]] = [[] for _ in candidates]
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        for place in generator.permutation(len(candidates)).tolist():
            many[place].append(_round(candidates[place], own[place], batches[place]))
    single: list[list[Round]] = [[] for _ in candidates]
    tell("single texts")
    for number in generator.integers(len(texts), size=singles).tolist():
        for place in generator.permutation(len(candidates)).tolist():
            single[place].append(_round(candidates[place], [texts[number]], 1))
    return [
        _result(each, own[place], peaks[place], batches[place], many[place], single[place], device)
        for place, each in enumerate(candidates)
    ]


def time_answers(
    ask: Callable[[Sequence[Text]], object], texts: Sequence[Text], *, rounds: int = 3, singles: int = 30
) -> tuple[Latency, BoundedValue]:
    """Return what one text takes, and how many texts per second are answered at once, by anything that answers."""
    ask(texts[:1])
    single = [seconds_of(ask, [texts[number % len(texts)]]) for number in range(singles)]
    many = [len(texts) / seconds_of(ask, texts) for _ in range(rounds)]
    return latency_of(single), _interval(np.array(many))


def _share(texts: Sequence[Text], count: int | None) -> list[Text]:
    """Return texts of all lengths alike: runs of neighbours in the order of length.

    A few texts drawn at random would be padded far more than all of them are, which are sorted.
    """
    if count is None or count >= len(texts):
        return list(texts)
    ordered = sorted(texts, key=lambda text: len(text) if isinstance(text, str) else sum(map(len, text)))
    run = min(RUN, count)
    middles = (np.arange(count // run) + 0.5) * len(texts) / (count // run)
    return [text for middle in middles for text in ordered[int(middle - run / 2) :][:run]]


def look(candidate: TimedModel, texts: Sequence[Text], device: str, batch: int) -> float:
    """Return about how many seconds a text takes, from answering a few of them once."""
    candidate.model.to(device).eval()
    _round(candidate, texts[:1], 1)  # the first call has more to do than any other
    return sum(_round(candidate, texts, batch)) / len(texts)


def _result(
    candidate: TimedModel,
    texts: Sequence[Text],
    peak: int | None,
    batch: int,
    many: Sequence[Round],
    single: Sequence[Round],
    device: str,
) -> Efficiency:
    model = candidate.model
    return Efficiency(
        name=candidate.name,
        device=device,
        precision=_precision(candidate, device),
        parameters=sum(weight.numel() for weight in model.parameters()),
        embeddings=embeddings(model),
        file_bytes=candidate.file.stat().st_size if candidate.file else _bytes(model),
        flops=flops(candidate, _share(texts, 32)),
        peak_bytes=peak,
        batch=batch,
        sentences=len(texts),
        latency={part: latency_of(times.tolist()) for part, times in _parts(single).items()},
        seconds={part: tuple(times.tolist()) for part, times in _parts(many).items()},
    )


def embeddings(model: MultiTaskModel) -> int:
    """Return how many of a model's parameters are vectors of words or pieces; a product never meets them."""
    if isinstance(model.encoder, WordEncoder):
        return sum(channel.weight.numel() for channel in model.encoder.network.words.channels)
    return sum(weight.numel() for weight in model.encoder.network.get_input_embeddings().parameters())


@torch.inference_mode()
def flops(candidate: TimedModel, texts: Sequence[Text]) -> float:
    """Return the mean operations of one text by itself, as the network is written down: nothing padded or shared."""
    tokens = candidate.encode(texts, candidate.max_length)
    model = candidate.model
    device = next(model.parameters()).device
    # Libraries' own LSTMs and attention are closed to the counter; torch's plain ones are products that it sees.
    with (
        warnings.catch_warnings(action="ignore"),  # oneDNN speaks of settings that are not changed here
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=False),
        torch.backends.cudnn.flags(enabled=False),
        FlopCounterMode(display=False) as counter,
    ):
        for piece in in_order(tokens, EVERY, 1, sizes=range(1, candidate.max_length + 1)):
            model(piece.to(device))
    return float(counter.get_total_flops()) / len(texts)


def _round(candidate: TimedModel, texts: Sequence[Text], batch: int) -> Round:
    """Answer texts once; return the seconds of tokenising and of the model."""
    start = _now(candidate.model)
    tokens = candidate.encode(texts, candidate.max_length)
    middle = time.perf_counter()
    _answer(candidate, tokens, batch)
    return middle - start, _now(candidate.model) - middle


def _answer(candidate: TimedModel, tokens: Tokens, batch: int) -> None:
    predict_all(candidate.model, tokens, candidate.model.tasks, batch, exact=candidate.exact)


def _now(model: MultiTaskModel) -> float:
    """Read the clock once the model's device has done all it was given."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _parts(times: Sequence[Round]) -> dict[str, NDArray[np.float64]]:
    tokenising, model = np.array(times, np.float64).reshape(-1, 2).T
    return dict(zip(PARTS, (model, tokenising + model), strict=True))


def _interval(values: NDArray[np.float64]) -> BoundedValue:
    """Return the geometric mean of rounds with its t interval: factors are as likely twice as half."""
    logs = np.log(values)
    middle = float(logs.mean())
    if len(logs) < 2:
        return BoundedValue(math.exp(middle), 0.0, math.inf)
    reach = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return BoundedValue(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def _precision(candidate: TimedModel, device: str) -> str:
    if device != "cuda" or candidate.exact or not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp32"
    return "fp16" if candidate.model.light else "bf16"


# Memory ---------------------------------------------------------------------------------------------------------------


def _bytes(model: MultiTaskModel) -> int:
    return sum(value.numel() * value.element_size() for value in model.state_dict().values())


def _peak(candidate: TimedModel, texts: Sequence[Text], batch: int, device: str) -> int | None:
    """Answer all texts; return the weights and the most memory that this took beside them."""
    tokens = candidate.encode(texts, candidate.max_length)
    begin, most = _cuda_meter() if device == "cuda" else _linux_meter()
    before = begin()
    _answer(candidate, tokens, batch)
    after = most()
    return None if before is None or after is None else _bytes(candidate.model) + max(0, after - before)


Meter = tuple[Callable[[], int | None], Callable[[], int | None]]


def _cuda_meter() -> Meter:
    def begin() -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())

    return begin, lambda: int(torch.cuda.max_memory_allocated())


def _linux_meter() -> Meter:
    """Return the resident memory, and the most there was since; Linux forgets the latter when it is told to."""

    def begin() -> int | None:
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, and not be counted
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return None
        return _status("VmRSS")

    return begin, partial(_status, "VmHWM")


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
