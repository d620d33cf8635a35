"""A model card says what it is told, whatever names hold."""

from __future__ import annotations

from understill.evaluate.clock import Latency
from understill.evaluate.efficiency import Interval
from understill.ship.card import Card, as_markdown
from understill.tasks import Task


def test_label_names_stay_text_in_one_line() -> None:
    task = Task("mood", "classification", ("text",), "label", ("<b>calm</b>", "a | b", "two\nlines", "`x`"))
    card = Card(
        name="inbox student",
        to="onnx",
        tasks=[task],
        max_lengths={"mood": 32},
        rows={"mood": {"dev": 9}},
        network="A network",
        method="A method.",
        scores=(),
        parity=(),
        bytes=1,
        parameters=1,
        latency=Latency(0.1, 0.1, 0.1),
        rate=Interval(1.0, 1.0, 1.0),
        timed="for mood",
    )
    (row,) = [line for line in as_markdown(card).splitlines() if line.startswith("| mood |")]
    assert r" \<b\>calm\</b\>, a \| b, two lines, \`x\` " in row
