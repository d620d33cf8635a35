"""From rows of text to token ids and gold: exactly what the tokeniser's own call gives, without its traps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understill.errors import DataError, Problem, UserError
from understill.tasks import Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from understill.data.taskdata import TaskData


#: What stands for a masked word in augmented rows; each tokeniser reads its own mask token there.
MASK = "[MASK]"


def unbounded(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """Return a copy of the fast tokeniser that neither pads nor truncates; the caller's own stays as it is."""
    from tokenizers import Tokenizer

    if not getattr(tokenizer, "is_fast", False):
        name = type(tokenizer).__name__
        raise UserError(f"{name} is not a fast tokeniser; use an encoder that comes with tokenizer.json")
    backend: Tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = bool(getattr(tokenizer, "split_special_tokens", False))
    return backend


def texts_of(block: pa.RecordBatch, swapped: bool) -> list[Any]:
    """Return what the tokeniser reads: a string for a row with one text, a pair for a row with two."""
    first: list[Any] = block.column("text1").to_pylist()
    if "text2" not in block.schema.names:
        return first
    rows = zip(first, block.column("text2").to_pylist(), strict=True)
    return [one if two is None else (two, one) if swapped else (one, two) for one, two in rows]


def mask_of(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return what a tokeniser reads where a word is masked: its mask token, or its token for unknown words."""
    token = tokenizer.mask_token or tokenizer.unk_token
    if token is None:
        name = type(tokenizer).__name__
        fix = "write student.augment.mask: 0, or use another encoder"
        raise UserError(f"{name} has a token neither for masked nor for unknown words → {fix}")
    return str(token)


def unmasked(texts: list[Any], token: str) -> list[Any]:
    """Return texts, or pairs of them, with a tokeniser's own token for masked words."""
    return [
        text.replace(MASK, token) if isinstance(text, str) else tuple(one.replace(MASK, token) for one in text)
        for text in texts
    ]


def gold_of(block: pa.RecordBatch, task: Task) -> NDArray[np.float32]:
    """Return the index of the label by its name, or the score as it is; NaN where there is none.

    It is [rows], or [rows, numbers] where the gold of a row is several.
    """
    numbers = task.kind.gold_numbers(task)
    if "label" not in block.schema.names:
        return np.full(block.num_rows if numbers == 1 else (block.num_rows, numbers), np.nan, np.float32)
    label = block.column("label")
    if numbers > 1:
        rows = [[np.nan] * numbers if row is None else row for row in label.to_pylist()]
        return np.asarray(rows, np.float32).reshape(-1, numbers)
    if task.kind.named and not pa.types.is_null(label.type):
        known = pc.index_in(label, value_set=pa.array(task.labels, label.type))
        strange = pc.unique(label.filter(pc.and_(pc.is_null(known), pc.is_valid(label)))).to_pylist()
        if strange:
            names = ", ".join(f'"{name}"' for name in task.labels)
            faults = [Problem(task.name, f'"{name}" is not one of its labels', f"they are {names}") for name in strange]
            raise DataError(f"{task.name}: labels the task does not know", faults)
        label = known
    return np.asarray(label.cast(pa.float32()).fill_null(float("nan")).to_numpy(zero_copy_only=False), np.float32)


def has_gold(gold: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell of each row whether it has gold, all numbers of it."""
    known: NDArray[np.bool_] = ~np.isnan(gold).reshape(len(gold), -1).any(axis=1)
    return known


def all_gold(data: TaskData) -> NDArray[np.float64]:
    """Return the gold of every row of a split, as class numbers or scores; NaN where there is none."""
    return np.concatenate([gold_of(batch, data.task) for batch in data.batches()]).astype(np.float64)
