"""Predictions are found by id or by text, whatever the format, and each thing that is wrong with them has its place."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from helpers import MOOD, STARS, TOPIC
from understill.data.check import row_id
from understill.data.files import data_file
from understill.data.taskdata import TaskData
from understill.errors import DataError, UserError
from understill.tasks import Task
from understill.teachers.predictions import PredictionsTeacher, Values, predictions_digest, read_predictions

Stand = Callable[..., TaskData]
TEXTS = ["not bad", "charged twice, again", 'the "film"', "two\nlines", "locked out", "è finita"]
PAIRS = list(zip(TEXTS, [*TEXTS[1:], "x"], strict=True))
SUFFIXES = ("csv", "tsv", "jsonl", "parquet")
Rows = Sequence[dict[str, Any]]


def put(path: Path, rows: Rows) -> Path:
    """Write rows in the format the name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
    return path


def read(task: Task, *paths: Path, labels: dict[str, str] | None = None, values: Values = "auto") -> PredictionsTeacher:
    return read_predictions("llm", [data_file(path) for path in paths], task, labels or {}, values)


def keyed(task: Task, texts: Sequence[Any], by_id: bool) -> list[dict[str, Any]]:
    """Return rows that only say which they are."""
    parts = [list(text) if task.pair else [text] for text in texts]
    if by_id:
        return [{"id": row_id(task.name, each)} for each in parts]
    return [dict(zip(task.text, each, strict=True)) for each in parts]


def joined(keys: Rows, columns: Sequence[str], values: Any) -> list[dict[str, Any]]:
    return [{**key, **dict(zip(columns, row, strict=True))} for key, row in zip(keys, values, strict=True)]


def some_logits(task: Task, rows: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(0, 2, (rows, task.outputs)).round(6)


# What is found -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize(("task", "texts"), [(MOOD, TEXTS), (TOPIC, PAIRS)])
def test_each_row_gets_what_the_file_says_of_it(
    task: Task, texts: list[Any], by_id: bool, suffix: str, stand: Stand, tmp_path: Path
) -> None:
    logits = some_logits(task, len(texts))
    order = [4, 2, 0, 5, 1]  # the file has its own order, and lacks a row
    rows = joined(keyed(task, texts, by_id), task.labels, logits.tolist())
    teacher = read(task, put(tmp_path / f"said.{suffix}", [rows[number] for number in order]))
    done: list[int] = []
    output = teacher.logits(stand(task, texts), done.append)
    assert output.dtype == np.float32 and done == [len(texts)]
    logits[3] = np.nan
    np.testing.assert_allclose(output, logits, rtol=1e-6)


def test_several_files_are_one_teacher(stand: Stand, tmp_path: Path) -> None:
    logits = some_logits(MOOD, 6)
    rows = joined(keyed(MOOD, TEXTS, True), MOOD.labels, logits.tolist())
    texts = joined(keyed(MOOD, TEXTS, False), MOOD.labels, logits.tolist())
    output = read(MOOD, put(tmp_path / "a.csv", rows[:4]), put(tmp_path / "b.jsonl", texts[3:])).logits(
        stand(MOOD, TEXTS)
    )
    np.testing.assert_allclose(output, logits, rtol=1e-6)


def test_an_id_of_the_users_own_does_not_hide_the_texts(stand: Stand, tmp_path: Path) -> None:
    logits = some_logits(MOOD, 6)
    rows = joined(keyed(MOOD, TEXTS, False), MOOD.labels, logits.tolist())
    path = put(tmp_path / "said.csv", [{"id": number, **row} for number, row in enumerate(rows)])
    np.testing.assert_allclose(read(MOOD, path).logits(stand(MOOD, TEXTS)), logits, rtol=1e-6)


def test_the_text_counts_more_than_an_id_beside_it(stand: Stand, tmp_path: Path) -> None:
    """Ids of other makers may look like ours."""
    rows = joined(keyed(MOOD, TEXTS, False), ("id", *MOOD.labels), [["5" * 24, 1, 2]] * 6)
    assert np.isfinite(read(MOOD, put(tmp_path / "said.csv", rows)).logits(stand(MOOD, TEXTS))).all()


def test_what_predict_wrote_counts_more_than_the_gold_label_beside_it(stand: Stand, tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), ("label", "mood_predicted"), [["calm", "upset"]] * 6)
    output = read(MOOD, put(tmp_path / "said.csv", rows)).logits(stand(MOOD, TEXTS))
    assert (output.argmax(axis=1) == MOOD.labels.index("upset")).all()


def test_rows_with_the_same_text_get_the_same(stand: Stand, tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), MOOD.labels, some_logits(MOOD, 6).tolist())
    output = read(MOOD, put(tmp_path / "said.csv", [*rows, *rows])).logits(stand(MOOD, [*TEXTS, *TEXTS]))
    np.testing.assert_array_equal(output[:6], output[6:])
    assert np.isfinite(output).all()


def test_columns_follow_the_names_of_the_labels(stand: Stand, tmp_path: Path) -> None:
    logits = some_logits(TOPIC, 6)
    rows = joined(keyed(TOPIC, PAIRS, False), ["ACCESS", "Delivery", "money"], logits.tolist())
    teacher = read(TOPIC, put(tmp_path / "said.csv", rows))
    np.testing.assert_allclose(teacher.logits(stand(TOPIC, PAIRS)), logits[:, [1, 2, 0]], rtol=1e-6)
    turned = stand(replace(TOPIC, labels=("money", "access", "delivery")), PAIRS)
    np.testing.assert_allclose(teacher.logits(turned), logits[:, [2, 0, 1]], rtol=1e-6)


def test_columns_can_be_mapped(stand: Stand, tmp_path: Path) -> None:
    logits = some_logits(MOOD, 6)
    path = put(tmp_path / "said.csv", joined(keyed(MOOD, TEXTS, False), ["p1", "p0"], logits.tolist()))
    output = read(MOOD, path, labels={"p0": "calm", "p1": "upset"}).logits(stand(MOOD, TEXTS))
    np.testing.assert_allclose(output, logits[:, ::-1], rtol=1e-6)


@pytest.mark.parametrize("column", ["score", "stars", "label"])
def test_scores_are_taken_as_they_are(column: str, stand: Stand, tmp_path: Path) -> None:
    scores = some_logits(STARS, 6)
    rows = joined(keyed(STARS, TEXTS, False), [column], scores.tolist())
    rows[2][column] = ""
    output = read(STARS, put(tmp_path / "said.csv", rows)).logits(stand(STARS, TEXTS))
    scores[2] = np.nan
    np.testing.assert_allclose(output, scores, rtol=1e-6)


def test_a_score_is_not_taken_from_the_gold_beside_it(stand: Stand, tmp_path: Path) -> None:
    rows = joined(keyed(STARS, TEXTS, False), ["label", "score"], [[1.0, 4.0]] * 6)
    assert (read(STARS, put(tmp_path / "said.csv", rows)).logits(stand(STARS, TEXTS)) == 4).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", ["label", "topic_chosen"])
def test_a_chosen_label_becomes_finite_logits(column: str, suffix: str, stand: Stand, tmp_path: Path) -> None:
    task = replace(TOPIC, label="topic_chosen")
    chosen = ["money", "Access", "delivery", None, "money", "DELIVERY"]
    path = put(tmp_path / f"said.{suffix}", joined(keyed(task, PAIRS, False), [column], [[name] for name in chosen]))
    output = read(task, path).logits(stand(task, PAIRS))
    assert np.isnan(output[3]).all()
    known = [0, 1, 2, 4, 5]
    probabilities = softmax(output[known], axis=1)
    np.testing.assert_allclose(np.sort(probabilities, axis=1), [[0.025, 0.025, 0.95]] * 5, rtol=1e-5)
    assert [task.labels[number] for number in probabilities.argmax(axis=1)] == [
        "money", "access", "delivery", "money", "delivery",
    ]  # fmt: skip


def test_what_a_label_is_called_can_be_mapped(stand: Stand, tmp_path: Path) -> None:
    names = ["POS", "fine", "upset", "POS", "upset", "calm"]
    path = put(tmp_path / "said.jsonl", joined(keyed(MOOD, TEXTS, False), ["label"], [[name] for name in names]))
    output = read(MOOD, path, labels={"POS": "calm", "fine": "calm"}).logits(stand(MOOD, TEXTS))
    assert output.argmax(axis=1).tolist() == [0, 0, 1, 0, 1, 0]


def test_columns_of_labels_come_before_a_column_that_names_one(stand: Stand, tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), ["label", *MOOD.labels], [["upset", 2.0, -1.0]] * 6)
    np.testing.assert_allclose(read(MOOD, put(tmp_path / "x.csv", rows)).logits(stand(MOOD, TEXTS)), [[2, -1]] * 6)


# Probabilities and logits --------------------------------------------------------------------------------------------


def single(tmp_path: Path, values: Any, kind: Values, stand: Stand) -> Any:
    """Return what becomes of numbers for three labels."""
    texts = [f"text {number}" for number in range(len(values))]
    task = replace(TOPIC, text=("text",))
    path = put(tmp_path / "said.jsonl", joined(keyed(task, texts, False), task.labels, values))
    return read(task, path, values=kind).logits(stand(task, texts))


@pytest.mark.parametrize("kind", ["auto", "probabilities"])
def test_probabilities_become_log_probabilities(kind: Values, stand: Stand, tmp_path: Path) -> None:
    given_values = [[0.2, 0.3, 0.5], [0.6, 0.3995, 0.0], [1.0, 0.0, 0.0]]
    output = np.exp(single(tmp_path, given_values, kind, stand))
    np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(output[0], [0.2, 0.3, 0.5], rtol=1e-5)
    np.testing.assert_allclose(output[1], np.array([0.6, 0.3995, 1e-4]) / 0.9996, rtol=1e-4)
    np.testing.assert_allclose(output[2], np.array([1.0, 1e-4, 1e-4]) / 1.0002, rtol=1e-4)


@pytest.mark.parametrize("kind", ["auto", "logits"])
def test_other_numbers_are_logits(kind: Values, stand: Stand, tmp_path: Path) -> None:
    numbers = [[0.2, 0.3, 0.4], [-1.0, 1.0, 1.0], [3.0, 2.0, 8.0]]
    np.testing.assert_allclose(single(tmp_path, numbers, kind, stand), numbers, rtol=1e-6)


def test_numbers_that_add_up_to_one_can_be_logits(stand: Stand, tmp_path: Path) -> None:
    np.testing.assert_allclose(single(tmp_path, [[0.2, 0.3, 0.5]], "logits", stand), [[0.2, 0.3, 0.5]])


@given(st.lists(st.lists(st.floats(-4, 4), min_size=2, max_size=2), min_size=1, max_size=6))
def test_probabilities_give_back_the_logits_they_were_made_of(rows: list[list[float]]) -> None:
    from understill.teachers.predictions import _log_probabilities, _ReadRows

    faults = _ReadRows([])
    output = _log_probabilities(softmax(np.array(rows), axis=1), faults, "auto")
    np.testing.assert_allclose(output, log_softmax(np.array(rows), axis=1), rtol=1e-6)
    assert not faults.bad.total


def test_a_few_rows_that_do_not_add_up_do_not_make_logits_of_all(stand: Stand, tmp_path: Path) -> None:
    numbers = [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.3, 0.3, 0.3]]
    with pytest.raises(DataError, match=r"said\.jsonl:3: these are not probabilities: they add up to 0\.9"):
        single(tmp_path, numbers, "auto", stand)


def test_percentages_are_not_taken_for_logits(stand: Stand, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"look like percentages → divide them by 100"):
        single(tmp_path, [[20, 30, 50], [10, 0, 90]], "auto", stand)


# What is wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_bad_rows_are_told_together_each_with_its_place(suffix: str, tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), MOOD.labels, [["0.5", "0.5"]] * 6)
    rows[1]["calm"] = "often"
    rows[2]["upset"] = None
    rows[3]["calm"], rows[3]["upset"] = "0.7", "0.7"
    rows[4]["calm"], rows[4]["upset"] = "-0.5", "1.5"
    rows.append({**rows[0], "calm": "0.1", "upset": "0.9"})
    path = put(tmp_path / f"said.{suffix}", rows)
    with pytest.raises(DataError) as caught:
        read(MOOD, path, values="probabilities")
    result = {problem.place.removeprefix(f"{path}:"): problem.what for problem in caught.value.problems}
    # In the delimited files the header is line 1, and the fourth text takes two lines.
    lines = {"csv": [3, 4, 5, 7, 9, 2], "tsv": [3, 4, 5, 7, 9, 2], "jsonl": [2, 3, 4, 5, 7, 1]}
    places = [str(line) for line in lines.get(suffix, ())] or [f"row {line}" for line in (2, 3, 4, 5, 7, 1)]
    assert result == {
        places[0]: '"often" is not a number',
        places[1]: 'no number in column "upset"',
        places[2]: "these are not probabilities: they add up to 1.4",
        places[3]: "-0.5 is not a probability",
        places[4]: f"the same row stands in {path}:{places[5]} with other values",
    }
    assert str(caught.value).startswith("teacher llm: 5 predictions cannot be used\n")


def test_unknown_labels_are_told_with_what_was_meant(tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), ["label"], [["calm"], ["upsett"], ["?"], ["calm"], [["calm"]], ["upset"]])
    with pytest.raises(DataError) as caught:
        read(MOOD, put(tmp_path / "said.jsonl", rows))
    assert [str(problem).partition("jsonl:")[2] for problem in caught.value.problems] == [
        '2: unknown label "upsett" → did you mean "upset"?',
        '3: unknown label "?" → known: calm, upset',
        '5: column "label" holds a list, not text',
    ]


def test_the_first_twenty_are_in_words(tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, [f"t{number}" for number in range(50)], False), MOOD.labels, [["x", "y"]] * 50)
    with pytest.raises(DataError) as caught:
        read(MOOD, put(tmp_path / "said.csv", rows))
    assert caught.value.total == 50 and str(caught.value).count("is not a number") == 20
    assert str(caught.value).endswith("… and 30 more")


def test_lines_that_cannot_be_read_are_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "said.csv"
    path.write_text("text,calm,upset\nfine,1,2\nshort,1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"said\.csv:3: 2 cells where the header has 3"):
        read(MOOD, path)


def test_something_else_in_place_of_an_id_is_a_bad_row(tmp_path: Path) -> None:
    rows = joined([{"id": 7}, *keyed(MOOD, TEXTS[:1], True)], MOOD.labels, [[1.0, 2.0]] * 2)
    with pytest.raises(DataError, match=r'said\.csv:2: "7" is not a row id → ids have 24 hex digits'):
        read(MOOD, put(tmp_path / "said.csv", rows))


@pytest.mark.parametrize(
    ("task", "columns", "labels", "words"),
    [
        (MOOD, ("body", "calm", "upset"), {}, 'no column "id" and no "text" → rows are found by'),
        (TOPIC, ("one", "calm"), {}, 'no column "id" and no "one" and "two"'),
        (
            MOOD,
            ("id", "calm"),
            {},
            r"neither a column for each label of mood \(calm, upset\) nor .* columns are: id, calm",
        ),
        (MOOD, ("id", "p0", "p1"), {}, "for instance labels: {p0: calm, p1: upset}"),
        (MOOD, ("id", "p0", "p1"), {"p0": "calm", "q": "upset"}, "neither a column for each"),
        (MOOD, ("id", "p0", "p1"), {"p0": "calm"}, "labels must name one column for each of calm, upset"),
        (MOOD, ("id", "p0", "p1"), {"p0": "calm", "p1": "calm"}, "labels must name one column for each"),
        (MOOD, ("id", "a", "b", "c"), {"a": "calm", "b": "upset", "c": "calm"}, "labels must name one column for"),
        (MOOD, ("id", "label"), {"good": "clam"}, 'labels names "clam" → did you mean "calm"'),
        (STARS, ("id", "grade"), {}, 'no scores; the columns are: id, grade → name one of them "score"'),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    task: Task, columns: tuple[str, ...], labels: dict[str, str], words: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "said.csv", [dict.fromkeys(columns, "1")])
    with pytest.raises(UserError, match=words):
        read(task, path, labels=labels)


def test_labels_and_numbers_are_two_teachers(tmp_path: Path) -> None:
    one = put(tmp_path / "a.csv", joined(keyed(MOOD, TEXTS, False), ["label"], [["calm"]] * 6))
    two = put(tmp_path / "b.csv", joined(keyed(MOOD, TEXTS, False), MOOD.labels, [[1, 2]] * 6))
    with pytest.raises(UserError, match="make them two teachers"):
        read(MOOD, one, two)


def test_a_file_of_empty_cells_is_refused(tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), MOOD.labels, [["", ""]] * 6)
    with pytest.raises(UserError, match="no predictions, only empty cells"):
        read(MOOD, put(tmp_path / "said.csv", rows))


def test_predictions_about_other_rows_are_refused_only_when_none_fits(stand: Stand, tmp_path: Path) -> None:
    path = put(tmp_path / "said.csv", joined(keyed(MOOD, TEXTS, False), MOOD.labels, [[1, 2]] * 6))
    teacher = read(MOOD, path)
    mine, others = stand(MOOD, ["strange", TEXTS[0]]), stand(MOOD, ["strange", "stranger"], split="dev")
    assert np.isnan(teacher.logits(others)).all()
    teacher.must_match([others, mine])
    with pytest.raises(
        UserError, match=r'none of its 6 predictions is about a row of mood to learn from; .* column "id" .* by "text"'
    ):
        teacher.must_match([others])


def test_the_digest_changes_with_the_files_and_the_settings(tmp_path: Path) -> None:
    rows = joined(keyed(MOOD, TEXTS, False), MOOD.labels, [[1, 2]] * 6)
    one, two = data_file(put(tmp_path / "a.csv", rows)), data_file(put(tmp_path / "b.csv", rows[:3]))
    names = {"calm": "calm", "upset": "upset"}
    seen = [
        predictions_digest([one], {}, "auto"),
        predictions_digest([two], {}, "auto"),
        predictions_digest([one, two], {}, "auto"),
        predictions_digest([one], names, "auto"),
        predictions_digest([one], {}, "logits"),
    ]
    assert len(set(seen)) == 5
    assert predictions_digest([two, one], {}, "auto") == seen[2]
    assert read(MOOD, one.path).digest == seen[0] == read(MOOD, one.path.rename(tmp_path / "c.csv")).digest


def test_labels_and_columns_are_joined_whichever_way_their_characters_are_written(tmp_path: Path) -> None:
    task = Task("분류", "classification", ("내용",), "label", labels=("환불", "배송"))
    nfd = partial(normalize, "NFD")
    rows = [{nfd("내용"): "언제 되나요", nfd("배송"): 0.9, nfd("환불"): 0.1}]
    for labels in ({}, {"환불": "환불", "배송": "배송"}):
        teacher = read_predictions("llm", [data_file(put(tmp_path / "a.jsonl", rows))], task, labels, "auto")
        np.testing.assert_allclose(softmax(teacher.values, axis=1), [[0.1, 0.9]], atol=1e-6)
    hard = [{"내용": "언제 되나요", "label": nfd("배송")}]
    teacher = read_predictions("llm", [data_file(put(tmp_path / "b.jsonl", hard))], task, {}, "auto")
    assert teacher.values.argmax() == 1


def test_a_mapping_that_is_suggested_swaps_no_labels(tmp_path: Path) -> None:
    task = Task("a", "classification", ("text",), "label", labels=("no", "yes", "open"))
    rows = [{"text": "x", "Yes": 0.5, "NO": 0.2, "other": 0.3}]
    with pytest.raises(UserError, match=r"labels: \{Yes: yes, NO: no, other: open\}"):
        read_predictions("llm", [data_file(put(tmp_path / "a.jsonl", rows))], task, {}, "auto")


def test_the_logits_of_labelled_shards_are_taken_as_they_are_and_not_their_labels(stand: Stand, tmp_path: Path) -> None:
    logits = some_logits(MOOD, 6)
    columns = [f"mood_logit_{label}" for label in MOOD.labels]
    rows = joined(keyed(MOOD, TEXTS, False), columns, logits.tolist())
    answers = {"mood_predicted": MOOD.labels[0], "mood_probability": 0.5, MOOD.labels[0]: 1.0, MOOD.labels[1]: 0.0}
    # The same text in another shard: what came before it in its batch moves the last digits.
    again = [{**row, columns[0]: row[columns[0]] + 1e-6} for row in rows[:3]]
    files = (put(tmp_path / "a.parquet", [{**row, **answers} for row in rows]), put(tmp_path / "b.jsonl", again))
    np.testing.assert_allclose(read(MOOD, *files).logits(stand(MOOD, TEXTS)), logits, rtol=1e-4)
    far = put(tmp_path / "c.jsonl", [{**rows[0], columns[0]: rows[0][columns[0]] + 1}])
    with pytest.raises(DataError, match="the same row stands in"):
        read(MOOD, *files, far)
