"""Labelled data that looks wrong is warned about in a sentence each, and nothing else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from understill.data.doubts import contradictions, header_doubt, several_labels, singles, spellings
from understill.data.load import load_tasks
from understill.recipe import make_recipe

FIX = "→ keep one label of each, or leave these rows out"


def warnings(folder: Path, caplog: pytest.LogCaptureFixture, lines: list[str], **spec: object) -> list[str]:
    """What is said of a file with these lines."""
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = {"train": str(folder / "train.csv"), "dev": str(folder / "train.csv"), "text": "message", "label": "queue"}
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        load_tasks(make_recipe({"tasks": {"tickets": {**task, **spec}}}), folder / "cache")
    return [message for message in caplog.messages if "tickets/train" in message]


def test_a_text_with_two_labels_is_counted() -> None:
    one = contradictions([1, 1, 2, 2, 3], ["bug", "bug", "bug", "billing", None], pair=False)
    assert one == f'1 text has contradicting labels, such as "bug" and "billing" {FIX}'
    two = contradictions([1, 1, 1, 2, 2], ["a", "b", "c", "a", "b"], pair=True)
    assert two == f'2 pairs have contradicting labels, such as "a" and "b" {FIX}'
    assert contradictions([1, 2, 1], ["a", "b", None], pair=False) == ""


def test_labels_that_differ_in_case_or_marks_are_named() -> None:
    sentence = spellings(["Bug", "BUG", "bug.", "other", "(other)", "C", "C++", "C#", "+1", "-1", ":)", ":("])
    assert '"BUG", "Bug" and "bug."; "(other)" and "other" → write each label in one way' in sentence
    assert spellings(["bug", "bugs", "a b", "ab"]) == ""
    many = spellings([form for number in range(5) for form in (f"a{number}", f"A{number}")])
    assert '"A2" and "a2"; 2 more →' in many


def test_labels_of_a_single_row_are_named() -> None:
    assert singles({"a": 2, "b": 1}) == '1 label has a single row: "b" → add rows, or leave the label out'
    assert singles(dict.fromkeys("abcde", 1)).startswith('5 labels have a single row each: "a", "b", "c", 2 more →')
    assert singles({"a": 2}) == ""


@pytest.mark.parametrize(
    ("labels", "example"),
    [
        (["app", "billing", "app;billing"], "app;billing"),
        (["app|billing", "app|login", "login | billing"], "app|billing"),
        (["account", "app", "account, app"], "account, app"),
        (["Seoul, Korea", "Busan, Korea", "Oslo, Norway"], ""),
        (["Hats, gloves", "shoes", "1,5", "1,6", "a;"], ""),
    ],
)
def test_cells_of_several_labels_are_named(labels: list[str], example: str) -> None:
    doubt = several_labels(labels)
    assert doubt.startswith(f'cells such as "{example}" hold several labels; ') if example else doubt == ""


def test_a_header_that_reads_like_a_row_is_named() -> None:
    charged = "I was charged twice"
    doubt = header_doubt([charged], "billing", {"billing"})
    assert doubt.startswith(f'the column names "{charged}" and "billing" look like data →')
    assert header_doubt(["x" * 61], "queue", {"queue"}).startswith(f'the column names "{"x" * 59}…" and "queue" look')
    assert header_doubt(["hello", "world"], "4,5", {"world"}), "a score is not among the values, and is no name"
    assert '"a b"' in header_doubt(["a\nb"], "1", {"a\nb"}), "a warning is one line, whatever a file holds"


@pytest.mark.parametrize(
    ("text", "label", "values"),
    [
        ("message", "spam", {"spam"}),  # a column of spam and ham
        ("What could we do better in the future?", "topic", {"billing"}),  # a survey
        ("저희 서비스에서 개선되었으면 하는 점을 자유롭게 적어 주세요", "분류", set()),
        ("query", "intent", {"query"}),  # one of the texts is the name of their column
    ],
)
def test_a_header_with_one_odd_name_is_a_header(text: str, label: str, values: set[str]) -> None:
    assert header_doubt([text], label, values) == ""


def test_own_data_with_doubtful_labels_is_warned_about_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["message,queue", *(f"text {number},{('bug', 'Bug')[number % 2]}" for number in range(30))]
    lines += ["text 0,Bug", "alone,odd"]
    for _ in range(2):  # the second time, the rows are read from the cache
        said = warnings(tmp_path, caplog, lines)
        assert [message.split(" → ")[0] for message in said] == [
            'tickets/train: 1 text has contradicting labels, such as "bug" and "Bug"',
            'tickets/train: labels differ only in case or punctuation: "Bug" and "bug"',
            'tickets/train: 1 label has a single row: "odd"',
        ]
    said = warnings(tmp_path, caplog, lines, labels=["bug", "Bug", "odd"])
    assert not any("differ only" in message for message in said)


def test_cells_of_several_labels_are_warned_about_unless_they_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = ["app", "billing", "app;billing"]
    lines = ["message,queue", *(f"text {number},{labels[number % 3]}" for number in range(30))]
    (said,) = warnings(tmp_path, caplog, lines)
    assert 'cells such as "app;billing" hold several labels' in said
    assert warnings(tmp_path, caplog, lines, labels=labels) == []


def test_a_label_is_single_by_the_rows_of_the_file_not_by_those_left_in_train(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["message,queue", *(f"text {number},{('bug', 'idea')[number % 2]}" for number in range(60))]
    lines += [f"rare {number},rare {number // 2}" for number in range(20)]
    assert not any("single row" in message for message in warnings(tmp_path, caplog, lines, dev=0.3))
    assert not any("single row" in message for message in warnings(tmp_path, caplog, lines, rows=40))
    (said,) = (m for m in warnings(tmp_path, caplog, [*lines, "alone,odd"], dev=0.3) if "single row" in m)
    assert '1 label has a single row: "odd"' in said


def test_a_file_without_a_header_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"text number {number},{('billing', 'login')[number % 2]}" for number in range(30)]
    (said,) = warnings(tmp_path, caplog, rows, text="text number 0", label="billing")
    assert 'tickets/train: the column names "text number 0" and "billing" look like data' in said


def test_sound_data_is_not_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"text {number},{('billing', 'login')[number % 2]}" for number in range(30)]
    assert warnings(tmp_path, caplog, ["message,queue", *rows, rows[0]]) == []
    scores = [f"text {number},{number / 7}" for number in range(30)]
    assert warnings(tmp_path, caplog, ["message,queue", *scores, "text 0,9"], kind="regression") == []


def test_the_keys_of_json_lines_are_no_header(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f'{{"message": "message", "queue": "{("queue", "login")[number % 2]}"}}' for number in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, *rows]), encoding="utf-8")
    (said,) = warnings(tmp_path, caplog, [""], train=str(tmp_path / "a.jsonl"), dev=str(tmp_path / "a.jsonl"))
    assert "contradicting" in said


def test_whole_numbers_written_in_two_ways_are_one_label() -> None:
    assert '"1" and "1.0"' in spellings(["0", "1", "1.0"])
    assert not spellings(["1.0", "1.5", "2"])
