"""A tokeniser is asked how much of a text it knows, and `check` warns where that is little."""

from __future__ import annotations

import logging
from unicodedata import normalize

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tiny import tiny_tokenizer
from understill.data.language import foreign, unread_share, warn_of_language
from understill.models.encoder import load_tokenizer


def test_letters_that_are_unknown_or_read_one_by_one_are_counted() -> None:
    tokenizer = tiny_tokenizer()
    assert unread_share(["the film was good"], tokenizer) == 0
    assert unread_share(["환불은 언제 되나요"], tokenizer) == 1
    assert unread_share(["the 환불은"], tokenizer) == 0.5
    assert unread_share(["... 123", ""], tokenizer) == 0


def test_letters_that_are_words_may_be_read_one_by_one() -> None:
    from transformers import PreTrainedTokenizerFast

    signs = {sign: number for number, sign in enumerate(["[UNK]", "[PAD]", "退", "款", "а", "б"])}
    backend = Tokenizer(models.WordLevel(signs, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")
    assert unread_share(["退款"], tokenizer) == 0
    assert unread_share(["аб"], tokenizer) == 1


def test_an_encoder_that_does_not_know_the_language_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_language("tiny", "mood", ["the film was good"], tiny_tokenizer())
        assert not caplog.messages
        warn_of_language("tiny", "분류", ["환불은 언제 되나요", "good"], tiny_tokenizer())
    what = "67% of the letters of 분류 are unknown to tiny, or read one by one"
    (message,) = caplog.messages
    assert message.startswith(f"{what} → name an encoder that knows their language, such as `encoder: ")


def test_minilm_knows_english_and_not_korean() -> None:
    tokenizer = load_tokenizer("minilm")
    assert unread_share(["The parcel never came and I would like my money back."], tokenizer) < 0.1
    assert unread_share(["환불은 언제 되나요? 결제가 두 번 됐어요."], tokenizer) > 0.9
    assert unread_share([normalize("NFD", "환불은 언제 되나요?")], tokenizer) > 0.9


def test_a_tokeniser_is_asked_only_about_texts_that_are_not_mostly_ascii() -> None:
    assert foreign(["환불은 언제 되나요? App", ""])
    assert not foreign(["Où est mon colis ? Je l'ai payé deux fois.", "12"])
