"""A tagger: words that begin alike are taken to be of one part of speech."""

from collections.abc import Sequence

from understill.plugins import TAGGERS


@TAGGERS.register("letters")
def letters(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return a tag for each word of each text."""
    return [[word[0] for word in words] for words in texts]
