"""The recipe: a whole experiment as one frozen, checked object."""

from __future__ import annotations

import contextlib
import copy
import glob
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator

from understill.errors import Problem, RecipeError, UserError, nearest
from understill.recipe import study
from understill.recipe.grid import combinations, origins
from understill.recipe.mistakes import by_line, explain, shown
from understill.recipe.overrides import write
from understill.recipe.schema import (
    DataSpec,
    Distil,
    EncoderSpec,
    Evaluation,
    HeadsSpec,
    Machine,
    Output,
    Partial,
    Seed,
    Settings,
    StudentSpec,
    TargetsSpec,
    TaskSpec,
    TeacherSpec,
    Training,
    over,
    several_seeds,
)
from understill.recipe.section import Section, as_list, faulty
from understill.recipe.yamlfile import Places, dump_yaml, read_yaml, read_yaml_value

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Changes = dict[str, Any]


class Recipe(Section):
    """The whole experiment."""

    name: Name = "run"
    seed: Seed = 0
    seeds: tuple[Seed, ...] = ()  # of a study: everything is run with each; they go before `seed`
    ablations: dict[Name, Changes] = Field(default_factory=dict)  # variants that are run too, and what each changes
    factors: dict[Name, dict[Name, Changes]] = Field(default_factory=dict)  # levels, all combinations of which are run
    data: DataSpec = DataSpec()
    tasks: Annotated[dict[str, TaskSpec], Field(min_length=1)]
    models: Literal["together", "each"] = "together"  # one model for all tasks, or one for each
    encoder: EncoderSpec = EncoderSpec()
    heads: HeadsSpec = HeadsSpec()
    training: Training = Training()
    teachers: tuple[TeacherSpec, ...] = ()
    targets: TargetsSpec = TargetsSpec()
    student: StudentSpec = StudentSpec()
    evaluation: Evaluation = Evaluation()
    output: Output = Output()
    machine: Machine = Machine()
    _folder: Path = PrivateAttr(default_factory=Path)
    _variants: tuple[tuple[study.Variant, Recipe], ...] = PrivateAttr(default=())  # where it is a study

    @field_validator("seeds", mode="before")
    @classmethod
    def _several(cls, value: Any, info: ValidationInfo) -> Any:
        return several_seeds(value, info.data.get("seed", 0))

    @field_validator("ablations", "factors", mode="before")
    @classmethod
    def _no_study(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("factors", mode="before")
    @classmethod
    def _levels(cls, value: Any) -> Any:
        """Take a level without changes, which is the recipe as it is."""
        if not isinstance(value, dict):
            return value
        return {
            factor: {level: {} if given is None else given for level, given in levels.items()}
            if isinstance(levels, dict)
            else levels
            for factor, levels in value.items()
        }

    @field_validator("tasks", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)):
            for name in value:
                if not isinstance(name, str):
                    raise ValueError(f"{shown(name)} is no name → write [mood, queue], or a mapping: name to settings")
                if value.count(name) > 1:
                    raise ValueError(f'"{name}" is named twice → name each task once')
            return {name: {} for name in value}
        if isinstance(value, dict):
            return {name: {} if spec is None else spec for name, spec in value.items()}
        return value

    @field_validator("tasks")
    @classmethod
    def _task_names(cls, value: dict[str, TaskSpec]) -> dict[str, TaskSpec]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise ValueError(f'"{name}" cannot be a task name → use letters, digits, - and _')
        return value

    @field_validator("teachers", mode="before")
    @classmethod
    def _one_teacher(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, (list, tuple, dict)):
            raise ValueError(f"{shown(value)} is no list of teachers → write, for instance, [{{tasks: each}}]")
        return [each for teacher in as_list(value) or () for each in combinations(teacher)]

    @field_validator("teachers")
    @classmethod
    def _teacher_names(cls, value: tuple[TeacherSpec, ...]) -> tuple[TeacherSpec, ...]:
        """Give every teacher a name of its own."""
        taken = [teacher.name for teacher in value if teacher.name]
        for name in taken:
            if taken.count(name) > 1 or name in ("student", "baseline", "finetuned", "majority", "teachers"):
                raise ValueError(f'a teacher cannot have the name "{name}", which is taken → choose another')
        usual = (name for name in ("teacher", *(f"teacher{number}" for number in range(2, 1000))) if name not in taken)
        return tuple(teacher if teacher.name else teacher.model_copy(update={"name": next(usual)}) for teacher in value)

    @model_validator(mode="after")
    def _whole(self) -> Recipe:
        faults = [*self._strange_tasks(), *self._idle(), *self._unsettled()]
        faults += study.faults(self.ablations, self.factors)
        names = [teacher.name for teacher in self.teachers]
        if isinstance(self.targets.weights, dict):
            for name in self.targets.weights:
                if not any(re.fullmatch(rf"{re.escape(str(known))}(-seed\d+)?", name) for known in names):
                    known = nearest(name, [str(name) for name in names])
                    faults.append((f"targets.weights.{name}", f"there is no such teacher → {known}"))
        if faults:
            raise faulty(*faults)
        return self

    def _strange_tasks(self) -> Iterator[tuple[str, str]]:
        """Yield where a task is named that the recipe does not have."""
        named = [
            *((f"heads.tasks.{name}", name) for name in self.heads.tasks),
            *((f"student.distil.tasks.{name}", name) for name in self.student.distil.tasks),
            *(
                (f"targets.best.by.{at}", name)
                for at, name in enumerate(self.targets.best.by if self.targets.best else ())
            ),
        ]
        named += [(f"student.tasks.{at}", name) for at, name in enumerate(self.student.tasks)]
        if self.student.augment:
            named += [(f"student.augment.tasks.{name}", name) for name in self.student.augment.tasks]
        if self.student.heads:
            named += [(f"student.heads.tasks.{name}", name) for name in self.student.heads.tasks]
        for number, teacher in enumerate(self.teachers):
            named += [(f"teachers.{number}.tasks.{at}", name) for at, name in enumerate(teacher.tasks)]
            named += [(f"teachers.{number}.teaches.{at}", name) for at, name in enumerate(teacher.teaches or ())]
            if teacher.heads:
                named += [(f"teachers.{number}.heads.tasks.{name}", name) for name in teacher.heads.tasks]
        for place, name in named:
            if name not in self.tasks:
                yield place, f'there is no task "{name}" → {nearest(name, self.tasks)}'

    def _idle(self) -> Iterator[tuple[str, str]]:
        """Yield what would do nothing: texts that nobody labels, teachers of nothing, settings without teachers."""
        fix = "name teachers, or leave it out"
        learnt = self.student.tasks or tuple(self.tasks)
        taught = [name for name in learnt if any(teacher.teaches_task(name) for teacher in self.teachers)]
        for name, spec in self.tasks.items():
            if spec.unlabelled and name not in taught:
                yield f"tasks.{name}.unlabelled", f"there is no teacher to label these texts → {fix}"
        yield from self._idle_encoders()
        encoders = {self.settings(part).encoder.name for part in (*self.teachers, self.student)}
        for number, teacher in enumerate(self.teachers):
            strange = {*teacher.tasks, *(teacher.teaches or ()), *self.student.tasks} - set(self.tasks)
            if strange or any(teacher.teaches_task(name) for name in learnt):
                continue
            if teacher.name not in encoders:
                what = "it teaches nothing that the student learns, and nobody takes its encoder"
                yield f"teachers.{number}", f"{what} → leave it out, or name tasks under teaches"
            if teacher.finetune is not None:
                yield f"teachers.{number}.finetune", "it teaches nothing, so nothing is fine-tuned → leave it out"
        if not taught:
            if self.student.unlabelled:
                yield "student.unlabelled", f"there is no teacher to label texts → {fix}"
            if self.student.distil != Distil():
                yield "student.distil", f"there is no teacher to learn from → {fix}"
            if self.targets != TargetsSpec():
                yield "targets", f"there is no teacher to take them from → {fix}"

    def _idle_encoders(self) -> Iterator[tuple[str, str]]:
        """Yield settings of encoders that nobody reads: each belongs to some kinds of encoder only."""
        trained = {f"teachers.{number}": teacher for number, teacher in enumerate(self.teachers) if teacher.trained}
        names = set()
        for place, part in (*trained.items(), ("student", self.student)):
            names.add(name := self.settings(part).encoder.name)
            for key, words in part.encoder.idle(name) if part.encoder else ():
                yield f"{place}.encoder.{key}", words
        # What stands at the top is for whoever it fits.
        found = [dict(self.encoder.idle(name)) for name in names]
        for key, words in found[0].items():
            if all(key in each for each in found):
                yield f"encoder.{key}", words

    def _unsettled(self) -> Iterator[tuple[str, str]]:
        """Yield settings that do not go together once they are laid over those at the top."""
        # Each with the sections that are laid over the top, the last one first.
        parts: list[tuple[Training, dict[str, Training | None]]] = []
        trained = {f"teachers.{number}": teacher for number, teacher in enumerate(self.teachers) if teacher.trained}
        for place, part in (*trained.items(), ("student", self.student)):
            mine = {f"{place}.training": part.training}
            parts.append((self.settings(part).training, mine))
            if part.finetune:
                parts.append((self.finetuning(part).training, {f"{place}.finetune": part.finetune, **mine}))
        found: dict[tuple[str, str], None] = {}  # the same fault may be laid over again
        for whole, layers in parts:
            for key, words in whole.faults():
                homes = (place for place, given in layers.items() if given and key in given.model_fields_set)
                found[f"{next(homes, 'training')}.{key}", words] = None
        yield from found

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
            Cell(variant.name, variant.levels, seed, recipe._plain(seed))
            for variant, recipe in self._variants or ((study.Variant(), self),)
            for seed in self.seeds or (self.seed,)
        )

    def _plain(self, seed: int) -> Recipe:
        """Return the recipe of one run."""
        plain = self.model_copy(update={"seed": seed, "seeds": (), "ablations": {}, "factors": {}})
        plain._variants = ()
        return plain

    @property
    def together(self) -> bool:
        """Whether the student is one model for all tasks."""
        return (self.student.models or self.models) == "together"

    def find(self, path: str) -> Path:
        """Return a path of the recipe as seen from the working folder or, failing that, from the recipe's folder."""
        here = Path(path).expanduser()
        there = self._folder / here
        return there if not here.exists() and there.exists() else here

    def roots(self) -> tuple[Path, ...]:
        """Return the folders that relative paths are looked up in, in this order."""
        return (Path(), self._folder)

    def located(self) -> Recipe:
        """Return the recipe with paths that only its own folder has spelled out, so that a copy finds them too."""

        def move(name: str) -> str:
            here, there = Path(name).expanduser(), self._folder / name
            return str(there) if not there_is(here) and there_is(there) else name

        tasks = {}
        for name, spec in self.tasks.items():
            changes: dict[str, Any] = {}
            if spec.hub:
                changes["hub"] = spec.hub.model_copy(update={"dataset": move(spec.hub.dataset)})
                given: dict[str, Any] = {"unlabelled": spec.unlabelled}
            else:
                given = {"train": spec.train, "dev": spec.dev, "test": spec.test, "unlabelled": spec.unlabelled}
            changes |= {key: tuple(map(move, value)) for key, value in given.items() if isinstance(value, tuple)}
            tasks[name] = spec.model_copy(update=changes)
        data = self.data.model_copy(update={"glue": move(self.data.glue)}) if self.data.glue else self.data

        def moved(encoder: EncoderSpec | None) -> EncoderSpec | None:
            if encoder is None:
                return None
            changes: dict[str, Any] = {}
            if "name" in encoder.model_fields_set and not encoder.own:
                changes["name"] = move(encoder.name)
            words: dict[str, Any] = {}
            if encoder.words.vectors is not None:
                words["vectors"] = move(encoder.words.vectors)
            if encoder.words.tokenizer != "words":
                words["tokenizer"] = move(encoder.words.tokenizer)
            if words:
                changes["words"] = encoder.words.model_copy(update=words)
            return encoder.model_copy(update=changes) if changes else encoder

        teachers = tuple(
            teacher.model_copy(
                update={
                    "encoder": moved(teacher.encoder),
                    "checkpoint": move(teacher.checkpoint) if teacher.checkpoint else None,
                    "predictions": tuple(map(move, teacher.predictions)),
                }
            )
            for teacher in self.teachers
        )
        student = self.student.model_copy(update={"encoder": moved(self.student.encoder)})
        changed = {"tasks": tasks, "data": data, "teachers": teachers, "student": student}
        return self.model_copy(update={**changed, "encoder": moved(self.encoder)})

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults included."""
        return dump_yaml(self.model_dump(mode="json"))


def there_is(path: Path) -> bool:
    """Say whether a path, or anything that fits a pattern, exists."""
    return path.exists() or (
        glob.has_magic(str(path)) and next(glob.iglob(str(path), recursive=True), None) is not None
    )


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


def load_recipe(path: str | Path, sets: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe file, apply `key=value` changes, and report everything that is wrong at once."""
    path = Path(path)
    values, places = read_yaml(path)
    if not isinstance(values, dict):
        what = "the file is empty" if values is None else f"the file holds {shown(values)}"
        raise UserError(f"{path}: {what} → a recipe has keys and values, for instance tasks: [mood, queue]")
    for change in sets:
        _apply(values, places, change)
    return make_recipe(values, places, path.parent)


def make_recipe(values: dict[str, Any], places: Places | None = None, folder: Path = Path()) -> Recipe:
    """Check plain values, in every variant that they stand for, and build the recipe."""
    places = places or Places("recipe")
    problems: list[Problem] = []
    recipe = _checked(values, places, problems)
    plain = {key: value for key, value in values.items() if key not in study.KEYS}
    found = []
    for variant in study.variants(values):
        if variant.changes:
            found.append((variant, _varied(plain, variant, places, problems)))
        else:
            found.append((variant, recipe))
    if recipe is None or problems:
        raise RecipeError(places.file, by_line(problems))
    for each in (recipe, *(one for _, one in found if one)):
        each._folder = folder
    located = [(variant, one.located()) for variant, one in found if one]
    return _study(recipe.located(), located, places)


def _checked(values: dict[str, Any], places: Places, problems: list[Problem], where: str = "") -> Recipe | None:
    """Return the recipe of plain values, or None, with what is wrong added to the problems that are known."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        # What a grid stands for is reported where the grid is written.
        moved = {"teachers": origins(values.get("teachers"))}
        for problem in explain(error, Recipe, places, moved):
            if where and not places.overridden(problem.place):
                here = replace(problem, what=f"with {where}: {problem.what}")
            else:
                here = problem
            if not {problem, here} & set(problems):
                problems.append(here)
        return None


def _varied(plain: dict[str, Any], variant: study.Variant, places: Places, problems: list[Problem]) -> Recipe | None:
    """Return the recipe with a variant's changes; what is wrong with them is reported where they are written."""
    values, there, sound = copy.deepcopy(plain), places.copy(), True
    for change in variant.changes:
        if change.path[0] in study.COMMON:
            continue  # which is a fault of the study
        name = ".".join(change.written)
        place = places.of(change.written)
        place = name if place == places.file else place
        try:
            write(values, change.path, copy.deepcopy(change.value), Recipe, "{}: …")
        except ValueError as error:
            what, _, fix = str(error).partition(" → ")
            problem, sound = Problem(place, f"{'.'.join(change.path)}: {what}", fix), False
            problems += [problem] if problem not in problems else []
        there.override(change.path, place)
    return _checked(values, there, problems, variant.name) if sound else None


def _study(recipe: Recipe, variants: list[tuple[study.Variant, Recipe]], places: Places) -> Recipe:
    """Return a recipe that knows its variants, spelled out so that a copy with all defaults stands for the same."""
    first = variants[0][1]
    dumps = {variant.name: each.model_dump(mode="json", exclude=set(study.KEYS)) for variant, each in variants}
    base = dumps[variants[0][0].name]
    ablations = {name: study.differences(base, dumps[name]) for name in recipe.ablations}
    if idle := [name for name, changes in ablations.items() if not changes]:
        what, fix = "the recipe has these values already", "change others, or leave it out"
        problems = [Problem(places.of(("ablations", name)), f"ablations.{name}: {what}", fix) for name in idle]
        raise RecipeError(places.file, problems)
    factors: dict[str, dict[str, Changes]] = {}
    usual = variants[0][0].levels
    for variant, _ in variants:
        for factor, level in variant.levels.items():
            if {**usual, factor: level} == variant.levels:
                mine = [change for change in variant.changes if change.written[1:3] == (factor, level)]
                factors.setdefault(factor, {})[level] = _spelled_out(mine, base, dumps[variant.name])
    if factors and (fault := _entangled([variant for variant, _ in variants], dumps, factors)):
        raise RecipeError(places.file, [Problem(places.of(("factors",)), f"factors: {fault[0]}", fault[1])])
    seeds = {"seed": recipe.seeds[0]} if recipe.seeds else {}
    whole = first.model_copy(update={"seeds": recipe.seeds, "ablations": ablations, "factors": factors, **seeds})
    if recipe.ablations or recipe.factors:
        whole._variants = tuple(variants)
    return whole


def _spelled_out(written: list[study.Change], base: dict[str, Any], other: dict[str, Any]) -> Changes:
    """Return what a level changes: all that is written, so that other factors can be laid over it, and what follows."""
    found: Changes = {}
    for change in written:
        value: Any = other
        with contextlib.suppress(LookupError, TypeError, ValueError):  # a later factor has written over it
            for part in change.path:
                value = value[int(part)] if isinstance(value, list) else value[part]
            if len(change.path) > 1:
                found[".".join(change.path)] = value
    rest = study.differences(_changed(base, found), other)
    return {name: value for name, value in found.items() if name not in rest} | rest


def _changed(base: dict[str, Any], *levels: Changes) -> dict[str, Any]:
    whole = copy.deepcopy(base)
    for changes in levels:
        for name, value in changes.items():
            write(whole, tuple(name.split(".")), copy.deepcopy(value), Recipe, "{}: …")
    return whole


def _entangled(
    variants: list[study.Variant], dumps: dict[str, dict[str, Any]], factors: dict[str, dict[str, Changes]]
) -> tuple[str, str] | None:
    """Return what is wrong with a design in which a level is not the same whatever the others are."""
    for one, other in itertools.combinations(dumps, 2):
        if dumps[one] == dumps[other]:
            return f"{one} and {other} would be the same run", "let each level change what no later factor writes over"
    for variant in variants:
        changes = [factors[factor][level] for factor, level in variant.levels.items()]
        if odd := study.differences(_changed(dumps[variants[0].name], *changes), dumps[variant.name]):
            what = f"what a level means for {next(iter(odd))} hangs on the other factors, as {variant.name} shows"
            return what, "write that value out in all levels of one factor"
    return None


def _apply(values: dict[str, Any], places: Places, change: str) -> None:
    """Write one `a.b=value` into the plain values."""
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise UserError(f'--set "{change}": not key=value → write, for instance, --set training.lr=3e-5')
    try:
        write(values, path, read_yaml_value(text, f'--set "{change}"'), Recipe, "--set {}=…")
    except ValueError as error:
        raise UserError(f'--set "{change}": {error}') from None
    places.override(path, f"--set {change}")
