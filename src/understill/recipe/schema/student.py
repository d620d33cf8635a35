"""The student: what it learns from, besides the rows as they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from understill.recipe.mistakes import shown
from understill.recipe.schema.distil import Distil
from understill.recipe.schema.layers import Partial
from understill.recipe.section import Names, Section, Seed, Share, faulty


class TaskAugment(Section):
    """What one task's augmentation does differently."""

    times: Annotated[int, Field(ge=1)] | None = None


class AugmentSpec(Section):
    """What is made of training rows for the student: words masked or swapped for others of their part of speech."""

    mask: Share = 0.1  # of words
    pos: Share = 0.1  # of words; never a masked one
    ngram: Share = 0.25  # of texts: only one n-gram is kept
    times: Annotated[int, Field(ge=1)] = 20  # for each row; what comes out twice is dropped
    tagger: str = "auto"  # spacy, textblob, that of a plug-in, or none
    seed: Seed | Literal["student"] = 0  # of its own: one set serves all seeds of the student
    baseline: bool = False  # the baseline is trained on it too
    tasks: dict[str, TaskAugment] = Field(default_factory=dict)

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `true` for the defaults."""
        if value is not True and not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write true, or what differs: {{times: 10}}")
        return {} if value is True else value

    @model_validator(mode="after")
    def _whole(self) -> AugmentSpec:
        if self.mask + self.pos > 1:
            what = f"{self.mask:g} of the words are masked, so no {self.pos:g} are left to be swapped"
            raise faulty(("pos", f"{what} → at most {1 - self.mask:g}"))
        if not (self.mask or self.swaps or self.ngram):
            raise faulty(("", "nothing is changed about any row → give mask, pos or ngram a share, or leave it out"))
        return self

    @property
    def swaps(self) -> bool:
        """Whether words are swapped, for which a tagger is needed."""
        return self.pos > 0 and self.tagger != "none"

    def times_of(self, task: str) -> int:
        """Return how often each row of a task is gone through."""
        own = self.tasks.get(task)
        return self.times if own is None or own.times is None else own.times


class StudentSpec(Partial):
    """The model that is wanted; what is not given here is as at the top of the recipe."""

    tasks: Names = ()  # all, where none is named
    models: Literal["together", "each"] | None = None
    distil: Distil = Distil()
    unlabelled: Share | None = None  # of each task's rows in a batch; half, where a task names unlabelled files
    augment: AugmentSpec | None = None  # it is trained on rows made of the training rows too
    baseline: bool = True  # the same student without teachers is trained too

    @field_validator("augment", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value is False else value

    @field_validator("unlabelled")
    @classmethod
    def _some_gold(cls, value: float | None) -> float | None:
        if value == 1:
            raise ValueError("there would be no labelled row → write a share below 1")
        return value
