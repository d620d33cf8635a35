"""Language: how well a tokeniser knows the script and the words of some texts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import name

from understill.data.encode import unbounded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger(__name__)

#: From this share of letters on a tokeniser is taken not to know a language.
UNKNOWN = 0.5
#: What to write instead, where the hub can be reached.
MULTILINGUAL = (
    "`encoder: sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2`, which comes from the Hugging Face hub"
)
#: The script whose letters are words, so that one by one they are read well.
WORDLIKE = "CJK"


def unread_share(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> float:
    """Return the share of letters that are unknown to a tokeniser, cut into parts, or read one by one."""
    backend, unknown = unbounded(tokenizer), tokenizer.unk_token_id
    letters = unread = 0
    for text in texts:
        encoding = backend.encode(text, add_special_tokens=False)
        spans = [(range(*span), number == unknown) for number, span in zip(encoding.ids, encoding.offsets, strict=True)]
        times = Counter(place for span, _ in spans for place in span)
        alone = {span[0] for span, _ in spans if len(span) == 1}
        known = {place for span, strange in spans if not strange for place in span}
        for place, sign in enumerate(text):
            if sign.isalpha():
                letters += 1
                single = place in alone and not _wordlike(sign)
                unread += place not in known or times[place] > 1 or single
    return unread / max(letters, 1)


@cache
def _wordlike(sign: str) -> bool:
    return name(sign, "").startswith(WORDLIKE)


def foreign(texts: Iterable[str]) -> bool:
    """Tell whether a tokeniser may not know the script of texts: too few of their letters are those of ASCII."""
    letters = [sign.isascii() for text in texts for sign in text if sign.isalpha()]
    return letters.count(False) >= UNKNOWN / 2 * max(len(letters), 1)


def language_doubt(encoder: str, place: str, texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> str:
    """Say where an encoder hardly knows the language of a task's texts."""
    if (share := unread_share(texts, tokenizer)) < UNKNOWN:
        return ""
    what = f"{share:.0%} of the letters of {place} are unknown to {encoder}, or read one by one"
    return f"{what} → name an encoder that knows their language, such as {MULTILINGUAL}"


def warn_of_language(encoder: str, place: str, texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> None:
    """Warn where an encoder hardly knows the language of a task's texts."""
    if doubt := language_doubt(encoder, place, texts, tokenizer):
        log.warning("%s", doubt)
