"""What the embedded demo data promises."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from understill.data import demo
from understill.data.demo import similar
from understill.data.demo.phrases import Phrases
from understill.data.demo.templates import SPLITS, fill, objects, owner
from understill.errors import UserError

#: The second dev row of two tasks with seed 0.
GOLDEN = [
    {
        "message": "Dear team. The live chat was not terrible at all, I would even call it fantastic. Ref. 73743.",
        "label": "calm",
    },
    {
        "first": "Hi there. Please send me the bill for the piano, I need it for my taxes. Cheers, Katya",
        "second": "Me again. Something that belongs to the hedge trimmer was left out. Thanks, Ana",
        "label": 0.0,
    },
]

#: Of one block of every split with seed 0: scores in the docs depend on these rows.
DIGESTS = {
    "mood": "af2d49065f5a7543",
    "queue": "fa5c936e589013f2",
    "follows": "3f70899d5cdb8d4d",
    "similar": "e94d08e6fe4d0648",
    "answer": "0ef659bb928f9fa9",
}

NAMES = tuple(demo.TASKS)


def rows_of(name: str, split: str, rows: int, seed: int = 0, size: int = 8192) -> pa.Table:
    return pa.Table.from_batches(demo.batches(name, split, rows, seed, size))


def lists(name: str, split: str, rows: int, seed: int = 0) -> dict[str, list[Any]]:
    return rows_of(name, split, rows, seed).to_pydict()


def test_the_tasks_cover_every_kind() -> None:
    kinds = {(task.kind.name, task.pair, len(task.labels)) for task in demo.TASKS.values()}
    assert kinds == {
        ("classification", False, 2),
        ("classification", False, 12),
        ("classification", True, 3),
        ("regression", True, 0),
        ("ranking", True, 2),
    }


def test_splits_grow_with_the_training_rows() -> None:
    assert set(demo.splits(1500)) == set(SPLITS)
    assert demo.splits(1500)["train"] == 1500
    assert demo.splits(1_000_000)["dev"] == 10_000


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_the_texts_and_the_label(name: str) -> None:
    task = demo.TASKS[name]
    train, pool = rows_of(name, "train", 10), rows_of(name, "unlabelled", 10)
    assert train.column_names == [*task.columns, "label"]
    assert pool.column_names == [*task.columns]
    assert ("group" in pool.column_names) == (task.kind.name == "ranking")
    assert train.schema.field("label").type == (pa.float64() if task.kind.name == "regression" else pa.string())


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name: str) -> None:
    first = rows_of(name, "dev", 500, seed=3)
    assert first.equals(rows_of(name, "dev", 500, seed=3))
    assert not first.equals(rows_of(name, "dev", 500, seed=4))


def test_the_rows_of_a_seed_stay_the_same_from_release_to_release() -> None:
    # Golden rows: whoever changes the generator sees it here, and notes it in the changelog.
    assert [rows_of(name, "dev", 2).to_pylist()[1] for name in ("mood", "similar")] == GOLDEN


@pytest.mark.parametrize(("name", "digest"), DIGESTS.items())
def test_every_word_of_a_block_stays_the_same_from_release_to_release(name: str, digest: str) -> None:
    rows = repr([demo.block(name, split, 0, 1).to_pylist() for split in SPLITS])
    assert blake2b(rows.encode(), digest_size=8).hexdigest() == digest


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [100, 1500, 8192])
def test_a_block_made_alone_equals_its_part_of_the_whole(name: str, size: int) -> None:
    whole = rows_of(name, "train", 3 * demo.BLOCK, size=size).combine_chunks()
    alone = pa.Table.from_batches([demo.block(name, "train", 0, 2)])
    assert whole.slice(2 * demo.BLOCK).combine_chunks().equals(alone)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 5000), size=st.integers(1, 6000))
def test_batches_hold_exactly_the_rows_asked_for(rows: int, size: int) -> None:
    sizes = [batch.num_rows for batch in demo.batches("mood", "train", rows, 0, size)]
    assert sum(sizes) == rows
    assert all(count == size for count in sizes[:-1])
    assert all(0 < count <= size for count in sizes)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_shared_between_splits(name: str) -> None:
    column = demo.TASKS[name].text[0]
    for split in SPLITS:
        assert {owner(text) for text in lists(name, split, 1000)[column]} == {split}


def test_both_texts_of_a_symmetric_pair_stay_in_their_split() -> None:
    for split in SPLITS:
        assert {owner(text) for text in lists("similar", split, 1000)["second"]} == {split}


@pytest.mark.parametrize("name", NAMES)
def test_nearly_all_rows_are_distinct(name: str) -> None:
    table = rows_of(name, "train", 50_000)
    rows = set(zip(*(table.column(column).to_pylist() for column in demo.TASKS[name].text), strict=True))
    assert len(rows) > 0.98 * table.num_rows


@pytest.mark.parametrize("name", ["mood", "queue", "follows"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_label_occurs_about_equally_often(name: str, split: str) -> None:
    labels = demo.TASKS[name].labels
    counts = Counter(lists(name, split, 4000)["label"])
    assert set(counts) == set(labels)
    assert min(counts.values()) > 0.75 * 4000 / len(labels)
    assert max(counts.values()) < 1.25 * 4000 / len(labels)


def test_tickets_are_short_but_not_too_short() -> None:
    for name, task in demo.TASKS.items():
        lengths = [len(text.split()) for text in lists(name, "train", 4000)[task.text[0]]]
        assert 8 <= np.mean(lengths) <= 30
        assert max(lengths) <= 45


@pytest.mark.parametrize("split", ["train", "dev"])
def test_scores_of_similar_fill_their_range(split: str) -> None:
    scores = np.array(lists("similar", split, 4000)["label"])
    assert scores.min() == 0.0 and scores.max() == 5.0
    assert 1.0 < scores.std() < 2.0
    assert np.histogram(scores, bins=5, range=(0, 5))[0].min() > 200


FACTS = st.tuples(*(st.integers(0, 2) for _ in range(4)))


@given(st.lists(st.tuples(FACTS, FACTS), min_size=1, max_size=5))
def test_similar_is_symmetric_within_range_and_highest_for_equals(pairs: list[tuple[tuple[int, ...], ...]]) -> None:
    one, two = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    assert np.array_equal(similar.score(one, two), similar.score(two, one))
    assert np.array_equal(similar.score(one, one), np.full(len(pairs), 5.0))
    assert (similar.score(one, two) >= 0).all()


@pytest.mark.parametrize("rows", [400, 401, 2047, 2050, 4099])
def test_every_group_has_one_question_and_exactly_one_right_answer(rows: int) -> None:
    data = lists("answer", "train", rows)
    right = Counter(group for group, label in zip(data["group"], data["label"], strict=True) if label == "1")
    assert set(right) == set(data["group"]) and set(right.values()) == {1}
    assert len(set(zip(data["group"], data["question"], strict=True))) == len(right) == -(-rows // 4)
    assert set(data["label"]) <= {"0", "1"}


def test_the_right_answer_may_stand_anywhere() -> None:
    labels = np.array(lists("answer", "dev", 4000)["label"]).reshape(-1, 4)
    assert ((labels == "1").mean(axis=0) > 0.2).all()


def test_rare_words_are_kept_out_of_train_alone() -> None:
    def uses(split: str) -> bool:
        return any("marvellous" in text for text in lists("mood", split, 2000)["message"])

    assert [uses(split) for split in SPLITS] == [False, True, True, True]


def test_templates_are_filled_row_by_row() -> None:
    filled = fill(("{a} is 5% {b}", "plain"), np.array([1, 0, 0]), a=objects("xyz"), b=objects("uvw"))
    assert filled.tolist() == ["plain", "y is 5% v", "z is 5% w"]
    assert Phrases.of("one\n two\n---\nthree") == Phrases(("one", "two"), ("three",))


@pytest.mark.parametrize(("name", "split"), [("moods", "train"), ("mood", "training")])
def test_an_unknown_name_is_answered_with_the_nearest(name: str, split: str) -> None:
    with pytest.raises(UserError, match="did you mean"):
        next(demo.batches(name, split, 10, 0))


def words_score(name: str) -> float:
    """Accuracy on dev of a bag of words and word pairs, each text with features of its own."""
    train, dev = lists(name, "train", 1500), lists(name, "dev", 600)
    columns = demo.TASKS[name].text
    parts = [TfidfVectorizer(ngram_range=(1, 2)) for _ in columns]
    x_train = sp.hstack([part.fit_transform(train[column]) for part, column in zip(parts, columns, strict=True)])
    x_dev = sp.hstack([part.transform(dev[column]) for part, column in zip(parts, columns, strict=True)])
    model = LogisticRegression(C=10, max_iter=500).fit(x_train, train["label"])
    return float(model.score(x_dev, dev["label"]))


def test_a_bag_of_words_learns_queue_in_part_and_fails_on_follows() -> None:
    assert 0.3 < words_score("queue") < 0.8
    assert words_score("follows") < 0.6
