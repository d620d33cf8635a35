"""A model card says what it is told, whatever names hold."""

from __future__ import annotations

from typing import Any

from kinds import FOLLOWS, MOOD, TOPIC
from understill.bench.clock import BoundedValue, Latency
from understill.export.card import Card, as_markdown
from understill.export.parity import DevScore
from understill.tasks import Task


def card_of(*tasks: Task, **more: Any) -> Card:
    """Return a card of some tasks."""
    facts: dict[str, Any] = {
        "name": "inbox student",
        "to": "onnx",
        "tasks": tasks,
        "max_lengths": {task.name: 32 for task in tasks},
        "rows": {"mood": {"dev": 9}},
        "network": "A network",
        "method": "A method.",
        "scores": (),
        "parity": (),
        "bytes": 1,
        "parameters": 1,
        "latency": Latency(0.1, 0.1, 0.1),
        "rate": BoundedValue(1.0, 1.0, 1.0),
        "timed": "for mood",
    }
    return Card(**{**facts, **more})


def test_single_texts_and_pairs_are_both_shown_with_the_tasks_that_read_them() -> None:
    both = as_markdown(card_of(MOOD, TOPIC, FOLLOWS))
    assert 'model.predict(["…"])  # mood, topic\nmodel.predict(["…"], pairs=["…"])  # follows\n```' in both
    assert "pairs=" not in as_markdown(card_of(MOOD))
    assert 'model.predict(["…"])' not in as_markdown(card_of(FOLLOWS))


def test_dev_rows_that_are_also_in_train_are_told_beside_the_scores() -> None:
    scores = [DevScore("mood/dev", 1500, "accuracy", 0.9, 0.8, 0.95), DevScore("topic/dev", 9, "accuracy", 1, 1, 1)]
    output = as_markdown(card_of(MOOD, TOPIC, scores=scores, overlap={"mood/dev": 6, "topic/dev": 0}))
    assert "6 of 1,500 rows of mood/dev are also in train, which flatters its score." in output
    assert output.count("also in train") == 1


def test_what_was_read_without_labels_stands_with_the_data() -> None:
    assert "\n\nIt also read texts.\n\n## Method" in as_markdown(card_of(MOOD, unlabelled="It also read texts."))


def test_label_names_stay_text_in_one_line() -> None:
    task = Task("mood", "classification", ("text",), "label", ("<b>calm</b>", "a | b", "two\nlines", "`x`"))
    card = card_of(task)
    (row,) = [line for line in as_markdown(card).splitlines() if line.startswith("| mood |")]
    assert r" \<b\>calm\</b\>, a \| b, two lines, \`x\` " in row
