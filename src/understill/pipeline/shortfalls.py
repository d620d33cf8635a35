"""Shortfalls: models that score below what they should beat, in a sentence each, with what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from understill.errors import listed
from understill.pipeline.record import BESIDE, PROBE

if TYPE_CHECKING:
    from understill.recipe import Recipe
    from understill.tasks import Task

#: Points by which a model may be below another without a remark.
MARGIN = 0.5
#: Points by which a student may be above its teachers without a remark: it has seen more text than they have.
AHEAD = 2.0
#: What marks a score in a table, and what that means.
MARK = " ↓"
LEGEND = "↓ below its reference model"


class Shortfall(NamedTuple):
    """A column that is below what it should beat, on one task."""

    task: str
    column: str
    sentence: str


def shortfalls(firsts: Mapping[str, Mapping[str, float]], recipe: Recipe) -> list[Shortfall]:
    """Name what is below what it should beat, given each task's primary metric ×100, by column and task."""
    below = []
    for main in (name for name in firsts if name not in BESIDE):
        who = "the student" if main == "student" else "the model"
        for task, value in firsts[main].items():
            floor = firsts.get(PROBE, {}).get(task)
            if floor is not None and _below(value, floor):
                what = f"{who} ({value:.1f}) is below a linear head on the frozen encoder ({floor:.1f})"
                below.append(Shortfall(task, main, f"{task}: {what} → {_for_model(recipe)}"))
    for task, value in firsts.get("teachers", {}).items():
        better = [
            f"the {name} ({firsts[name][task]:.1f})"
            for name, margin in (("baseline", MARGIN), ("student", AHEAD))
            if _below(value, firsts.get(name, {}).get(task), margin)
        ]
        if better:
            helped = _helped(firsts, task)
            so = "which gained from them" if helped else "so they have little to teach"
            what = f"the teachers ({value:.1f}) are below {listed(better, 'and')}, {so}"
            below.append(Shortfall(task, "teachers", f"{task}: {what} → {_for_teachers(recipe, helped)}"))
    return below


def marks_of(below: Iterable[Shortfall], tasks: Mapping[str, Task]) -> dict[tuple[str, str, str], str]:
    """Return what marks the scores of a table, by dev set, metric and column."""
    return {(f"{each.task}/dev", tasks[each.task].metrics[0], each.column): MARK for each in below}


def _helped(firsts: Mapping[str, Mapping[str, float]], task: str) -> bool:
    """Tell whether a student gained from teachers that are no worse than its baseline."""
    teachers, baseline, student = (firsts.get(name, {}).get(task, 0.0) for name in ("teachers", "baseline", "student"))
    return "baseline" in firsts and _below(baseline, student) and not _below(teachers, baseline)


def _below(value: float, other: float | None, margin: float = MARGIN) -> bool:
    """Tell whether a score is further below another than a margin; rounding does not count."""
    return other is not None and round(other - value, 6) > margin


def _for_model(recipe: Recipe) -> str:
    """Suggest what may raise a model above the linear probe."""
    settings = recipe.settings(recipe.student)
    tries = []
    if settings.training.lr != "auto":
        tries.append("leave out `training` so that the learning rate is chosen")
    elif settings.training.steps or settings.training.epochs != "auto":
        tries.append("leave out `epochs` and `steps` so that they are chosen, or train it longer")
    if settings.encoder.own:
        tries.append(f"take a pretrained encoder in place of {settings.encoder.name}")
    elif settings.encoder.layers:
        tries.append("keep more layers")
    return listed([*tries, "give it more rows"])


def _for_teachers(recipe: Recipe, helped: bool) -> str:
    """Suggest what may make teachers better than their students."""
    tries = ["train them longer", "use a larger encoder"] if recipe.trained else ["take better ones"]
    return listed([*tries, *([] if helped else ["leave the task out of `teachers`"])])
