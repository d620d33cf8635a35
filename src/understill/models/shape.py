"""The shape of heads: how an encoder's architecture gets from a row's vector to logits."""

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
