"""Plans: what a recipe comes to as one run, and as a study of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.pipeline.plan.parts import ChoicePlan, Distillation, ModelPlan, TargetsPlan, TeacherPlan
from understill.recipe import Cell, Recipe


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to on this machine."""

    recipe: Recipe
    loaded: Mapping[str, LoadedTask]
    all_models: tuple[ModelPlan, ...]  # in the order they are trained in; a choice may drop some
    choice: ChoicePlan | None = None  # of the teachers, where it is made before they are fine-tuned

    @property
    def models(self) -> tuple[ModelPlan, ...]:
        """Every model that is trained; while a choice is open, also those that it may drop."""
        return tuple(model for model in self.all_models if not model.dropped)

    @property
    def candidates(self) -> tuple[ModelPlan, ...]:
        """Those to be trained before it is known which of them go on to teach; none once that is known."""
        return tuple(self.choice.candidates.values()) if self.choice and self.choice.chosen is None else ()

    @property
    def targets(self) -> tuple[TargetsPlan, ...]:
        """Every table of soft targets, once."""
        return tuple({targets.folder: targets for each in self.distillations for targets in each.targets}.values())

    @property
    def distillations(self) -> tuple[Distillation, ...]:
        """What all students learn from teachers."""
        return tuple(model.distillation for model in self.all_models if model.distillation)

    @property
    def augmented(self) -> tuple[TaskData, ...]:
        """Every augmented split that a model is trained on, once."""
        names = dict.fromkeys(name for model in self.all_models for name in model.augmented)
        return tuple(self.loaded[name].splits["augmented"] for name in names)

    @property
    def outsiders(self) -> tuple[TeacherPlan, ...]:
        """The teachers that are not trained here."""
        return tuple(teacher for each in self.distillations for teacher in each.teachers if not teacher.models)


class Wanted(NamedTuple):
    """A model that is to be there, and what it is called among those of all runs."""

    plan: Plan
    model: ModelPlan
    title: str


@dataclass(frozen=True)
class Study:
    """What a recipe comes to that may stand for several runs; they share what has the same fingerprint."""

    recipe: Recipe
    cells: tuple[tuple[Cell, Plan], ...]  # the recipe as it is, with its first seed, comes first

    @property
    def plan(self) -> Plan:
        """The plan of the recipe as it is."""
        return self.cells[0][1]

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """Every model of every run, in the order of training; one that several runs have is called the same in all."""
        titles = self.titles()
        return tuple(Wanted(plan, model, titles[model.folder]) for _, plan in self.cells for model in plan.models)

    @property
    def models(self) -> tuple[Wanted, ...]:
        """Every model, once: runs may have the same, and so may one run."""
        return once_each(self.wanted)

    @property
    def targets(self) -> tuple[TargetsPlan, ...]:
        """Every table of soft targets, once."""
        return tuple({targets.folder: targets for _, plan in self.cells for targets in plan.targets}.values())

    @property
    def outsiders(self) -> tuple[tuple[Plan, TeacherPlan], ...]:
        """The teachers that are not trained here, once each."""
        found = {each.verdict.folder: (plan, each) for _, plan in self.cells for each in plan.outsiders}
        return tuple(found.values())

    def titles(self) -> dict[Path, str]:
        """Call a model that all runs have by its name, and any other after the first run that has it."""
        homes: dict[Path, dict[str, str]] = {}
        for cell, plan in self.cells:
            for model in plan.all_models:
                homes.setdefault(model.folder, {})[cell.name] = model.name
        titles = {}
        for folder, names in homes.items():
            first, name = next(iter(names.items()))
            titles[folder] = name if len(names) == len(self.cells) else f"{first}/{name}"
        return titles


def once_each(wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """Return models without those that are there already."""
    found: dict[Path, Wanted] = {}
    for each in wanted:
        found.setdefault(each.model.folder, each)
    return tuple(found.values())
