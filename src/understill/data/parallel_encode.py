"""Tokenising in several processes: the tokenisers' own threads hold each other up on many cores."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joblib.externals.loky import get_reusable_executor

from understill.inference.cores import cores
from understill.inference.truncation import RowTokenizer
from understill.inference.word_cache import Encoded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: From so many rows and cores on, processes are worth their start.
ROWS, CORES = 1 << 15, 4


def workers_for(rows: int) -> int:
    """Return how many processes so many rows are worth; 1 is this one."""
    return cores() if rows >= ROWS and cores() >= CORES else 1


def encode_blocks(
    tokenizer: RowTokenizer, blocks: Iterable[Sequence[Any]], max_length: int, workers: int
) -> Iterator[Encoded]:
    """Yield the tokens of each block of rows, in order, a few blocks ahead of who takes them."""
    if workers == 1:
        yield from (tokenizer(rows, max_length) for rows in blocks)
        return
    with tempfile.TemporaryDirectory(prefix="understill-") as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.backend.save(str(path), pretty=False)
        digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        facts = (digest, str(path), tokenizer.side, tokenizer.backend.encode_special_tokens)
        pool = get_reusable_executor(workers)  # kept for the next call, which then need not wait for its start
        running: deque[Future[Encoded]] = deque()
        for rows in blocks:
            running.append(pool.submit(_encode_in_worker, *facts, rows, max_length))
            if len(running) > 2 * workers:  # so that memory is bounded, however slow the taker is
                yield running.popleft().result()
        yield from (future.result() for future in running)


def _encode_in_worker(
    digest: str, path: str, side: str, split_special: bool, rows: Sequence[Any], max_length: int
) -> Encoded:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # of this process alone
    try:
        if (key := (digest, side, split_special)) not in _opened:
            _opened.clear()  # one at a time: a worker outlives who called it
            _opened[key] = _open(path, side, split_special)
        return _opened[key](rows, max_length)
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # it cannot be sent to another process
            raise Exception(str(error)) from None
        raise


#: What a worker holds from call to call: the file is another one each time, the tokeniser mostly the same.
_opened: dict[tuple[str, str, bool], RowTokenizer] = {}


def _open(path: str, side: str, split_special: bool) -> RowTokenizer:
    from tokenizers import Tokenizer

    backend: Tokenizer = Tokenizer.from_file(path)
    backend.encode_special_tokens = split_special
    return RowTokenizer(backend, side)
