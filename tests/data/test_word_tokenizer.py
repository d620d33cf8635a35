"""Words as tokens: which are kept, how text is cut into them, and pieces of an encoder's words without its frame."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.data.tokens import encode
from understill.data.word_tokenizer import bare, word_tokenizer
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.words import WordsConfig

TEXTS = ["The parcel never came", "It's late, isn't it?", "a well-made film that wasn’t long", "the the parcel"]


def words(text: str, texts: list[str] | None = None) -> list[str]:
    tokenizer = word_tokenizer(TEXTS if texts is None else texts, 1000)
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("It's late, isn't it?", ["it", "'s", "late", ",", "is", "n't", "it", "?"]),
        ("a well-made film that wasn’t long", ["a", "well-made", "film", "that", "was", "n't", "long"]),
        ("The PARCEL", ["the", "parcel"]),
        ("the [MASK] came", ["the", "[MASK]", "came"]),
        ("the letter came", ["the", "[UNK]", "came"]),
        ("", []),
    ],
)
def test_text_is_cut_into_words_as_files_of_vectors_have_them(text: str, cut: list[str]) -> None:
    assert words(text) == cut


def test_words_that_are_cut_apart_already_stay_as_they_are() -> None:
    text = "it 's late , is n't it ?"
    assert words(text) == text.split()


@given(st.lists(st.text("abc ", max_size=12), min_size=1, max_size=6).filter(lambda texts: "".join(texts).strip()))
def test_the_most_frequent_words_are_kept_and_ties_go_by_the_alphabet(texts: list[str]) -> None:
    counts: dict[str, int] = {}
    for word in " ".join(texts).split():
        counts[word] = counts.get(word, 0) + 1
    order = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = word_tokenizer(texts, 2).get_vocab()
    assert vocabulary == {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, **{word: 3 + at for at, word in enumerate(order[:2])}}


def test_texts_without_words_are_refused() -> None:
    with pytest.raises(UserError, match="no words"):
        word_tokenizer([" ", ""], 10)


def test_a_row_is_its_texts_and_nothing_else() -> None:
    tokenizer = word_tokenizer(TEXTS, 1000)
    tokens = encode([("the parcel", "never came late"), ("late", ""), ("", "late")], tokenizer, 16)
    assert list(tokens.lengths) == [5, 1, 1]
    assert list(tokens.second) == [2, 1, 0]


def test_a_long_pair_loses_the_ends_of_its_texts() -> None:
    tokenizer = word_tokenizer(TEXTS, 1000)
    tokens = encode([("the " * 9, "late " * 9)], tokenizer, 8)
    assert tokenizer.convert_ids_to_tokens(list(tokens.ids)) == ["the"] * 4 + ["late"] * 4
    assert list(tokens.second) == [4]


def test_an_encoders_pieces_come_without_its_frame(tiny: Path) -> None:
    tokenizer = load_tokenizer(str(tiny))
    pieces = bare(tokenizer)
    tokens = encode([("the parcel", "never came")], pieces, 32)
    first = pieces("the parcel")["input_ids"]
    assert list(tokens.ids[: tokens.second[0]]) == first == tokenizer("the parcel")["input_ids"][1:-1]
    assert (pieces.pad_token, pieces.unk_token, pieces.mask_token) == ("[PAD]", "[UNK]", "[MASK]")
    assert len(tokenizer("the parcel")["input_ids"]) == len(first) + 2, "the encoder's own is left as it is"


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_a_tokeniser_is_saved_and_loaded_as_it_is(kind: str, tiny: Path, tmp_path: Path) -> None:
    tokenizer = word_tokenizer(TEXTS, 1000) if kind == "words" else bare(load_tokenizer(str(tiny)))
    tokenizer.save_pretrained(tmp_path)
    WordsConfig(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    again = load_tokenizer("bilstm", str(tmp_path))
    text = "The parcel isn't [MASK] here"
    assert again(text, text)["input_ids"] == tokenizer(text, text)["input_ids"]
    assert (again.pad_token_id, again.mask_token_id) == (tokenizer.pad_token_id, tokenizer.mask_token_id)
