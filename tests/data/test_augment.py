"""Augmentation follows its rules: shares, exclusive changes, uniform n-grams, turns of pairs, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import MOOD, TOPIC
from plugins.letters import letters
from understill.data import augment
from understill.data.augment import AugmentRules, augmented, unigrams, write_augmented
from understill.data.check import row_id
from understill.data.encode import MASK
from understill.data.taskdata import TaskData, Writer
from understill.tasks import Task

pytestmark = pytest.mark.usefixtures("letters")


def batch(texts: list[Any], task: Task = MOOD, tags: bool = False) -> Any:
    """Rows of a task as its file has them, with first letters for tags."""
    rows = [(text,) if isinstance(text, str) else text for text in texts]
    columns: dict[str, Any] = {"id": [row_id(task.name, row) for row in rows]}
    for at in range(len(task.text)):
        columns[f"text{at + 1}"] = [row[at] for row in rows]
    columns["label"] = [task.labels[number % len(task.labels)] for number in range(len(rows))]
    if tags:
        for at in range(len(task.text)):
            columns[f"tags_text{at + 1}"] = letters([row[at].split() for row in rows])
    return pa.record_batch(columns)


def counts_of(texts: list[str]) -> Counter[tuple[str, str]]:
    return Counter((word[0], word) for text in texts for word in text.split())


def made_of(texts: list[Any], rules: AugmentRules, task: Task = MOOD, known: Any = None) -> list[dict[str, Any]]:
    """What is made of rows, without the rows themselves."""
    names = [f"text{at + 1}" for at in range(len(task.text))]
    rows: list[dict[str, Any]] = augmented(batch(texts, task, bool(known)), names, task.name, rules, known).to_pylist()
    return [row for row in rows if row["id"] != row["source"]]


def likely(count: int, chance: float, draws: int) -> bool:
    """Whether a count lies within five standard deviations of what is to be expected."""
    return bool(abs(count - chance * draws) <= 5 * np.sqrt(draws * chance * (1 - chance)))


# Texts so long that none comes out twice or unchanged, so that what is kept is what was drawn.
LONG = [" ".join(f"{letter}{number}x{row}" for letter in "abcd" for number in range(25)) for row in range(60)]


def test_words_are_masked_and_swapped_in_their_shares_and_never_both() -> None:
    rules = AugmentRules(mask=0.1, pos=0.15, ngram=0.0, times=20, seed=0)
    rows = made_of(LONG, rules, known=unigrams(counts_of(LONG)))
    sources = {row_id("mood", [text]): text.split() for text in LONG}
    assert len(rows) == 20 * len(LONG)
    masked = swapped = draws = 0
    for row in rows:
        old, new = sources[row["source"]], row["text1"].split()
        assert len(old) == len(new)
        draws += len(old)
        masked += sum(word == MASK for word in new)
        changed = [(one, two) for one, two in zip(old, new, strict=True) if two not in (one, MASK)]
        swapped += len(changed)
        assert all(one[0] == two[0] for one, two in changed), "a word gives way to one of its own tag"
    assert draws >= 100_000
    assert likely(masked, 0.1, draws)
    # A word may be drawn for itself: one in 25 × 60 words of its tag.
    assert likely(swapped, 0.15 * (1 - 1 / 1500), draws)


def test_words_are_drawn_as_often_as_the_corpus_has_them_with_that_tag() -> None:
    texts = ["aa ab ab ab ac ac ba bb " + " ".join(f"z{row}q{number}" for number in range(30)) for row in range(900)]
    rules = AugmentRules(mask=0.0, pos=1.0, ngram=0.0, times=20, seed=3)
    known = unigrams(counts_of(texts))
    drawn = Counter(word for row in made_of(texts, rules, known=known) for word in row["text1"].split() if word < "z")
    of_a, of_b = sum(drawn[word] for word in ("aa", "ab", "ac")), drawn["ba"] + drawn["bb"]
    assert of_a == 3 * of_b >= 100_000 // 4 and of_a + of_b == sum(drawn.values())
    for word, share in {"aa": 1 / 6, "ab": 1 / 2, "ac": 1 / 3}.items():
        assert likely(drawn[word], share, of_a), word
    assert likely(drawn["ba"], 1 / 2, of_b)


def test_a_share_of_texts_is_cut_to_an_n_gram_of_one_to_five_words() -> None:
    texts = [f"a{row} b c d e f g" for row in range(100_000)]
    rows = made_of(texts, AugmentRules(mask=0.0, pos=0.0, ngram=0.25, times=1, seed=1))
    assert likely(len(rows), 0.25, len(texts)), "what is not cut is its source, and dropped"
    sizes = Counter(len(row["text1"].split()) for row in rows)
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert all(likely(count, 0.2, len(rows)) for count in sizes.values())


def test_every_window_is_as_likely_and_the_last_one_too() -> None:
    texts = [f"a{row} b c d e f g" for row in range(20000)]
    rules = AugmentRules(mask=0.0, pos=0.0, ngram=1.0, times=1, seed=0)
    firsts: dict[int, Counter[str]] = {size: Counter() for size in range(1, 6)}
    rows = made_of(texts, rules)
    assert len(rows) == 20000
    for row in rows:
        words = row["text1"].split()
        firsts[len(words)][words[0][0]] += 1
    for size, result in firsts.items():
        total = sum(result.values())
        assert likely(total, 0.2, 20000)
        windows = "abcdefg"[: 7 - size + 1]
        assert set(result) == set(windows)
        assert all(likely(result[first], 1 / len(windows), total) for first in windows)


def test_a_text_shorter_than_the_n_gram_stays_whole() -> None:
    rules = AugmentRules(mask=0.0, pos=0.0, ngram=1.0, times=50, seed=0)
    assert {row["text1"] for row in made_of(["a b"], rules)} == {"a", "b"}
    assert made_of(["alone"], rules) == []


def test_pairs_take_turns_first_second_both() -> None:
    pairs = [
        (" ".join(f"a{n}x{row}" for n in range(99)), " ".join(f"b{n}x{row}" for n in range(99))) for row in range(9)
    ]
    rows = made_of(pairs, AugmentRules(mask=0.5, pos=0.0, ngram=0.0, times=7, seed=0), TOPIC)
    assert len(rows) == 7 * len(pairs)
    changed = [(MASK in row["text1"], MASK in row["text2"]) for row in rows]
    first, second, both = (True, False), (False, True), (True, True)
    assert changed == [first, second, both, first, second, both, first] * len(pairs)
    assert all(row["text2"] in {two for _, two in pairs} for row in rows[0::7])


def test_the_two_texts_of_a_pair_are_drawn_for_apart() -> None:
    text = " ".join(f"w{number}" for number in range(400))
    (_, _, row) = made_of([(text, text)], AugmentRules(mask=0.5, pos=0.0, ngram=0.0, times=3, seed=0), TOPIC)
    assert row["text1"] != row["text2"]


# Short texts of few words, so that much comes out twice.
TEXTS = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8)
RULES = st.builds(
    AugmentRules,
    mask=st.sampled_from([0.0, 0.1, 0.5]),
    pos=st.sampled_from([0.0, 0.1, 0.5]),
    ngram=st.sampled_from([0.0, 0.25, 1.0]),
    times=st.integers(1, 9),
    seed=st.integers(0, 2**63 - 1),
)


@given(TEXTS, RULES)
@settings(max_examples=60)
def test_rows_keep_their_label_and_id_and_nothing_is_there_twice(texts: list[str], rules: AugmentRules) -> None:
    rows = augmented(batch(texts, tags=True), ["text1"], "mood", rules, unigrams(counts_of(texts))).to_pylist()
    heads = [at for at, row in enumerate(rows) if row["id"] == row["source"]]
    assert [rows[at]["text1"] for at in heads] == texts
    for number, (start, end) in enumerate(zip(heads, [*heads[1:], len(rows)], strict=True)):
        mine = rows[start:end]
        assert len({row["text1"] for row in mine}) == len(mine) <= rules.times + 1
        assert {row["source"] for row in mine} == {rows[start]["id"]}
        assert {row["label"] for row in mine} == {MOOD.labels[number % 2]}
        assert all(row["id"] == row_id("mood", [row["text1"]]) for row in mine)
        assert all(row["text1"] for row in mine)


@given(TEXTS, RULES, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_what_is_made_of_a_row_does_not_depend_on_the_others(
    texts: list[str], rules: AugmentRules, random: Any
) -> None:
    known = unigrams(counts_of(texts))
    turned = random.sample(texts, len(texts))
    again = unigrams(counts_of(turned))
    assert known.words.equals(again.words) and (known.ends == again.ends).all()

    def by_source(order: list[str], stats: Any) -> dict[str, set[str]]:
        result: dict[str, set[str]] = {}
        for row in made_of(order, rules, known=stats):
            result.setdefault(row["source"], set()).add(row["text1"])
        return result

    assert by_source(texts, known) == by_source(turned, again)
    alone = made_of(texts[:1], rules, known=known)
    assert {row["text1"] for row in alone} == by_source(texts, known).get(row_id("mood", texts[:1]), set())


def test_another_seed_makes_other_rows_and_the_same_seed_the_same() -> None:
    one, two = (made_of(LONG[:3], AugmentRules(0.1, 0.0, 0.25, 20, seed)) for seed in (0, 1))
    assert one == made_of(LONG[:3], AugmentRules(0.1, 0.0, 0.25, 20, 0))
    assert not {row["id"] for row in one} & {row["id"] for row in two}


def test_a_text_that_differs_from_its_source_in_blanks_alone_is_no_new_one() -> None:
    assert made_of(["  two \t words "], AugmentRules(0.0, 0.0, 0.0001, 5, 0)) == []
    (row, *_) = made_of(["one  two   three four"], AugmentRules(0.5, 0.0, 0.0, 20, 0))
    assert row["text1"] == " ".join(row["text1"].split())


def test_an_empty_text_is_left_alone() -> None:
    rows = made_of([("", "a b c d")], AugmentRules(0.5, 0.0, 0.5, 9, 0), TOPIC)
    assert rows and all(row["text1"] == "" for row in rows)


# Files ----------------------------------------------------------------------------------------------------------------


def written(folder: Path, texts: list[Any], task: Task = MOOD) -> TaskData:
    writer = Writer(folder / "data.arrow", task)
    for number, text in enumerate(texts):
        values = [text] if isinstance(text, str) else list(text)
        writer.add(row_id(task.name, values), values, task.labels[number % len(task.labels)])
    writer.close()
    return TaskData(task, "train", folder / "data.arrow", "print", len(texts))


@pytest.mark.parametrize("tagger", [None, "letters"])
def test_blocks_and_workers_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tagger: str | None) -> None:
    data = written(tmp_path, [f"a{row} b{row % 7} c d e{row % 3}" for row in range(300)])
    rules = AugmentRules(0.1, 0.2, 0.25, 4, 0)
    tables = []
    for name, workers, block in (("one", 1, 1 << 22), ("small", 1, 4000), ("two", 2, 4000)):
        monkeypatch.setattr(augment, "BLOCK", block)
        monkeypatch.setattr(augment, "FEW", 0)
        rows = write_augmented(data, tmp_path / name, rules, tagger, workers)
        with pa.OSFile(str(tmp_path / name)) as file:
            tables.append(pa.ipc.open_file(file).read_all())
        assert tables[-1].num_rows == rows > 600
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])
    assert not (tmp_path / "tagged.arrow").exists()


def test_pairs_with_tags_are_swapped_within_their_tags(tmp_path: Path) -> None:
    data = written(tmp_path, [(f"a{row} b{row} a b", f"c{row} a c b") for row in range(50)], TOPIC)
    write_augmented(data, tmp_path / "out", AugmentRules(0.0, 0.5, 0.0, 6, 0), "letters", 1)
    with pa.OSFile(str(tmp_path / "out")) as file:
        rows = pa.ipc.open_file(file).read_all().to_pylist()
    assert len(rows) > 250
    assert all([word[0] for word in row["text1"].split()] == list("abab") for row in rows)
    assert all([word[0] for word in row["text2"].split()] == list("cacb") for row in rows)
    # One distribution for both texts: words of the first turn up in the second.
    assert any(word[0] == "a" and word != "a" for row in rows for word in row["text2"].split())
