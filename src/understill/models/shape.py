"""The shape of heads: the layers between an architecture's token states and the logits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HeadShape:
    """How an architecture's own sequence classifier gets from token states to logits."""

    pooler: bool  # the encoder's pooler comes first, shared by all tasks; otherwise each head has a dense layer
    activation: str = "tanh"
    early_dropout: bool = True  # dropout before the dense layer as well as after it
    dense: int | None = None  # the size of the dense layer; that of the vector it reads, where none is given
    pair: int = 1  # how many times as wide as a text's vector a pair's is


#: As in each architecture's `…ForSequenceClassification`, so that a task can leave as a plain Hugging Face model.
HEAD_SHAPES: dict[str, HeadShape] = {
    "bert": HeadShape(pooler=True),
    "albert": HeadShape(pooler=True),
    "roberta": HeadShape(pooler=False),
    "xlm-roberta": HeadShape(pooler=False),
    "camembert": HeadShape(pooler=False),
    "mpnet": HeadShape(pooler=False),
    "electra": HeadShape(pooler=False, activation="gelu"),
    "deberta": HeadShape(pooler=False, activation="gelu"),
    "deberta-v2": HeadShape(pooler=False, activation="gelu"),
    "distilbert": HeadShape(pooler=False, activation="relu", early_dropout=False),
}
#: What the configs of our own networks over words call them.
WORDS = "understill-words"
