"""Tasks: the table of GLUE, and a task that survives being written down."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.names import is_task_name
from understill.tasks import GLUE, KINDS, Task
from understill.tasks.cells import Fault, LabelReader, sorted_labels
from understill.tasks.ranking import wrong_and_right

#: name: (folder, train, dev, kind of its texts, primary metric); the official numbers of rows.
TABLE = {
    "cola": ("CoLA", 8551, 1043, "sentence", "matthews"),
    "sst2": ("SST-2", 67349, 872, "sentence", "accuracy"),
    "mrpc": ("MRPC", 3668, 408, "pair", "accuracy"),
    "stsb": ("STS-B", 5749, 1500, "pair", "pearson_spearman"),
    "qqp": ("QQP", 363846, 40430, "pair", "accuracy"),
    "mnli": ("MNLI", 392702, 9815, "pair", "accuracy"),
    "qnli": ("QNLI", 104743, 5463, "pair", "accuracy"),
    "rte": ("RTE", 2490, 277, "pair", "accuracy"),
    "wnli": ("WNLI", 635, 71, "pair", "accuracy"),
    "ax": ("AX", None, 1104, "pair", "matthews"),
}


def test_glue_is_these_ten_tasks_with_the_official_counts_and_metrics() -> None:
    result = {
        name: (
            entry.folder,
            entry.counts.get("train"),
            entry.counts["dev"],
            "pair" if entry.task.pair else "sentence",
            entry.task.metrics[0],
        )
        for name, entry in GLUE.items()
    }
    assert result == TABLE
    assert all(entry.task.name == name for name, entry in GLUE.items())
    assert {name for name, entry in GLUE.items() if "dev_mismatched" in entry.counts} == {"mnli"}
    assert GLUE["mnli"].counts["dev_mismatched"] == 9832


def test_labels_stand_in_the_order_of_the_usual_ids() -> None:
    three = ("entailment", "neutral", "contradiction")
    assert GLUE["mnli"].task.labels == GLUE["ax"].task.labels == three
    assert GLUE["qnli"].task.labels == GLUE["rte"].task.labels == ("entailment", "not_entailment")
    assert GLUE["wnli"].task.labels == ("not_entailment", "entailment")
    assert GLUE["qqp"].task.labels == GLUE["mrpc"].task.labels == ("not_paraphrase", "paraphrase")
    assert GLUE["cola"].task.labels == ("unacceptable", "acceptable")
    assert GLUE["sst2"].task.labels == ("negative", "positive")
    assert GLUE["stsb"].task.labels == ()


def test_only_similarity_is_a_score_from_0_to_5() -> None:
    scored = {name for name, entry in GLUE.items() if entry.task.kind.name == "regression"}
    assert scored == {"stsb"}
    assert (GLUE["stsb"].task.range, GLUE["stsb"].task.outputs) == ((0.0, 5.0), 1)
    assert all(entry.task.range is None for name, entry in GLUE.items() if name != "stsb")


def test_the_diagnostic_set_is_answered_by_the_head_of_mnli_and_all_others_by_their_own() -> None:
    assert {name for name, entry in GLUE.items() if entry.task.head != name} == {"ax"}
    assert GLUE["ax"].task.head == "mnli"


def test_only_paraphrase_and_similarity_do_not_care_about_order() -> None:
    assert {name for name, entry in GLUE.items() if entry.task.symmetric} == {"mrpc", "qqp", "stsb"}


def test_f1_is_reported_beside_accuracy_for_paraphrases() -> None:
    assert GLUE["mrpc"].task.metrics == GLUE["qqp"].task.metrics == ("accuracy", "f1")
    for entry in GLUE.values():
        assert set(entry.task.metrics) <= set(entry.task.kind.metrics)


def test_what_is_not_said_has_a_default() -> None:
    task = Task("mood", "classification", ("text",), "label")
    assert (task.metrics, task.head, task.outputs, task.pair) == (("accuracy",), "mood", 0, False)
    assert replace(task, labels=("calm", "upset")).outputs == 2
    scored = Task("alike", "regression", ("a", "b"), None)
    assert (scored.metrics, scored.outputs, scored.pair) == (("pearson_spearman",), 1, True)
    ranked = Task("best", "ranking", ("query", "candidate"), "label", ("0", "1"))
    assert (ranked.metrics, ranked.outputs, ranked.columns) == (("precision_at_1",), 1, ("query", "candidate"))
    assert replace(ranked, group="id").columns == ("query", "candidate", "id")
    with pytest.raises(FrozenInstanceError):
        task.name = "other"  # type: ignore[misc]


WORDS = st.text(min_size=1, max_size=8)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8).filter(is_task_name)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Any task, with names in any language."""
    kind = draw(st.sampled_from(["classification", "ranking", "regression"]))
    scores = st.floats(allow_nan=False, allow_infinity=False)
    return Task(
        name=draw(NAMES),
        kind=kind,  # type: ignore[arg-type]
        text=tuple(draw(st.lists(WORDS, min_size=1, max_size=2))),
        label=draw(st.none() | WORDS),
        labels=tuple(draw(st.lists(WORDS, max_size=5, unique=True))),
        range=draw(
            st.none() | st.lists(scores, min_size=2, max_size=2, unique=True).map(lambda ends: tuple(sorted(ends)))
        ),
        metrics=tuple(draw(st.lists(st.sampled_from(KINDS[kind].metrics), unique=True))),
        symmetric=draw(st.booleans()),
        head=draw(st.just("") | NAMES),
        group=draw(st.none() | WORDS) if kind == "ranking" else None,
    )


@given(tasks())
def test_a_task_survives_being_written_as_json(task: Task) -> None:
    again = Task.from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task
    assert hash(again) == hash(task)  # tuples all the way, not lists


def test_tasks_are_written_and_read_as_before_there_was_ranking() -> None:
    values = {
        "name": "mood",
        "kind": "classification",
        "text": ["message"],
        "label": "label",
        "labels": ["calm", "upset"],
        "range": None,
        "metrics": ["accuracy"],
        "symmetric": False,
        "head": "mood",
    }
    task = Task.from_dict(values)
    assert task == Task("mood", "classification", ("message",), "label", ("calm", "upset"))
    assert task.to_dict() == values  # fingerprints are made of it


def test_kinds_are_light_until_they_compute() -> None:
    program = "import sys, understill.tasks; print(sorted({'numpy', 'torch', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_copy_of_a_task_has_the_very_same_kind() -> None:
    for entry in GLUE.values():
        for copied in (copy.deepcopy(entry.task), pickle.loads(pickle.dumps(entry.task)), copy.copy(entry.task)):
            assert copied == entry.task and copied.kind is entry.task.kind


@pytest.mark.parametrize(("known", "cell", "label"), [("1", "1.0", "1"), ("1.0", "1", "1.0"), ("-2", "-2.00", "-2")])
def test_class_ids_that_pandas_wrote_with_a_point_are_the_same_ones(known: str, cell: str, label: str) -> None:
    reader = LabelReader("queue", frozenset({known, "7"}), sorted_labels)
    assert reader(cell) == label
    for other in ("1.5", "70", "7.01", "v1.0"):
        with pytest.raises(Fault, match="unknown label"):
            reader(other)


def test_versions_stay_apart_where_both_are_labels() -> None:
    reader = LabelReader("version", frozenset({"1", "1.0"}), sorted_labels)
    assert [reader(cell) for cell in ("1", "1.0")] == ["1", "1.0"]


def test_right_candidates_are_known_with_a_decimal_point_too() -> None:
    assert wrong_and_right(["1.0", "0.0"]) == ("0.0", "1.0")
