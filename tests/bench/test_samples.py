"""Texts to measure with are always the same, or are read from a file that is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from understill.bench.samples import COUNT, made_up, read_texts
from understill.errors import UserError


def test_made_up_texts_are_always_the_same_and_of_many_lengths() -> None:
    texts = made_up(False)
    assert texts == made_up(False) and len(texts) == COUNT
    lengths = {len(str(text).split()) for text in texts}
    assert len(lengths) > 30
    assert all(isinstance(text, tuple) and len(text) == 2 for text in made_up(True))


def test_a_file_has_a_text_to_a_line(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("good\n\nnot\tbad\n", encoding="utf-8")
    assert read_texts(file, pair=False) == ["good", "not\tbad"]
    file.write_text("good\tbad\nnot\tbad\n", encoding="utf-8")
    assert read_texts(file, pair=True) == [("good", "bad"), ("not", "bad")]


@pytest.mark.parametrize(
    ("content", "pair", "output"),
    [
        (b"", False, "no text in it"),
        (b"\xff\xfe\x00", False, "no text in UTF-8"),
        (b"good\tbad\ngood\n", True, "text 2 is no pair → put one tab"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes, pair: bool, output: str) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    with pytest.raises(UserError, match=output):
        read_texts(tmp_path / "texts.txt", pair)
