"""The recipe: a whole experiment as one frozen, checked object."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, SerializeAsAny, ValidationInfo, field_validator

from understill.names import RULE, expanded, is_task_name
from understill.recipe.checks import recipe_faults
from understill.recipe.schema import (
    DataSpec,
    EncoderSpec,
    Evaluation,
    HeadsSpec,
    Machine,
    Output,
    Partial,
    Settings,
    StudentSpec,
    TargetsSpec,
    TaskSpec,
    TeacherSpec,
    TrainedSpec,
    Training,
    over,
)
from understill.recipe.section import Fault, Name, Section, Seed, as_list, repeated, shown
from understill.recipe.sweep import MOST_TEACHERS, Variant, grid_teachers, refuse_many, several_seeds
from understill.recipe.yaml import dump_yaml

#: Folders beside the runs of an output folder.
TAKEN = ("artifacts", "cache")
Changes = dict[str, Any]


def _filled(value: Any) -> Any:
    """Return a mapping with {} where a key has no value."""
    return {key: {} if each is None else each for key, each in value.items()} if isinstance(value, dict) else value


class Recipe(Section):
    """The whole experiment."""

    name: Name = "run"
    seed: Seed = 0
    seeds: tuple[Seed, ...] = ()  # of a study: everything is run with each; they go before `seed`
    ablations: dict[Name, Changes] = Field(default_factory=dict)  # variants that are run too, and what each changes
    factors: dict[Name, dict[Name, Changes]] = Field(default_factory=dict)  # levels, all combinations of which are run
    data: DataSpec = DataSpec()
    tasks: Annotated[dict[str, TaskSpec], Field(min_length=1, max_length=1000)]
    models: Literal["together", "each"] = "together"  # one model for all tasks, or one for each
    encoder: EncoderSpec = EncoderSpec()
    heads: HeadsSpec = HeadsSpec()
    training: Training = Training()
    teachers: tuple[SerializeAsAny[TeacherSpec], ...] = ()
    targets: TargetsSpec = TargetsSpec()
    student: StudentSpec = StudentSpec()
    evaluation: Evaluation = Evaluation()
    output: Output = Output()
    machine: Machine = Machine()
    _folder: Path = PrivateAttr(default_factory=Path)
    _variants: tuple[tuple[Variant, Recipe], ...] = PrivateAttr(default=())  # where it is a study

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value.casefold() in TAKEN:
            raise ValueError(f'the output folder has a folder "{value}" of its own → choose another name')
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _several(cls, value: Any, info: ValidationInfo) -> Any:
        return several_seeds(value, info.data.get("seed", 0))

    @field_validator("ablations", "factors", mode="before")
    @classmethod
    def _study(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            refuse_many(value, str(info.field_name))
        if info.field_name == "factors" and isinstance(value, dict):
            # A level without changes is the recipe as it is.
            return {factor: _filled(levels) for factor, levels in value.items()}
        return {} if value is None else value

    @field_validator("tasks", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)):
            for name in value:
                if not isinstance(name, str):
                    raise ValueError(f"{shown(name)} is no name → write [mood, queue], or a mapping: name to settings")
            for name in repeated(value):
                raise ValueError(f'"{name}" is named twice → name each task once')
            return {name: {} for name in value}
        return _filled(value)

    @field_validator("tasks")
    @classmethod
    def _task_names(cls, value: dict[str, TaskSpec]) -> dict[str, TaskSpec]:
        for name in value:
            if not is_task_name(name):
                raise ValueError(f"{shown(name)} cannot be a task name → {RULE}")
        return value

    @field_validator("teachers", mode="before")
    @classmethod
    def _one_teacher(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, (list, tuple, dict)):
            raise ValueError(f"{shown(value)} is no list of teachers → write, for instance, [{{tasks: each}}]")
        teachers: list[Any] = []
        for teacher in as_list(value) or ():
            teachers += grid_teachers(teacher, TeacherSpec)
            if len(teachers) > MOST_TEACHERS:
                raise ValueError(f"there are more than {MOST_TEACHERS} teachers → name fewer")
        return teachers

    @field_validator("teachers")
    @classmethod
    def _teacher_names(cls, value: tuple[TeacherSpec, ...]) -> tuple[TeacherSpec, ...]:
        """Give every teacher a name of its own."""
        taken = [teacher.name for teacher in value if teacher.name]
        for name in taken:
            if name in repeated(taken) or name in ("student", "baseline", "finetuned", "majority", "teachers"):
                raise ValueError(f'a teacher cannot have the name "{name}", which is taken → choose another')
        usual = (name for name in ("teacher", *(f"teacher{number}" for number in range(2, 1000))) if name not in taken)
        return tuple(teacher if teacher.name else teacher.model_copy(update={"name": next(usual)}) for teacher in value)

    def faults(self) -> Iterator[Fault]:
        """Yield what sections, each sound by itself, get wrong together."""
        return recipe_faults(self)

    @property
    def trained(self) -> tuple[TrainedSpec, ...]:
        """The teachers that the run trains."""
        return tuple(teacher for teacher in self.teachers if isinstance(teacher, TrainedSpec))

    @property
    def model_count(self) -> int:
        """How many teachers and students one run trains at most, fine-tuning aside."""
        count = 1 if self.together else len(self.student.tasks or self.tasks)
        for spec in self.trained:
            models = len(spec.tasks or self.tasks) if spec.models == "each" else 1
            count += models * len(spec.seeds_for(self.seed)) * (spec.folds or 1)
        return count

    def settings(self, part: Partial) -> Settings:
        """Return what a teacher or the student is trained with."""
        return Settings.model_construct(
            encoder=over(self.encoder, part.encoder),
            heads=over(self.heads, part.heads),
            training=over(self.training, part.training),
        )

    def finetuning(self, part: Partial) -> Settings:
        """Return what a teacher or the student is fine-tuned with on each task alone."""
        settings = self.settings(part)
        return settings.model_copy(update={"training": over(settings.training, part.finetune)})

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs that it stands for, each with a plain recipe: every variant with every seed."""
        return tuple(
            Cell(variant.name, variant.levels, seed, recipe.plain(seed))
            for variant, recipe in self._variants or ((Variant(), self),)
            for seed in self.seeds or (self.seed,)
        )

    def plain(self, seed: int) -> Recipe:
        """Return the recipe of one run."""
        plain = self.model_copy(update={"seed": seed, "seeds": (), "ablations": {}, "factors": {}})
        plain._variants = ()
        return plain

    def mapped(self, change: Callable[[Recipe], Recipe]) -> Recipe:
        """Return the recipe with a change made to it and to every variant that it stands for."""
        changed = change(self)
        changed._folder = self._folder
        changed._variants = tuple((variant, each.mapped(change)) for variant, each in self._variants)
        return changed

    @property
    def together(self) -> bool:
        """Whether the student is one model for all tasks."""
        return (self.student.models or self.models) == "together"

    def find(self, path: str) -> Path:
        """Return a path of the recipe as seen from the working folder or, failing that, from the recipe's folder."""
        here = expanded(path)
        there = self._folder / here
        # Those of os.path take a name that no file can have for one that is not there.
        return there if not os.path.exists(here) and os.path.exists(there) else here

    def roots(self) -> tuple[Path, ...]:
        """Return the folders that relative paths are looked up in, in this order."""
        return (Path(), self._folder)

    def placed(self, folder: Path) -> Recipe:
        """Return the recipe with its results in another folder, and its own folder in full."""
        copy = self.model_copy(update={"output": self.output.model_copy(update={"folder": str(folder)})})
        copy._folder = self._folder.resolve()
        copy._variants = tuple((variant, recipe.placed(folder)) for variant, recipe in self._variants)
        return copy

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults included."""
        return dump_yaml(self.model_dump(mode="json"))


@dataclass(frozen=True)
class Cell:
    """One run of a study; a plain recipe is a study of one."""

    variant: str  # its name; empty for the recipe as it is
    levels: Mapping[str, str]  # of each factor
    seed: int
    recipe: Recipe

    @property
    def name(self) -> str:
        """What it is called within its study."""
        return "-".join(part for part in (self.variant, f"seed{self.seed}") if part)
