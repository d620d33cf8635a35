"""Token ids, made once per data set and tokeniser, and kept as memory-mapped arrays."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understill.artifact import Artifact
from understill.atomic import write_json
from understill.data.encode import gold_of, mask_of, texts_of, unbounded, unmasked
from understill.data.parallel_encode import encode_blocks, workers_for
from understill.data.taskdata import TaskData, blocks
from understill.data.units import spans
from understill.errors import ModelError, UserError, no_panic
from understill.inference.truncation import RowTokenizer, joined
from understill.inference.word_cache import Encoded

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

#: The file that says what the arrays hold.
FACTS = "tokens.json"
#: Rows and bytes of text handed to the tokeniser at once; together they bound the memory a build takes.
BLOCK_ROWS = 4096
BLOCK_BYTES = 2 << 20
#: Quarters of such blocks that are answered at once where processes tokenise: enough rows to fill a GPU.
PART_BLOCKS = 16


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token ids of one task's rows, one after the other, with what is needed to cut them apart."""

    folder: Path
    ids: NDArray[Any]  # flat, special tokens included; uint16 where the vocabulary fits, else int32
    offsets: NDArray[np.int64]  # [rows + 1]
    second: NDArray[np.uint16]  # [rows], first token of the second text; the row's length where there is none
    gold: NDArray[np.float32]  # [rows], class index or raw score, or [rows, numbers]; NaN where there is none
    max_length: int = 0  # no row is longer than this; 0 when not known
    pad: int = 0  # the tokeniser's id for padding

    def __len__(self) -> int:
        return len(self.second)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each row."""
        return np.diff(self.offsets).astype(np.int32)

    def take(self, rows: NDArray[np.int64]) -> Tokens:
        """Return the tokens of some rows, in memory."""
        lengths = self.lengths[rows].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = self.ids[spans(self.offsets[:-1][rows], lengths)]
        second, gold = self.second[rows], self.gold[rows]
        return replace(self, folder=Path(), ids=ids, offsets=offsets, second=second, gold=gold)


def tokenise(
    data: TaskData,
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    cache: Path,
    *,
    swapped: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Tokens:
    """Return the tokens of a data set, from the cache where it holds them, and made anew where it does not.

    The ids are those of `tokenizer(text1, text2, truncation=True, max_length=max_length)`; `swapped` turns the two
    texts round. `progress` is called with the number of rows done since its last call. The tokeniser runs on several
    threads: tokenise before forking, or set TOKENIZERS_PARALLELISM=false.
    """
    if swapped and not data.task.pair:
        raise ValueError(f"task {data.task.name} has one text; there is nothing to swap")
    if not 0 < max_length < 2**16:
        raise ValueError(f"max_length must lie between 1 and 65535, not {max_length}")
    backend = unbounded(tokenizer)
    artifact = Artifact("tokens", "", _facts(data, tokenizer, backend, max_length, swapped), cache)
    for _ in range(3):  # more than once only if another process takes the folder away as we open it
        if (tokens := _open(artifact)) is not None:
            if progress:
                progress(len(tokens))
            return tokens
        with artifact.build() as part:
            _write(part, data, backend, artifact.facts, progress)
        progress = None  # the rows are done; opening them is not work to report twice
    raise UserError(
        f"the tokens in {artifact.folder} keep changing while they are read; is another program writing there?"
    )


class TextEncoder:
    """Turns texts into tokens, in memory; it copies a tokeniser once, since to copy it for every text takes longer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        with no_panic("the model"):
            self.backend = unbounded(tokenizer)
            self.row_tokenizer = RowTokenizer(self.backend, tokenizer.truncation_side)
        self.pad = tokenizer.pad_token_id or 0

    def __call__(self, texts: Sequence[str | tuple[str, str]], max_length: int) -> Tokens:
        """Return the tokens of some texts or pairs, without gold."""
        with no_panic("the model", ModelError):
            return self._tokens(list(self._blocks(texts, max_length, workers_for(len(texts)))), max_length)

    def parts(self, texts: Sequence[str | tuple[str, str]], max_length: int) -> Iterator[Tokens]:
        """Yield the tokens of texts, of many a part at a time, while processes are busy with the next ones."""
        if (workers := workers_for(len(texts))) == 1:
            yield self(texts, max_length)
            return
        blocks = self._blocks(texts, max_length, workers)
        with no_panic("the model", ModelError):
            while part := list(itertools.islice(blocks, PART_BLOCKS)):
                yield self._tokens(part, max_length)

    def _blocks(self, texts: Sequence[Any], max_length: int, workers: int) -> Iterator[Encoded]:
        size = BLOCK_ROWS if workers == 1 else BLOCK_ROWS // 4  # so that none waits long
        blocks = (texts[start : start + size] for start in range(0, len(texts), size))
        return encode_blocks(self.row_tokenizer, blocks, max_length, workers)

    def _tokens(self, blocks: Sequence[Encoded], max_length: int) -> Tokens:
        ids, lengths, second = joined(blocks)
        return Tokens(
            folder=Path(),
            ids=ids,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            second=second.astype(np.uint16),
            gold=np.full(len(lengths), np.nan, np.float32),
            max_length=max_length,
            pad=self.pad,
        )


def encode(texts: Sequence[str | tuple[str, str]], tokenizer: PreTrainedTokenizerFast, max_length: int) -> Tokens:
    """Return the tokens of some texts or pairs, once."""
    return TextEncoder(tokenizer)(texts, max_length)


def _facts(
    data: TaskData, tokenizer: PreTrainedTokenizerFast, backend: Tokenizer, max_length: int, swapped: bool
) -> dict[str, Any]:
    """Name everything that determines the arrays; their fingerprint is made of it."""
    return {
        "data": data.fingerprint,
        "kind": data.task.kind.name,
        "labels": list(data.task.labels),  # gold holds their positions
        "tokenizer": hashlib.blake2b(backend.to_str().encode(), digest_size=16).hexdigest(),
        "special_ids": sorted(int(number) for number in tokenizer.all_special_ids),
        "split_special": backend.encode_special_tokens,
        "pad": tokenizer.pad_token_id or 0,
        "max_length": max_length,
        "truncation_side": tokenizer.truncation_side,
        "swapped": swapped,
        **({"mask": mask_of(tokenizer)} if data.split == "augmented" else {}),
    }


def _write(
    part: Path, data: TaskData, backend: Tokenizer, facts: Mapping[str, Any], progress: Callable[[int], None] | None
) -> None:
    """Tokenise block by block, and write down what the files hold."""
    largest = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
    dtypes = {"ids": "<u2" if largest < 2**16 else "<i4", "offsets": "<i8", "second": "<u2", "gold": "<f4"}
    tokenizer = RowTokenizer(backend, facts["truncation_side"])
    count = tokens = 0
    waiting: deque[NDArray[np.float32]] = deque()  # the gold of blocks that are being tokenised

    def texts() -> Iterator[list[Any]]:
        for block in blocks(data.path, BLOCK_BYTES, BLOCK_ROWS, without=("id", "source")):
            waiting.append(gold_of(block, data.task))
            rows = texts_of(block, facts["swapped"])
            yield unmasked(rows, facts["mask"]) if "mask" in facts else rows

    with ExitStack() as stack:
        files = {name: stack.enter_context((part / f"{name}.bin").open("wb")) for name in dtypes}

        def write(name: str, values: Any) -> None:
            files[name].write(np.asarray(values, dtypes[name]).tobytes())

        write("offsets", [0])
        stack.enter_context(no_panic("the encoder"))
        for encoded in encode_blocks(tokenizer, texts(), facts["max_length"], workers_for(data.rows)):
            rows = len(encoded.lengths)
            write("offsets", tokens + np.cumsum(encoded.lengths))
            write("ids", encoded.ids)
            write("second", encoded.second)
            write("gold", waiting.popleft())
            count, tokens = count + rows, tokens + len(encoded.ids)
            if progress:
                progress(rows)
    write_json(part / FACTS, {"task": data.task.name, "split": data.split, "rows": count, "dtypes": dtypes})


def _open(artifact: Artifact) -> Tokens | None:
    """Map the arrays of a folder after checking every byte of them; None where they cannot be used."""
    try:
        about = artifact.read(FACTS)
        if about is None:
            return None
        arrays = {name: _map(artifact.folder / f"{name}.bin", dtype) for name, dtype in about["dtypes"].items()}
    except OSError:  # another process has just taken it away
        return None
    if len(arrays["gold"]) > len(arrays["second"]):  # several numbers a row
        arrays["gold"] = arrays["gold"].reshape(len(arrays["second"]), -1)
    facts = artifact.facts
    return Tokens(artifact.folder, **arrays, max_length=facts["max_length"], pad=facts["pad"])


def _map(path: Path, dtype: str) -> NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")
