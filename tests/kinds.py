"""Model folders of every kind of student, untrained: their answers differ from text to text, and that is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from helpers import liven
from tiny import WORDS, save_tiny
from understill.data.word_tokenizer import word_tokenizer
from understill.models.encoder import load_tokenizer
from understill.models.folder import save_model
from understill.models.multitask import MultiTaskModel, new_model
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task

MOOD = Task("mood", "classification", ("text",), "label", labels=("calm", "upset"))
TOPIC = Task("topic", "classification", ("text",), "label", labels=("delivery", "money", "access"))
STARS = Task("stars", "regression", ("text",), "label", range=(1.0, 5.0))
FOLLOWS = Task("follows", "classification", ("premise", "claim"), "label", labels=("yes", "no", "open"))
ALIKE = Task("alike", "regression", ("premise", "claim"), "label", range=(-1.0, 1.0))
BEST = Task("best", "ranking", ("question", "answer"), "label", labels=("wrong", "right"))
#: One text and two, classes, scores and candidates, and a task that reads fewer tokens than the others.
TASKS = (MOOD, TOPIC, STARS, FOLLOWS, ALIKE, BEST)
LENGTHS = {"topic": 8}

TEXTS = [
    "The parcel never came .",
    "good",
    "I was charged twice for one order !",
    "not bad at all",
    "",
    "the film was good but far too long ? My account is locked , please reset the password " * 3,
    "a small man plays",
]
SECOND = ["nobody listens", "far too long", "My account is locked", "", "bad", "the guitar " * 30, "a small man plays"]

#: What a student can be: an encoder's architecture or a network over words, and its heads.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "san": ("bert", {"pairs": "san", "regression": "raw"}),
    "siamese": ("bert", {"pairs": "siamese"}),
    "siamese-and-cross": ("roberta", {"pairs": "siamese", "own": {"follows": {"kind": "linear"}}}),
    "roberta": ("roberta", {"regression": "unit"}),
    "bilstm": ("bilstm", {}),
    "static": ("static", {}),
}


def save_kind(
    folder: Path,
    network: str,
    tasks: tuple[Task, ...] = TASKS,
    own: dict[str, Any] | None = None,
    pooling: Literal["default", "mean", "normalised"] = "default",
    **settings: Any,
) -> Path:
    """Write a model folder with such a network and these tasks; `own` is what is different about some heads."""
    torch.manual_seed(0)
    # Weights are drawn, so a line would leave the scale; a sigmoid tells rows apart.
    heads = HeadsSpec(**{"regression": "sigmoid", **settings}, tasks=own or {})
    lengths = {task.name: LENGTHS.get(task.name, 32) for task in tasks}
    if network in ("bilstm", "static"):
        tokenizer = word_tokenizer([WORDS], 100)
        config = WordsConfig(network, vocab_size=len(tokenizer), size=6, hidden=5, dense=7)
        model = MultiTaskModel(WordEncoder(config), tasks, heads)
    else:
        tiny = save_tiny(folder.with_name(f"{folder.name}-encoder"), network)
        tokenizer = load_tokenizer(str(tiny))
        model = new_model(EncoderSpec(name=str(tiny), max_length=32, pooling=pooling), heads, tasks, seed=0)
    liven(model)
    save_model(folder, model, tokenizer, lengths, "{}\n", {})
    return folder
