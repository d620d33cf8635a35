"""ONNX: an exported folder that answers for texts, one or millions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understill.atomic import read_facts, refuse_incomplete
from understill.errors import ModelError, UserError, no_panic
from understill.inference.cores import cores
from understill.inference.predictor import Predictions, Predictor
from understill.inference.truncation import RowTokenizer, joined
from understill.inference.word_cache import Encoded
from understill.tasks import Task
from understill.tasks.task import tasks_in

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 2
#: What an exported folder holds, beside its README.
MANIFEST, GRAPH, TOKENIZER = "understill.json", "model.onnx", "tokenizer.json"
#: The inputs that a graph may have: token ids [rows, length], lengths [rows], and where second texts begin [rows].
INPUTS = ("ids", "lengths", "second")
#: Texts that are tokenised at once: enough for all cores, few enough for the memory that they take meanwhile.
BLOCK = 4096
#: Tokens of a batch, padding included: networks of every kind went fastest with 256 to 512.
TOKENS = 256
#: The fused kernel takes several times as long as the two that it replaces.
SLOW = ("SkipLayerNormFusion",)

Ints = NDArray[np.int64]


def output_name(task: str) -> str:
    """Name a task's output of the graph."""
    return f"logits_{task}"


def is_export(folder: Path) -> bool:
    """Tell whether a folder is an ONNX export, as its manifest says; its graph may be missing."""
    if not (folder / MANIFEST).is_file() or (folder / GRAPH).is_file():
        return (folder / MANIFEST).is_file()
    try:
        return "truncation_side" in read_facts(folder / MANIFEST)
    except UserError:
        return False


class OnnxModel(Predictor):
    """An exported model, ready to answer."""

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            fix = 'pip install "understill[onnx]", or onnxruntime, tokenizers and numpy alone'
            raise UserError(f"{folder} needs {error.name}, which is not installed → {fix}") from None
        self.source = folder
        refuse_incomplete(folder, (MANIFEST, GRAPH, TOKENIZER))
        facts = read_facts(folder / MANIFEST)
        if facts.get("format") != FORMAT:
            raise UserError(f"{folder}: format {facts.get('format')} is not known to this version of understill")
        try:
            self.tasks, self.max_lengths = tasks_in(facts)
            self.pad, side = int(facts["pad"]), str(facts["truncation_side"])
            self.weights = str(facts.get("weights", ""))  # float32 or int8; older exports have no such key
            split_special = bool(facts["split_special_tokens"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UserError(f"{folder / MANIFEST}: broken: {type(error).__name__}: {error}") from None
        if threads is not None and threads < 1:
            raise UserError(f"threads={threads}: a model needs at least one → write 1 or more, or leave it out")
        self.threads = threads or cores()
        self.session = _open(onnxruntime, folder / GRAPH)
        self.asks = [each.name for each in self.session.get_inputs()]
        self._refuse_misfit()
        with no_panic(folder / TOKENIZER):
            self.tokenizer = _tokenizer(Tokenizer, folder / TOKENIZER, split_special)
            self.row_tokenizer = RowTokenizer(self.tokenizer, side)

    def _refuse_misfit(self) -> None:
        """Refuse a graph that has not an output of the right size for every task of the manifest."""
        widths = {each.name: each.shape[-1] for each in self.session.get_outputs() if each.shape}
        for task in self.tasks:
            if (width := widths.get(output_name(task.name))) != task.outputs:
                has = f"{width} outputs" if width else "none"
                what = f"{task.name} has {task.outputs} outputs in {MANIFEST}, and {has} in {GRAPH}"
                raise UserError(f"{self.source}: {what} → copy the whole folder again")
        if strange := set(self.asks) - set(INPUTS):
            raise UserError(f"{self.source / GRAPH} wants {min(strange)}, which is no input of an export")

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads that each run the graph by themselves."""
        return ThreadPoolExecutor(self.threads, "understill")

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> dict[str, Predictions]:
        """Return the logits of each task for texts, or for pairs of them.

        All tasks are answered in one pass, save those that would cut a text shorter than others do.
        """
        rows: Sequence[Any] = texts if pairs is None else list(zip(texts, pairs, strict=True))
        predictions: dict[str, Predictions] = {}
        most = max((self.max_lengths[task.name] for task in tasks), default=0)
        whole = self.tokenise(rows, most)
        longest = int(whole.lengths.max(initial=0))
        cuts = {task.name: min(self.max_lengths[task.name], longest) for task in tasks}
        for length in set(cuts.values()):
            own = [task for task in tasks if cuts[task.name] == length]
            logits = {task.name: np.empty((len(rows), task.outputs), np.float32) for task in own}
            tokens = whole if length == longest else self.tokenise(rows, length)
            batches = self._batches(tokens)
            answer = partial(self._answer, tokens, np.cumsum(tokens.lengths) - tokens.lengths, logits)
            list(self.pool.map(answer, batches) if len(batches) > 1 else map(answer, batches))
            predictions |= {task.name: Predictions(task, logits[task.name]) for task in own}
        return {task.name: predictions[task.name] for task in tasks}

    def _answer(self, tokens: Encoded, starts: Ints, logits: Mapping[str, NDArray[np.float32]], places: Ints) -> None:
        """Write the logits of the rows at some places, padded to the longest of them; `starts` is where rows begin."""
        cells = np.arange(max(1, int(tokens.lengths[places].max())))
        there = cells < tokens.lengths[places, None]
        padded = np.full(there.shape, self.pad, np.int64)
        padded[there] = tokens.ids[(starts[places, None] + cells)[there]]
        feed = dict(zip(INPUTS, (padded, tokens.lengths[places], tokens.second[places]), strict=True))
        try:
            answers = self.session.run([output_name(name) for name in logits], {name: feed[name] for name in self.asks})
        except Exception as error:  # onnxruntime has classes of its own
            raise ModelError(f"{self.source / GRAPH} cannot answer: {str(error).splitlines()[0]}") from error
        for own, answer in zip(logits.values(), answers, strict=True):
            own[places] = answer

    def _batches(self, tokens: Encoded) -> list[Ints]:
        """Return the places of rows that are answered together: of like lengths, longest first, some for each core."""
        order = np.argsort(-tokens.lengths, kind="stable")
        sizes = np.maximum(tokens.lengths[order], 1)
        room = min(TOKENS, -(-int(sizes.sum()) // self.threads))
        batches, first = [], 0
        while first < len(order):
            rows = max(1, room // int(sizes[first]))
            batches.append(order[first : first + rows])
            first += rows
        return batches

    def tokenise(self, rows: Sequence[Any], max_length: int) -> Encoded:
        """Return the tokens of texts, or of pairs, at most so many of each."""
        with no_panic(self.source, ModelError):
            blocks = (rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK))
            return joined([self.row_tokenizer(block, max_length) for block in blocks])


def _open(library: Any, path: Path) -> Any:
    """Open a graph for one core to a batch: batches side by side go faster than all cores at one of them."""
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised anyway
    try:
        return library.InferenceSession(
            path, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(SLOW)
        )
    except Exception as error:  # onnxruntime has classes of its own for what a file may lack
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _tokenizer(kind: type[Tokenizer], path: Path, split_special: bool) -> Tokenizer:
    try:
        # from_file would read while it holds the interpreter's lock, and a server could not answer meanwhile.
        tokenizer: Tokenizer = kind.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if max(tokenizer.get_vocab().values(), default=0) >= 2**31:
        raise UserError(f"{path} cannot be read: it has ids that no graph has")
    tokenizer.encode_special_tokens = split_special
    return tokenizer
