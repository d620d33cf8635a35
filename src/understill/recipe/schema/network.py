"""Models: encoders, networks over words, heads, and what a teacher or the student is trained with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    FieldSerializationInfo,
    PlainSerializer,
    field_serializer,
    field_validator,
)

from understill.errors import UserError, listed
from understill.plugins import NETWORKS
from understill.recipe.schema.training import Training
from understill.recipe.section import Count, Fault, Fraction, Positive, Section, Text, none_for, shown
from understill.tasks import Task

SomeSection = TypeVar("SomeSection", bound=Section)


def _as_options(value: Any) -> Any:
    if isinstance(value, dict):
        value = tuple(value.items())
    plain = isinstance(value, tuple) and all(isinstance(given, (bool, int, float, str)) for _, given in value)
    if not plain:
        raise ValueError(f"{shown(value)} is not allowed → write names and plain values, as in {{kernel: 3}}")
    return value


# Pairs, since specs are compared and hashed.
Options = Annotated[tuple[tuple[str, Any], ...], BeforeValidator(_as_options), PlainSerializer(dict)]


class WordsSpec(Section):
    """The networks over words, `bilstm`, `static` and plug-ins: their sizes, words and the vectors of these."""

    hidden: Count = 150  # of each direction of the BiLSTM, and what plug-ins make of it
    dense: Count = 200  # of the ReLU layer in each task's head
    size: Count | None = None  # of a word's vector; that of the file, or 300
    vectors: Annotated[Text | None, none_for("none")] = None  # a file or a package; random where there is none
    channels: Literal["trainable", "static", "both"] = "trainable"
    vocabulary: Count = 50_000  # the most frequent words of the training text are kept
    tokenizer: Text = "words"  # or an encoder, whose pieces of words are taken
    options: Options = ()  # settings that a plug-in's network has besides

    def path_keys(self) -> tuple[str, ...]:
        """Return the keys whose values are paths."""
        return ("vectors",) if self.tokenizer == "words" else ("vectors", "tokenizer")

    def faults(self) -> Iterator[Fault]:
        """Yield vectors that cannot be used."""
        if self.vectors is None and self.channels != "trainable":
            fix = "name vectors, or write channels: trainable"
            yield "channels", f"random vectors that are not trained say little → {fix}"
        if self.vectors is not None and self.tokenizer != "words":
            yield "tokenizer", "files have vectors of whole words → leave vectors out, or the tokenizer"


class EncoderSpec(Section):
    """The encoder: a pretrained one by short name, folder or hub id, or a network over words, and how it is read."""

    name: str = "minilm"
    pooling: Literal["auto", "default", "mean", "normalised"] = "auto"  # auto: as its files say
    max_length: Annotated[int, Field(ge=8)] = 128
    dropout: Fraction | None = None  # inside the encoder; its own setting when not given
    layers: Count | None = None  # keep only so many of its layers
    pick: Literal["first", "spaced"] = "spaced"  # which ones: from the bottom, or evenly spaced with both ends
    words: WordsSpec = WordsSpec()  # of the networks over words

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take the name alone."""
        if not isinstance(value, (str, dict)):
            raise ValueError(f"{shown(value)} is no encoder → write a name, such as minilm")
        return {"name": value} if isinstance(value, str) else value

    @property
    def own(self) -> bool:
        """Whether it is a network over words, which begins at random."""
        return self.name in NETWORKS

    def path_keys(self) -> tuple[str, ...]:
        """Return the keys whose values are paths."""
        return () if self.own else ("name",)

    def idle(self, name: str) -> Iterator[Fault]:
        """Yield what is set here and has no effect in an encoder of this name."""
        if name not in NETWORKS:
            if self.words != WordsSpec():
                yield "words", f"{name} has words of its own → leave it out, or name {listed(list(NETWORKS))}"
            return
        for key in ("layers", "pick", "pooling"):
            if getattr(self, key) != type(self).model_fields[key].default:
                yield key, f"{name} has no such setting → leave it out"


class SanSpec(Section):
    """The stochastic answer network."""

    steps: Count = 5  # looks at the first text
    step_dropout: Fraction = 0.1  # of whole answers, while training
    authors_order: bool = False  # answer from the state before its update, as the released code does


class HeadSpec(Section):
    """What is different about one task's head."""

    dropout: Fraction | None = None
    kind: Literal["linear", "san", "siamese"] | None = None
    lr: Positive | None = None  # its learning rate, where it is not training.head_lr


class HeadsSpec(Section):
    """The small networks on top of the encoder, one per task."""

    dropout: Fraction = 0.1
    regression: Literal["sigmoid", "unit", "raw"] = "unit"
    pairs: Literal["auto", "linear", "san", "siamese"] = "auto"  # the head of pair tasks; SAN sorts into classes alone
    san: SanSpec = SanSpec()
    tasks: dict[str, HeadSpec] = Field(default_factory=dict)

    def faults(self) -> Iterator[Fault]:
        """Yield heads that exclude each other."""
        if {"san", "siamese"} <= {self.pairs, *(own.kind for own in self.tasks.values())}:
            yield "pairs", "no model has both san and siamese heads → write one of them"

    def siamese(self, task: Task) -> bool:
        """Tell whether a task's head compares two texts that are read apart."""
        return self._head_is(task, "siamese", task.pair, "compares two texts")

    def san_of(self, task: Task) -> SanSpec | None:
        """Return the settings of a task's stochastic answer network; None where its head is linear."""
        fits = task.pair and task.kind.has_classes
        return self.san if self._head_is(task, "san", fits, "sorts pairs of texts into classes") else None

    def _head_is(self, task: Task, kind: str, fits: bool, does: str) -> bool:
        """Tell whether a task's head is of a kind, which the task must fit where it names that itself."""
        own = self.tasks.get(task.name)
        named = own.kind if own else None
        if named == kind and not fits:
            raise UserError(f"heads.tasks.{task.name}.kind: {kind} {does} → write linear")
        return (named or self.pairs) == kind and fits

    def dropout_of(self, task: str) -> float:
        """Return the dropout in front of a task's head."""
        own = self.tasks.get(task)
        return self.dropout if own is None or own.dropout is None else own.dropout


class Partial(Section):
    """A part of the recipe whose sections hold only what differs from the top of the recipe."""

    encoder: EncoderSpec | None = None
    heads: HeadsSpec | None = None
    training: Training | None = None
    finetune: Training | None = None  # afterwards, on each task alone: what differs from the training before

    @field_validator("finetune", mode="before")
    @classmethod
    def _finetune(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_serializer("encoder", "heads", "training", "finetune")
    def _given(self, value: Section | None, info: FieldSerializationInfo) -> Any:
        # Were defaults written out, a copy would no longer follow the top of the recipe.
        return None if value is None else value.model_dump(mode=info.mode, exclude_unset=True)


class Settings(Section):
    """The encoder, heads and hyperparameters of one model."""

    encoder: EncoderSpec
    heads: HeadsSpec
    training: Training


def over(base: SomeSection, given: SomeSection | None) -> SomeSection:
    """Return a section overridden by the values that another was given."""
    if given is None:
        return base
    changes = {key: getattr(given, key) for key in given.model_fields_set}
    if "epochs" in changes and "steps" not in changes:
        changes["steps"] = None  # which would override the epochs that are asked for
    return base.model_copy(update=changes)
