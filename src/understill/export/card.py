"""The model card: what an exported folder is, made of what, how good, how large, how fast, and what it is not for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from understill.bench.clock import BoundedValue, Latency
from understill.export.parity import TOLERANCE, DevScore, Parity, Rounded
from understill.tasks import Task

#: The first version of sentence-transformers that the cross-encoders written here were tried with.
_PAIRS = "A cross-encoder of modules needs sentence-transformers 6. "


@dataclass(frozen=True)
class Card:
    """The contents of a model card."""

    name: str
    to: str  # huggingface, onnx, int8
    tasks: Sequence[Task]
    max_lengths: Mapping[str, int]
    rows: Mapping[str, Mapping[str, int]]  # by task and split
    network: str
    method: str
    scores: Sequence[DevScore]  # of what is exported
    parity: Sequence[Parity]
    bytes: int
    parameters: int
    latency: Latency
    rate: BoundedValue
    timed: str  # what the speed was measured with: the task, the machine, how it was called
    overlap: Mapping[str, int] = field(default_factory=dict)  # by dev set, its rows that are also in train
    unlabelled: str = ""  # what was read without labels
    rounded: Sequence[Rounded] = field(default=())
    program: Sequence[str] = ()  # code that runs the folder without understill, where that is not pipeline()
    score_link: str = ""  # how a score is made of what a classifier gives, where that is not the score itself


def as_markdown(card: Card) -> str:
    """Return a card as the README.md of a folder."""
    parts = [_head(card), _use(card), _data(card), f"## Method\n\n{card.method}", _scores(card), _size(card)]
    return "\n\n".join([*parts, _limits(card)]) + "\n"


def _head(card: Card) -> str:
    library = "sentence-transformers" if card.program else "transformers"
    front = f"library_name: {library}\npipeline_tag: text-classification\n" if card.to == "huggingface" else ""
    tags = f"---\n{front}tags: [understill, text-classification]\n---\n\n"
    plain = "a sentence-transformers folder" if card.program else "a Hugging Face classifier"
    forms = {"huggingface": plain, "onnx": "an ONNX graph", "int8": "an ONNX graph in int8"}
    names = ", ".join(task.name for task in card.tasks)
    return f"{tags}# {card.name}\n\n{card.network}, for {names}, as {forms[card.to]}. Exported by understill."


def _use(card: Card) -> str:
    lines = ["import understill", "", 'model = understill.load("path/to/this/folder")']
    for pair, asked in ((False, 'model.predict(["…"])'), (True, 'model.predict(["…"], pairs=["…"])')):
        if names := [task.name for task in card.tasks if task.pair == pair]:
            lines.append(f"{asked}  # {', '.join(names)}")
    note = "Needs onnxruntime, tokenizers and numpy; torch is not loaded."
    if card.to == "huggingface":
        inputs = '{"text": "…", "text_pair": "…"}' if card.tasks[0].pair else '"…"'
        lines = [
            "from transformers import pipeline",
            "",
            'ask = pipeline("text-classification", "path/to/this/folder", top_k=None)',
            f"ask({inputs}, truncation=True)",
        ]
        note = f"`understill.load` takes the folder too. {card.score_link}".rstrip()
    if card.program:
        what = "The vector that it gives is the score." if card.tasks[0].kind.scaled else "It gives logits."
        lines, note = list(card.program), f"{what} {_PAIRS if card.tasks[0].pair else ''}{note}"
    return "## Use\n\n```python\n" + "\n".join(lines) + f"\n```\n\n{note}"


def _plain(text: str) -> str:
    """Return text that Markdown leaves as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(text.split()))


def _data(card: Card) -> str:
    rows = ["| task | kind | reads | answers | tokens | rows |", "|---|---|---|---|---|---|"]
    for task in card.tasks:
        counts = ", ".join(f"{split} {count:,}" for split, count in card.rows.get(task.name, {}).items())
        cells = (
            task.name,
            task.kind.name,
            ", ".join(task.text),
            task.kind.answers_with(task),
            f"at most {card.max_lengths[task.name]}",
            counts,
        )
        rows.append("| " + " | ".join(map(_plain, cells)) + " |")
    return "\n\n".join(["## Data", "\n".join(rows), *([_plain(card.unlabelled)] if card.unlabelled else ())])


def _scores(card: Card) -> str:
    rows = ["| dev set | rows | metric | score | 95 % interval |", "|---|---|---|---|---|"]
    rows += [
        f"| {each.place} | {each.rows:,} | {each.metric} | {each.value:.4f} | {each.low:.4f} to {each.high:.4f} |"
        for each in card.scores
    ]
    how = "of an accuracy by Wilson's formula, of another metric by bootstrap"
    text = f"## Scores\n\nThe interval is where the score would lie on other rows like these, {how}.\n\n"
    text += "\n".join(rows)
    for each in card.scores:
        if count := card.overlap.get(each.place):
            what = f"{count:,} of {each.rows:,} rows of {each.place} are also in train"
            text += f"\n\n{what}, which flatters its score."
    if card.rounded:
        rows = ["| dev set | metric | float | int8 |", "|---|---|---|---|"]
        rows += [f"| {each.place} | {each.metric} | {each.before:.4f} | {each.after:.4f} |" for each in card.rounded]
        text += "\n\nWhat rounding the weights has cost:\n\n" + "\n".join(rows)
    checked = "; ".join(
        f"{each.place}: {each.rows:,} rows, largest difference {each.worst:.1e}, {each.changed} labels changed"
        for each in card.parity
    )
    against = "the model before it was rounded" if card.rounded else f"the trained model, tolerance {TOLERANCE:g}"
    return f"{text}\n\nChecked against {against}: {checked}."


def _size(card: Card) -> str:
    return (
        f"## Size and speed\n\n{card.bytes / 1e6:,.1f} MB on disk, {card.parameters:,} parameters.\n\n"
        f"From text to answer, {card.timed}: one text takes {1000 * card.latency.median:.2f} ms "
        f"(95th percentile {1000 * card.latency.p95:.2f} ms), many go at {card.rate.value:,.0f} per second."
    )


def _limits(card: Card) -> str:
    lines = [
        "- It knows what its training rows show: other languages, domains and kinds of text were not measured.",
        "- Dev rows may have been used to choose its weights, so the scores may be a little too high.",
        "- A text beyond its number of tokens is cut, of a pair the longer text first.",
        "- Probabilities are those of a softmax; whether they can be taken at their word was not measured here.",
    ]
    if card.to == "int8":
        lines.append(
            "- Where two answers are about as likely, rounding may turn one into the other; the counts are above."
        )
    return "## Limits\n\n" + "\n".join(lines)
