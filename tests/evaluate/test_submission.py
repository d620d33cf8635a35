"""GLUE's submission: every answer in the benchmark's words."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.evaluate.submission import SHEETS, as_answers, as_text, in_words, packed
from understill.inference.predictor import Predictions
from understill.tasks import GLUE, RANKING, Task


def test_the_files_have_the_names_and_the_rows_that_the_benchmark_wants() -> None:
    assert {name: sheet.rows for name, sheet in SHEETS.items()} == {
        "CoLA.tsv": 1063,
        "SST-2.tsv": 1821,
        "MRPC.tsv": 1725,
        "STS-B.tsv": 1379,
        "QQP.tsv": 390965,
        "MNLI-m.tsv": 9796,
        "MNLI-mm.tsv": 9847,
        "QNLI.tsv": 5463,
        "RTE.tsv": 3000,
        "WNLI.tsv": 146,
        "AX.tsv": 1104,
    }


@pytest.mark.parametrize(
    ("name", "labels", "words"),
    [
        ("CoLA.tsv", ["unacceptable", "acceptable"], ["0", "1"]),
        ("SST-2.tsv", ["negative", "positive"], ["0", "1"]),
        ("MRPC.tsv", ["not_paraphrase", "paraphrase"], ["0", "1"]),
        ("QQP.tsv", ["not_paraphrase", "paraphrase"], ["0", "1"]),
        ("WNLI.tsv", ["not_entailment", "entailment"], ["0", "1"]),
        ("RTE.tsv", ["not_entailment", "entailment"], ["not_entailment", "entailment"]),
        ("QNLI.tsv", ["entailment", "not_entailment"], ["entailment", "not_entailment"]),
        ("MNLI-mm.tsv", ["neutral", "contradiction", "entailment"], ["neutral", "contradiction", "entailment"]),
        ("AX.tsv", ["contradiction", "neutral"], ["contradiction", "neutral"]),
    ],
)
def test_labels_become_the_words_of_the_benchmark(name: str, labels: list[str], words: list[str]) -> None:
    assert in_words(SHEETS[name], labels) == words


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_scores_stay_within_0_and_5_with_three_decimals(scores: list[float]) -> None:
    for score, word in zip(scores, in_words(SHEETS["STS-B.tsv"], scores), strict=True):
        assert re.fullmatch(r"[0-5]\.\d{3}", word)
        assert float(word) == pytest.approx(min(5.0, max(0.0, score)), abs=5.1e-4)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=1))
def test_the_best_candidate_of_each_query_is_right_and_the_others_are_wrong(rows: list[tuple[int, int]]) -> None:
    task = RANKING.recast(GLUE["qnli"].task)
    assert task is not None
    groups = np.unique([group for group, _ in rows], return_inverse=True)[1]
    scores = np.array([[score] for _, score in rows], np.float32)
    answers = as_answers(Predictions(task, scores), groups)
    for group in range(groups.max() + 1):
        mine = np.flatnonzero(groups == group)
        best = max(mine, key=lambda row: (scores[row, 0], -row))
        assert [row for row in mine if answers[row] == "entailment"] == [best]
    assert set(answers) <= {"entailment", "not_entailment"}


def test_classes_are_named_in_the_order_of_the_model() -> None:
    task = Task("rte", "classification", ("a", "b"), "label", labels=("not_entailment", "entailment"))
    printed = Predictions(task, np.array([[0.0, 1.0], [1.0, 0.0]], np.float32))
    assert in_words(SHEETS["RTE.tsv"], as_answers(printed, None)) == ["entailment", "not_entailment"]


WNLI = as_text(["0"] * 146)


def test_the_same_files_give_the_same_zip() -> None:
    files: dict[str, Any] = {"WNLI.tsv": WNLI, "AX.tsv": as_text(["neutral"] * 3)}
    assert packed(files) == packed(files)
    with zipfile.ZipFile(io.BytesIO(packed(files))) as result:
        assert result.testzip() is None
        assert {name: result.read(name).decode() for name in result.namelist()} == files
