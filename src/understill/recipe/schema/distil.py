"""Distillation: the losses and weights of a student, teacher annealing, and how teachers are combined."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from understill.errors import nearest
from understill.plugins import ANNEALING, LOSSES
from understill.recipe.section import (
    Count,
    Fault,
    Names,
    Positive,
    Section,
    Share,
    Weight,
    faulty,
    none_for,
    one_of,
    shown,
)

# Annealing ------------------------------------------------------------------------------------------------------------


@ANNEALING.own("linear")
def linear(progress: Any) -> Any:
    """Go evenly."""
    return progress


@ANNEALING.own("cosine")
def cosine(progress: Any) -> Any:
    """Begin and end slowly."""
    angle = progress * math.pi
    return (1 - (math.cos(angle) if isinstance(angle, float | int) else angle.cos())) / 2


@ANNEALING.own("quadratic")
def quadratic(progress: Any) -> Any:
    """Begin slowly."""
    return progress**2


class Anneal(Section):
    """Teacher annealing: λ, the weight of the gold label, over the run; the teacher has 1 − λ."""

    start: Share = 0.0
    end: Share = 1.0
    shape: Annotated[str, BeforeValidator(lambda value: one_of(value, ANNEALING))] = "linear"

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `linear` or another shape, or one λ for the whole run."""
        if isinstance(value, str):
            return {"shape": value}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value}
        if not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write linear, one λ such as 0.5, or none")
        return value

    def at(self, progress: float) -> float:
        """Return λ after this share of the run."""
        return self.start + (self.end - self.start) * float(ANNEALING[self.shape](progress))


# Losses ---------------------------------------------------------------------------------------------------------------

#: What every kind of task has a term for.
SOFT = ("cross_entropy", "logits")


def _plugged(name: Any) -> bool:
    return name in LOSSES and not LOSSES.is_own(name)


def _loss(value: Any) -> Any:
    return value if value in SOFT else one_of(value, (*SOFT, *filter(_plugged, LOSSES)))


def _plug_ins(value: Any) -> Any:
    """Take losses of plug-ins, each with its weight."""
    known = list(filter(_plugged, LOSSES)) if value else []
    unknown = [name for name in value if name not in known] if isinstance(value, dict) else []
    if unknown:
        words = nearest(str(unknown[0]), known) or "install the package that brings it"
        raise faulty(*((str(name), f"there is no such loss of a plug-in → {words}") for name in unknown))
    return value


Loss = Annotated[str, BeforeValidator(_loss)]
More = Annotated[dict[str, Weight], BeforeValidator(_plug_ins)]


class TaskDistil(Section):
    """What one task's distillation does differently."""

    loss: Loss | None = None
    temperature: Positive | None = None
    hard: Weight | None = None
    soft: Weight | None = None
    anneal: Anneal | None = None
    more: More | None = None


class Distil(Section):
    """How a student learns from gold labels and teachers: hard·λ and soft·(1 − λ), or hard and soft without λ."""

    loss: Loss = "cross_entropy"  # of the soft part: one of SOFT, or what a plug-in is registered as
    temperature: Positive = 1.0
    hard: Weight = 1.0
    soft: Weight = 1.0
    anneal: Annotated[Anneal | None, none_for("none")] = Anneal()  # teacher annealing needs no weights to be found
    more: More = Field(default_factory=dict)  # losses added to the soft part, each with its weight
    tasks: dict[str, TaskDistil] = Field(default_factory=dict)

    @classmethod
    def short(cls, value: Any) -> Any:
        """Turn annealing off where weights are given without it: they are not to be multiplied by λ unasked."""
        weighed = isinstance(value, dict) and "anneal" not in value and ("hard" in value or "soft" in value)
        return {**value, "anneal": None} if weighed else value

    def faults(self) -> Iterator[Fault]:
        """Yield weights with which nothing is learnt."""
        for place, mine in (("", self), *((f"tasks.{name}.", self.of(name)) for name in self.tasks)):
            ends = [(1.0, 1.0)]
            if mine.anneal is not None:
                ends = [(mix, 1 - mix) for mix in (mine.anneal.start, mine.anneal.end)]
            if not mine.hard and not mine.soft:
                yield f"{place}soft", "both weights are 0, so nothing is learnt → give hard or soft a weight"
            elif any(not mine.hard * hard and not mine.soft * soft for hard, soft in ends):
                what = "with these weights nothing is learnt at one end of the run"
                steady = "anneal: 0.5" if place else "anneal: none"
                yield f"{place}soft", f"{what} → give hard or soft a weight there, or write {steady}"

    def of(self, task: str) -> Distil:
        """Return the settings of one task."""
        own = self.tasks.get(task)
        given = {key: value for key, value in own if value is not None} if own else {}
        return self.model_copy(update={**given, "tasks": {}})


class Best(Section):
    """Only the best teachers take part."""

    count: Count
    by: Names = ()  # the tasks whose dev scores count; all that a teacher answers, where none is named


class TargetsSpec(Section):
    """How the teachers' logits are kept, and how several teachers become one target."""

    combine: Literal["mean_probabilities", "geometric_mean", "mean_logits"] = "mean_probabilities"
    weights: Literal["equal", "dev"] | dict[str, Weight] = "equal"
    best: Best | None = None
    dtype: Literal["float16", "float32"] = "float16"
    weak: Literal["stop", "leave_out", "keep"] = "stop"  # teachers that are no better than guessing

    @field_validator("weights", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        if value not in ("equal", "dev") and not (isinstance(value, dict) and value):
            fix = "write equal, dev, or a weight for each teacher: {teacher: 2, teacher2: 1}"
            raise ValueError(f"{shown(value)} is not allowed → {fix}")
        weights = value if isinstance(value, dict) else {}
        wrong = [
            (str(name), f"{shown(each)} is no weight → write a number, 0 or more")
            for name, each in weights.items()
            if isinstance(each, bool) or not isinstance(each, (int, float)) or not 0 <= each < math.inf
        ]
        if wrong:
            raise faulty(*wrong)
        return value
