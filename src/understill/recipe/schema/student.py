"""The student: its distillation, unlabelled rows and augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from understill.recipe.schema.distil import Distil
from understill.recipe.schema.network import Partial
from understill.recipe.section import Count, Fault, Names, Section, Seed, Share, none_for, shown


class TaskAugment(Section):
    """What one task's augmentation does differently."""

    times: Count | None = None


class AugmentSpec(Section):
    """What is made of training rows for the student: words masked or swapped for others of their part of speech."""

    mask: Share = 0.1  # of words
    pos: Share = 0.1  # of words; never a masked one
    ngram: Share = 0.25  # of texts: only one n-gram is kept
    times: Count = 20  # for each row; what comes out twice is dropped
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

    def faults(self) -> Iterator[Fault]:
        """Yield shares with which nothing can be made."""
        if self.mask + self.pos > 1:
            what = f"{self.mask:g} of the words are masked, so no {self.pos:g} are left to be swapped"
            yield "pos", f"{what} → at most {1 - self.mask:g}"
        if not (self.mask or self.swaps or self.ngram):
            yield "", "nothing is changed about any row → give mask, pos or ngram a share, or leave it out"

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
    augment: Annotated[AugmentSpec | None, none_for(False)] = None  # further rows made of the training rows
    baseline: bool = True  # the same student without teachers is trained too

    @field_validator("unlabelled")
    @classmethod
    def _some_gold(cls, value: float | None) -> float | None:
        if value == 1:
            raise ValueError("there would be no labelled row → write a share below 1")
        return value
