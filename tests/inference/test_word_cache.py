"""Looked up word by word, texts have the very tokens that the tokeniser gives of the whole of them."""

from __future__ import annotations

import json
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_truncation import CORPUS, byte_level, minilm, unigram
from tokenizers import AddedToken, Tokenizer

from understill.data.word_tokenizer import word_tokenizer
from understill.inference import word_cache
from understill.inference.truncation import RowTokenizer
from understill.inference.word_cache import Encoded


def changed(**facts: Any) -> Tokenizer:
    """Return the encoder's tokeniser with other parts, or with other settings of its normaliser."""
    whole = json.loads(minilm().to_str())
    for name, value in facts.items():
        if name in whole:
            whole[name] = value
        else:
            whole["normalizer"][name] = value
    return Tokenizer.from_str(json.dumps(whole))


def splitting() -> Tokenizer:
    """One for which special tokens are text like any other."""
    tokenizer = minilm()
    tokenizer.encode_special_tokens = True
    return tokenizer


TOKENIZERS = {
    "minilm": minilm(),
    "cased": changed(lowercase=False),
    "accents": changed(strip_accents=False, clean_text=False, handle_chinese_chars=False),
    "bare": changed(post_processor=None),
    "splitting": splitting(),
    "words": word_tokenizer([*CORPUS, "a film, don't you think"], 40).backend_tokenizer,
}
CACHED = {
    (name, side): RowTokenizer(tokenizer, side) for name, tokenizer in TOKENIZERS.items() for side in ("right", "left")
}

PIECES = [
    *("the", "film's", "don't", "Don’t", "n't", "'S", "unaffable", "FILM", "$5.00", "a-b", *"[]<=>-_'`", "--"),
    *("[MASK]", "[SEP]", "[mask]", "[MASK", "[[CLS]]", "<s>", "x" * 100, "x" * 101, "", " ", "  "),
    *("e\u0301", "\u0301", "=\u0338", ".\u0338", "İstanbul", "Σς", "한국", "\U0001f600", *"好ÉßＡＢﬁ’“…"),
    *("\x020", *"\u00a0\u2003\u200b\ufeff\x00\x01\x02\x1c\x1f\x7f\x85\n\t\r\v\f"),
]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.sampled_from(["", " "]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.text(st.characters(max_codepoint=127), max_size=8),
    ),
    max_size=12,
).map("".join)


def equal(one: Encoded, two: Encoded) -> bool:
    return all(np.array_equal(mine, other) for mine, other in zip(one, two, strict=True))


@pytest.mark.parametrize(("name", "side"), CACHED)
@settings(max_examples=120, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=2, max_size=5), length=st.one_of(st.integers(1, 8), st.sampled_from([24, 128])),
    long=st.booleans(), room=st.sampled_from([0, 20, 1 << 20]),
)  # fmt: skip
def test_rows_looked_up_are_those_of_the_tokeniser(
    name: str, side: str, texts: list[str], length: int, long: bool, room: int
) -> None:
    tokenizer = CACHED[name, side]
    texts = [*texts, "the film " * 40 * length, texts[0]] if long else texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_cache, "ROOM", room)  # so that words are forgotten now and then
        for rows in (texts, list(zip(texts, texts[::-1], strict=True)), [*texts, (texts[0], texts[1])]):
            assert equal(tokenizer(rows, length), tokenizer._ask(rows, length))


def test_a_word_is_asked_once_and_words_of_the_vocabulary_never(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = RowTokenizer(minilm(), "right")
    assert tokenizer.words is not None
    asked: list[str] = []

    class Asked:
        def encode_batch(self, lines: list[list[str]], **options: bool) -> Any:
            asked.extend(word for line in lines for word in line)
            return TOKENIZERS["minilm"].encode_batch(lines, **options)

    monkeypatch.setattr(tokenizer.words, "backend", Asked())
    tokenizer(["the film was unaffable, The end", "unaffable film, caf\u00e9 [MASK]"], 32)
    tokenizer(["the unaffable film", "The caf\u00e9"], 32)
    assert asked == ["unaffable", ",", "The", "caf\u00e9"]


def test_few_words_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "ROOM", 1000)
    tokenizer = RowTokenizer(minilm(), "right")
    assert tokenizer.words is not None
    known = len(tokenizer.words)
    for number in range(50):
        tokenizer([f"a{number}b{other}" for other in range(20)], 32)
        assert len(tokenizer.words) < known + 250


def test_a_tokeniser_that_fails_leaves_no_half_known_words(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = RowTokenizer(minilm(), "right")
    assert tokenizer.words is not None

    class Failing:
        def encode_batch(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

    rows = ["unaffable films", "more of them"]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(tokenizer.words, "backend", Failing())
        tokenizer(rows, 32)
    assert equal(tokenizer(rows, 32), tokenizer._ask(rows, 32))


def test_threads_may_share_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "ROOM", 500)
    tokenizer = RowTokenizer(minilm(), "right")
    rows = [[f"word{number * other} of{number}" for other in range(30)] for number in range(40)]
    wanted = [tokenizer._ask(each, 32) for each in rows]
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(number for number, each in enumerate(rows) if not equal(tokenizer(each, 32), wanted[number]))

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tokenisers_that_are_not_known_to_read_words_by_themselves_are_asked() -> None:
    assert all(each.words is not None for each in CACHED.values())
    others = [byte_level(), unigram(), changed(normalizer=None), changed(pre_tokenizer={"type": "Whitespace"})]
    for token in (AddedToken("good film"), AddedToken("film"), AddedToken("<x>", normalized=True)):
        others.append(minilm())
        others[-1].add_tokens([token])
    one, two = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    for single, pair in (([one, one], [one, two]), ([one], [two, one])):
        post = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}
        others.append(changed(post_processor=post))
    assert [RowTokenizer(each, "right").words for each in others] == [None] * len(others)
