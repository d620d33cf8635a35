"""Efficiency: how large, how heavy and how fast torch models are on this machine, measured side by side."""

from __future__ import annotations

import ctypes
import gc
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from understill.bench.clock import Seconds, Text, Timings, Turns, latency_of
from understill.data.batch import EVERY, in_order
from understill.data.tokens import TextEncoder, Tokens
from understill.errors import UserError
from understill.evaluate.predict import predict_all
from understill.models.folder import WEIGHTS, ModelFolder
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder

#: What is timed: the model over tokens that are there already, and all that lies between texts and answers.
PARTS = ("model", "text to answer")
#: Where a model gets a share of the texts, these come in runs of equal lengths, and so many are a batch.
RUN = 16


@dataclass(frozen=True, eq=False)
class TimedModel:
    """A model to be measured, with its tokeniser."""

    name: str
    model: MultiTaskModel
    encode: TextEncoder
    max_length: int
    file: Path | None = None  # its weights; where there is none, their size is that of the numbers
    exact: bool = False  # in the precision of its weights, and not in bfloat16, on a GPU
    sentences: int | None = None  # about so many of those given, for models that would take too long

    def seconds(self, texts: Sequence[Text], batch: int) -> tuple[float, float]:
        """Answer texts once; return the seconds of the model, and of the whole."""
        start = self._now()
        tokens = self.encode(texts, self.max_length)
        middle = time.perf_counter()
        self.answer(tokens, batch)
        end = self._now()
        return end - middle, end - start

    def answer(self, tokens: Tokens, batch: int) -> None:
        """Answer all tasks for texts whose tokens are there."""
        predict_all(self.model, tokens, self.model.tasks, batch, exact=self.exact)

    def _now(self) -> float:
        """Read the clock once the model's device has done all it was given."""
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()


@dataclass(frozen=True)
class Efficiency(Timings):
    """The sizes and times of one model."""

    device: str
    precision: str
    parameters: int
    embeddings: int  # those of them that are vectors of words or pieces
    file_bytes: int
    flops: float  # of one text, on average: of products of matrices alone, a multiplication and an addition each
    peak_bytes: int | None  # weights and activations; None where the system does not report it
    batch: int


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
) -> list[Efficiency]:
    """Measure models that take turns on a device.

    Throughput is that of `predict_all` over all texts, latency that of a single one of them, `singles` times.
    """
    if not texts:
        raise UserError("there are no texts to measure with")
    shares = [_share(texts, each.sentences) for each in candidates]
    batches = [min(batch, RUN) if len(share) < len(texts) else batch for share in shares]
    peaks = [_peak(*each, device) for each in zip(candidates, shares, batches, strict=True)]
    turns = Turns([each.name for each in candidates])
    runs = [partial(each.seconds, batch=size) for each, size in zip(candidates, batches, strict=True)]
    many = turns.many(runs, shares, rounds)
    single = turns.single([partial(each.seconds, batch=1) for each in candidates], texts, singles)
    return [
        Efficiency(
            name=each.name,
            texts=len(shares[place]),
            seconds={part: tuple(times.tolist()) for part, times in _by_part(many[place])},
            latency={part: latency_of(times) for part, times in _by_part(single[place])},
            device=device,
            precision=_precision(each, device),
            parameters=sum(weight.numel() for weight in each.model.parameters()),
            embeddings=embeddings(each.model),
            file_bytes=each.file.stat().st_size if each.file else _bytes(each.model),
            flops=flops(each, _share(shares[place], 32)),
            peak_bytes=peaks[place],
            batch=batches[place],
        )
        for place, each in enumerate(candidates)
    ]


def look(candidate: TimedModel, texts: Sequence[Text], device: str, batch: int) -> float:
    """Return about how many seconds a text takes, from answering a few of them once."""
    candidate.model.to(device).eval()
    candidate.seconds(texts[:1], 1)  # the first call has more to do than any other
    return candidate.seconds(texts, batch)[1] / len(texts)


def _by_part(seconds: Seconds) -> zip[tuple[str, Seconds]]:
    """Return the times of each part; `seconds` is [times, parts]."""
    return zip(PARTS, seconds.reshape(-1, len(PARTS)).T, strict=True)


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
        warnings.catch_warnings(action="ignore"),  # oneDNN warns of settings that are not changed here
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=False),
        torch.backends.cudnn.flags(enabled=False),
        FlopCounterMode(display=False) as counter,
    ):
        for piece in in_order(tokens, EVERY, 1, sizes=range(1, candidate.max_length + 1)):
            model(piece.to(device))
    return float(counter.get_total_flops()) / len(texts)


def _precision(candidate: TimedModel, device: str) -> str:
    if device != "cuda" or candidate.exact or not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp32"
    return "fp16" if candidate.model.light else "bf16"


# Memory ---------------------------------------------------------------------------------------------------------------


def _bytes(model: MultiTaskModel) -> int:
    return sum(value.numel() * value.element_size() for value in model.state_dict().values())


def _peak(candidate: TimedModel, texts: Sequence[Text], batch: int, device: str) -> int | None:
    """Warm a model up; return its weights and the most memory that answering all texts took beside them."""
    candidate.model.to(device).eval()
    tokens, cuda = candidate.encode(texts, candidate.max_length), device == "cuda"
    before = _cuda_memory() if cuda else _resident_memory()
    candidate.answer(tokens, batch)
    after = int(torch.cuda.max_memory_allocated()) if cuda else _status("VmHWM")
    candidate.seconds(texts[:1], 1)
    return None if before is None or after is None else _bytes(candidate.model) + max(0, after - before)


def _cuda_memory() -> int:
    """Return what is allocated, and reset its high-water mark."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def _resident_memory() -> int | None:
    """Return the resident memory, and reset its high-water mark."""
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, and not be counted
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
