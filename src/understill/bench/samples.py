"""Texts for measuring: the user's or synthetic ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from understill.bench.clock import Text
from understill.errors import UserError

#: How many are made up.
COUNT = 512
#: The words of a made-up text: as few as in a remark, as many as in a long sentence.
SHORTEST, LONGEST = 3, 40
_WORDS = """
    the a of to and in is it that was for on you he be with as by at have are this not but had his they from she which
    order parcel letter account money week answer question film story price room door water morning town friend people
    good bad small late quick plain strange long new old open happy never always perhaps almost again together
    came went found kept lost paid wrote asked told waited opened closed changed liked missed returned
"""


def made_up(pair: bool) -> list[Text]:
    """Return texts of common words, always the same, or pairs of them."""
    random, words = np.random.default_rng(0), _WORDS.split()
    texts = [
        " ".join(random.choice(words, int(random.integers(SHORTEST, LONGEST + 1)))) + " ."
        for _ in range(COUNT * (2 if pair else 1))
    ]
    return list(zip(texts[::2], texts[1::2], strict=True)) if pair else list(texts)


def read_texts(path: Path, pair: bool) -> list[Text]:
    """Read the texts of a file, one to a line; of a pair, a tab stands between the two."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "this is no text in UTF-8"
        raise UserError(f"--texts {path}: {why} → give a file with one text to a line") from None
    if not lines:
        raise UserError(f"--texts {path}: no text in it → give a file with one text to a line")
    if not pair:
        return list(lines)
    parts = [line.split("\t") for line in lines]
    for number, each in enumerate(parts, 1):
        if len(each) != 2:
            raise UserError(f"--texts {path}: text {number} is no pair → put one tab between the two texts of a line")
    return [(first, second) for first, second in parts]
