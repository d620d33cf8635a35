"""What a language model answered is kept as it was, or asked for again; a damaged file never gives another answer."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from understill.errors import UserError
from understill.teachers.llm.cache import FILE, AnswerCache, LlmReply

REPLIES = {
    f"{number:040d}": LlmReply(
        ("good", "han\0gul 한글 é", "a" * 300)[number % 3],
        ((("good", -0.1 * number), ("bad", -2 / 3)),),
        number,
        7,
        0.1,
    )
    for number in range(60)
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with answers."""
    cache = AnswerCache(tmp_path)
    for key, reply in REPLIES.items():
        cache.count_request("run/llm")
        cache.put(key, "m", reply, "run/llm")
    cache.close()
    return tmp_path / FILE


def test_answers_are_kept_to_the_last_bit(file: Path) -> None:
    cache = AnswerCache(file.parent)
    assert {key: cache.get(key) for key in REPLIES} == REPLIES
    assert cache.spent("run/llm").requests == cache.known([*REPLIES, "another"]) == 60
    cache.close()


def test_a_bit_or_a_cut_anywhere_is_an_answer_that_is_asked_for_again_or_one_sentence(file: Path) -> None:
    content, chance, asked_again = file.read_bytes(), random.Random(0), 0
    for _ in range(400):
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        for beside in file.parent.iterdir():
            beside.unlink()
        file.write_bytes(damaged[: chance.randrange(len(content))] if chance.random() < 0.2 else damaged)
        try:
            cache = AnswerCache(file.parent)
            result = {key: cache.get(key) for key in REPLIES}
            assert all(result[key] in (None, REPLIES[key]) for key in REPLIES)
            asked_again += None in result.values()
            gone = any(result[key] is None and cache.known([key]) for key in REPLIES)
            assert bool(cache.damaged()) >= gone, "verify names it too"
            assert cache.spent("run/llm").tokens >= 0
            cache.put("another", "m", REPLIES[f"{1:040d}"], "run/llm")
            cache.close()
        except UserError as error:
            assert "answers.sqlite: " in str(error) and " → " in str(error)
    assert asked_again > 50


def test_no_room_for_an_answer_is_one_sentence_and_the_next_one_has_room(file: Path) -> None:
    cache = AnswerCache(file.parent)
    cache._db.execute("PRAGMA max_page_count = 1")  # what is there stays
    with pytest.raises(UserError, match=r"answers\.sqlite: .*full → see to the disk .* the same command goes on"):
        for number in range(100):
            cache.put(f"more {number}", "m", REPLIES[f"{2:040d}"], "run/llm")
    cache._db.execute("PRAGMA max_page_count = 100000")
    cache.put("more", "m", REPLIES[f"{2:040d}"], "run/llm")
    assert cache.get("more") == REPLIES[f"{2:040d}"]
    cache.close()
    with sqlite3.connect(file) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
