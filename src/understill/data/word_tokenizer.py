"""Words: a tokeniser whose vocabulary is made of the training text, and one that takes pieces from an encoder's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from understill.errors import UserError
from understill.inference.word_cache import WORD

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, MASK = SPECIAL = ("[PAD]", "[UNK]", "[MASK]")


def word_tokenizer(texts: Iterable[str], most: int) -> PreTrainedTokenizerFast:
    """Return a tokeniser that knows the most frequent lower-cased words of some texts; the others are unknown."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    backend = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Lowercase(), normalizers.Replace("’", "'")]
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    # Equally frequent words are taken in the order of the alphabet, so that the same texts give the same vocabulary.
    trainer = trainers.WordLevelTrainer(
        vocab_size=most + len(SPECIAL), special_tokens=list(SPECIAL), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    if backend.get_vocab_size() == len(SPECIAL):
        raise UserError("the training text has no words → name other files, or an encoder in encoder.words.tokenizer")
    return _wrapped(backend, PAD, UNKNOWN, MASK)


def bare(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Return an encoder's tokeniser that adds nothing to a text, so that both texts of a pair are read alike."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = None
    return _wrapped(backend, tokenizer.pad_token, tokenizer.unk_token, tokenizer.mask_token)


def _wrapped(backend: object, pad: str, unknown: str | None, mask: str | None) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    named = {"pad_token": pad, "unk_token": unknown, "mask_token": mask}
    given = {name: token for name, token in named.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **given)
