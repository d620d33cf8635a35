"""Rows tokenised in several processes are the rows tokenised in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny import tiny_tokenizer
from understill.data import parallel_encode
from understill.data.parallel_encode import encode_blocks, workers_for
from understill.data.tokens import TextEncoder
from understill.errors import ModelError
from understill.inference.truncation import RowTokenizer
from understill.inference.word_cache import Encoded

ROWS: list[Any] = [
    *("a b c", "", "b " * 300, "the cat", "[SEP] written out"),
    *(("a b", "c"), ("a " * 90, "b " * 70), ("", "c")),
]


def encoder() -> TextEncoder:
    return TextEncoder(tiny_tokenizer())


def equal(one: Encoded, two: Encoded) -> bool:
    return all(np.array_equal(mine, other) for mine, other in zip(one, two, strict=True))


def test_two_processes_give_the_blocks_of_one_in_their_order() -> None:
    tokenizer = encoder().row_tokenizer
    blocks = [ROWS, ROWS[::-1], ROWS[2:5]] * 3
    alone = list(encode_blocks(tokenizer, blocks, 32, 1))
    together = list(encode_blocks(tokenizer, blocks, 32, 2))
    assert len(alone) == len(together) == 9
    assert all(map(equal, alone, together))
    assert {len(each.lengths) for each in alone} == {3, 8}
    assert alone[0].lengths.max() == 32


def test_blocks_are_fetched_only_a_few_ahead_of_who_takes_them() -> None:
    fetched = []

    def blocks() -> Iterator[list[Any]]:
        for number in range(40):
            fetched.append(number)
            yield ROWS

    made = encode_blocks(encoder().row_tokenizer, blocks(), 16, 2)
    next(made)
    assert len(fetched) < 20
    assert sum(1 for _ in made) == 39


def test_many_texts_on_many_cores_are_tokenised_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    assert workers_for(parallel_encode.ROWS - 1) == 1
    monkeypatch.setattr(parallel_encode, "cores", lambda: 2)
    assert workers_for(1 << 20) == 1
    monkeypatch.setattr(parallel_encode, "cores", lambda: 16)
    assert workers_for(1 << 20) == 16
    texts = [f"{text} {number % 7}" for number, text in enumerate(["a b", "the cat"] * 5_000)]
    alone = encoder()(texts, 16)
    monkeypatch.setattr(parallel_encode, "ROWS", 100)
    monkeypatch.setattr(parallel_encode, "cores", lambda: 4)
    together = encoder()(texts, 16)
    for name in ("ids", "offsets", "second"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before  # of the workers alone


def test_a_panic_in_another_process_is_worded_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: Any) -> Encoded:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(RowTokenizer, "__call__", panic)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # which a worker changes, and here we are it
    path = tmp_path / "tokenizer.json"
    encoder().backend.save(str(path))
    with pytest.raises(Exception, match="index out of bounds") as caught:
        parallel_encode._encode_in_worker("digest", str(path), "right", False, ROWS, 16)
    assert type(caught.value) is Exception  # what `no_panic` words

    def fail(*_: Any) -> Iterator[Encoded]:
        raise caught.value
        yield

    monkeypatch.setattr("understill.data.tokens.encode_blocks", fail)
    with pytest.raises(ModelError, match="the tokeniser fails: index out of bounds"):
        encoder()(["a"], 16)


def test_no_rows_have_no_tokens() -> None:
    tokens = encoder()([], 16)
    assert (len(tokens), len(tokens.ids), tokens.offsets.tolist()) == (0, 0, [0])
    empty = RowTokenizer(encoder().backend, "right")([], 16)
    assert [len(part) for part in empty] == [0, 0, 0]


def test_many_texts_are_answered_a_part_at_a_time_and_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, texts = encoder(), [f"the cat {'b ' * (number % 9)}" for number in range(100)]
    assert len(list(encode.parts(texts, 16))) == 1
    assert [len(part) for part in encode.parts([], 16)] == [0]
    whole = encode(texts, 16)
    for name, value in (("workers_for", lambda rows: 2), ("BLOCK_ROWS", 40), ("PART_BLOCKS", 3)):
        monkeypatch.setattr(f"understill.data.tokens.{name}", value)
    parts = list(encode.parts(texts, 16))
    assert [len(part) for part in parts] == [30, 30, 30, 10]
    for name in ("ids", "lengths", "second"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
