"""ONNX: an exported folder that answers for texts, one or millions."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understill.errors import UserError
from understill.runtime.answers import Answerer, Predictions
from understill.runtime.cutting import closing, cut
from understill.tasks import Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1
#: What an exported folder holds, beside its README.
MANIFEST, GRAPH, TOKENIZER = "understill.json", "model.onnx", "tokenizer.json"
#: What the graph may ask for: token ids [rows, length], lengths [rows], and where second texts begin [rows].
INPUTS = ("ids", "lengths", "second")
#: Texts that are tokenised at once: enough for all cores, few enough for the memory that they take meanwhile.
BLOCK = 4096

Ints = NDArray[np.int64]


def output_name(task: str) -> str:
    """Name a task's output of the graph."""
    return f"logits_{task}"


def is_export(folder: Path) -> bool:
    """Tell whether a folder is an ONNX export."""
    return (folder / GRAPH).is_file() and (folder / MANIFEST).is_file()


class OnnxModel(Answerer):
    """An exported model, ready to answer."""

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        try:
            from onnxruntime import InferenceSession, SessionOptions
            from tokenizers import Tokenizer
        except ImportError as error:
            fix = 'pip install "understill[onnx]", or onnxruntime, tokenizers and numpy alone'
            raise UserError(f"{folder} needs {error.name}, which is not installed → {fix}") from None
        self.folder = folder
        try:
            facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT:
                raise UserError(f"{folder}: format {facts['format']} is not known to this version of understill")
            self.tasks = tuple(Task.from_dict(values) for values in facts["tasks"])
            self.max_lengths = {task.name: int(facts["max_lengths"][task.name]) for task in self.tasks}
            self.batch, self.pad, self.side = int(facts["batch"]), int(facts["pad"]), str(facts["truncation_side"])
            split_special = bool(facts["split_special_tokens"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder / MANIFEST}: broken: {type(error).__name__}: {error}") from None
        options = SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.log_severity_level = 4  # it raises what it has to say
        try:
            self.session: Any = InferenceSession(folder / GRAPH, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has classes of its own for what a file may lack
            raise UserError(f"{folder / GRAPH} cannot be read: {str(error).splitlines()[0]}") from None
        self.asks = [each.name for each in self.session.get_inputs()]
        self.tokenizer = _tokenizer(Tokenizer, folder / TOKENIZER, split_special)
        self.tail = closing(self.tokenizer)

    def logits(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        tasks: Sequence[Task],
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them; `progress` is told of rows done."""
        rows: Sequence[Any] = texts if pairs is None else list(zip(texts, pairs, strict=True))
        found: dict[str, Predictions] = {}
        for length in {self.max_lengths[task.name] for task in tasks}:
            own = [task for task in tasks if self.max_lengths[task.name] == length]
            logits = {task.name: np.empty((len(rows), task.outputs), np.float32) for task in own}
            for places, feed in self._batches(rows, length):
                answers = self.session.run([output_name(task.name) for task in own], feed)
                for task, answer in zip(own, answers, strict=True):
                    logits[task.name][places] = answer
                if progress:
                    progress(len(places))
            found |= {task.name: Predictions(task, logits[task.name]) for task in own}
        return {task.name: found[task.name] for task in tasks}

    def _batches(self, rows: Sequence[Any], max_length: int) -> Iterator[tuple[Ints, dict[str, Ints]]]:
        """Give rows as padded batches with their places, longest first, so that a batch has hardly any padding."""
        ids, starts, lengths, second = self._tokenise(rows, max_length)
        order = np.argsort(-lengths, kind="stable")
        for first in range(0, len(order), self.batch):
            places = order[first : first + self.batch]
            cells = np.arange(max(1, int(lengths[places[0]])))
            there = cells < lengths[places, None]
            padded = np.full(there.shape, self.pad, np.int64)
            padded[there] = ids[(starts[places, None] + cells)[there]]
            feed = dict(zip(INPUTS, (padded, lengths[places], second[places]), strict=True))
            yield places, {name: feed[name] for name in self.asks}

    def _tokenise(self, rows: Sequence[Any], max_length: int) -> tuple[NDArray[np.int32], Ints, Ints, Ints]:
        """Return the ids of all rows in one line, where each begins, its length, and where its second text begins."""
        flat, lengths, second = [np.empty(0, np.int32)], [], []
        for first in range(0, len(rows), BLOCK):
            encodings = self.tokenizer.encode_batch_fast(list(rows[first : first + BLOCK]))
            pieces = [cut(encoding, max_length, self.side, self.tail) for encoding in encodings]
            flat.append(np.fromiter(itertools.chain.from_iterable(ids for ids, _ in pieces), np.int32))
            lengths += [len(ids) for ids, _ in pieces]
            second += [place for _, place in pieces]
        sizes = np.array(lengths, np.int64)
        return (
            np.concatenate(flat or [np.empty(0, np.int32)]),
            np.cumsum(sizes) - sizes,
            sizes,
            np.array(second, np.int64),
        )


def _tokenizer(kind: type[Tokenizer], path: Path, split_special: bool) -> Tokenizer:
    try:
        tokenizer: Tokenizer = kind.from_file(str(path))
    except Exception as error:  # tokenizers raises no other class
        raise UserError(f"{path} cannot be read: {error}") from None
    tokenizer.encode_special_tokens = split_special
    return tokenizer
