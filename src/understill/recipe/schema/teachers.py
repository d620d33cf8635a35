"""Teachers: a section for each type, which is named by `type` or given by a key that only this type has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from understill.atomic import fingerprint
from understill.errors import UserError, nearest
from understill.plugins import TEACHERS
from understill.recipe.schema.llm import LlmServer
from understill.recipe.schema.network import Partial
from understill.recipe.section import Fault, Name, Names, Section, Seed, as_text, faulty, shown
from understill.recipe.sweep import several_seeds

AnySection = type[Section]  # since a teacher has a key of this name


class TeacherSpec(Section):
    """What every teacher has; each type has a section of its own."""

    type: str = ""  # trained, checkpoint, predictions, llm, or what a plug-in is registered as
    name: Name | None = None
    tasks: Names = ()  # all, where none is named

    trained: ClassVar[bool] = False  # whether the run trains it
    sparse: ClassVar[bool] = False  # whether it may say nothing of rows, all of them included
    asked: ClassVar[bool] = False  # whether each answer is a request to a server

    @classmethod
    def members(cls) -> tuple[AnySection, ...]:
        """The sections that may stand where a teacher is wanted, besides those of plug-ins."""
        return tuple(BUILT_IN.values()) if cls is TeacherSpec else (cls,)

    @classmethod
    def read_as(cls, value: Any) -> AnySection:
        """Return the section that a teacher is read as."""
        if cls is not TeacherSpec:
            return cls
        values = value if isinstance(value, dict) else {}
        if kind := values.get("type"):
            return _registered(kind)
        return next((spec for spec in BUILT_IN.values() if spec.key and values.get(spec.key)), TrainedSpec)

    @model_validator(mode="wrap")
    @classmethod
    def _as_its_type(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        if cls is TeacherSpec and not isinstance(value, TeacherSpec):
            return cls.read_as(value).model_validate(value)
        return check(value)

    @model_serializer(mode="wrap")
    def _plain(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A built-in type is recognised by its keys, so that a copy can be changed into another type by these.
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "type" or self.type not in BUILT_IN}

    @property
    def finetuned(self) -> bool:
        """Whether it is fine-tuned further on each task that it teaches, as trained teachers may be."""
        return getattr(self, "finetune", None) is not None

    @property
    def folded(self) -> bool:
        """Whether it is cross-fitted: several models, each trained without some of the rows."""
        return getattr(self, "folds", None) is not None

    def teaches_task(self, name: str) -> bool:
        """Tell whether it teaches a task."""
        return not self.tasks or name in self.tasks

    def named_tasks(self) -> Iterator[tuple[str, str]]:
        """Yield every task that it names, with the key where it does."""
        yield from ((f"tasks.{at}", name) for at, name in enumerate(self.tasks))

    def options(self) -> dict[str, Any]:
        """Return its own settings, without what every teacher has."""
        return self.model_dump(mode="json", exclude={"type", "name", "tasks"})

    def digest_with(self, digest: str, train: str) -> str:
        """Return the digest of its answers to one task, by its own and that of the task's training rows."""
        return digest

    def describe(self) -> str:
        """Say what it is."""
        return f"of type {self.type}"


def _registered(name: Any) -> AnySection:
    """Return the section of a type by its name."""
    if not isinstance(name, str):
        raise faulty(("type", f"{shown(name)} is no type of teacher → {nearest('', TEACHERS)}"))
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in TEACHERS:
        raise faulty(("type", f'there is no type of teacher "{name}" → {nearest(name, TEACHERS)}'))
    try:
        spec = getattr(TEACHERS[name], "Spec", None)
    except UserError as error:
        raise faulty(("type", str(error))) from error
    if not (isinstance(spec, type) and issubclass(spec, TeacherSpec)):
        raise faulty(("type", f'the teacher "{name}" has no Spec that is a TeacherSpec → correct the plug-in'))
    return spec


# What comes with understill -------------------------------------------------------------------------------------------


class _BuiltIn(TeacherSpec):
    """A type that comes with understill: what belongs to another of them is reported as such."""

    key: ClassVar[str] = ""  # the key that tells the type
    article: ClassVar[str] = ""  # the type in words

    @model_validator(mode="before")
    @classmethod
    def _own_keys(cls, value: Any) -> Any:
        """Leave out keys of the other types that hold nothing, and refuse those that hold something."""
        if not isinstance(value, dict):
            return value
        others = {key: field for spec in BUILT_IN.values() for key, field in spec.model_fields.items()}
        strange = {key: others[key] for key in value if key in others and key not in cls.model_fields}
        usual = {key: field.get_default(call_default_factory=True) for key, field in strange.items()}
        if faults := [(key, cls._refusal(key)) for key in strange if value[key] and value[key] != usual[key]]:
            raise faulty(*faults)
        return {key: given for key, given in value.items() if key not in strange}

    @classmethod
    def _refusal(cls, key: str) -> str:
        if key in [spec.key for spec in BUILT_IN.values()]:
            return "a teacher is a checkpoint, a file of predictions or a language model → make it two teachers"
        if key in TrainedSpec.model_fields:
            return f"{cls.article} is not trained here → leave it out"
        return "it does not go with this kind of teacher → leave it out"


class TrainedSpec(Partial, _BuiltIn):
    """Models that the run trains: one for each task or for all, with several seeds, or in folds."""

    trained: ClassVar[bool] = True

    type: Literal["trained"] = "trained"
    teaches: Names | None = None  # those of its tasks that it teaches; all, where the recipe does not say
    models: Literal["each", "together"] = "each"
    seeds: tuple[Seed, ...] | Literal["student"] | dict[str, int] = ()  # its own, or the student's
    folds: Annotated[int, Field(ge=2, le=100)] | None = None  # each row is labelled by a model that has not seen it
    grid: dict[str, Any] = Field(default_factory=dict)  # a teacher for each combination; taken apart before

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `tasks: each` and `tasks: together` for all tasks."""
        if isinstance(value, dict) and value.get("tasks") in ("each", "together"):
            if "models" in value:
                raise ValueError(f"tasks: {value['tasks']} says it already → leave models out, or list the tasks")
            return {**{key: given for key, given in value.items() if key != "tasks"}, "models": value["tasks"]}
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        if value == "student":
            return value
        if isinstance(value, dict) and list(value) == ["student"] and isinstance(value["student"], int):
            return {"student": len(several_seeds(value["student"]))}
        if isinstance(value, dict) or (isinstance(value, str) and not value.isdigit()):
            raise ValueError(f"{shown(value)} is not allowed → write 3, [0, 7], student, or {{student: 3}}")
        return several_seeds(value)

    def seeds_for(self, student: int) -> tuple[int, ...]:
        """Return the seeds of its models beside a student's; no two students share one that follows theirs."""
        if isinstance(self.seeds, tuple):
            return self.seeds or (0,)  # not the student's: one set of teachers serves all its seeds
        count = 1 if self.seeds == "student" else self.seeds["student"]
        return tuple(range(count * student, count * (student + 1)))

    def faults(self) -> Iterator[Fault]:
        """Yield what a teacher cannot be trained for."""
        if self.finetune is not None and self.models == "each":
            yield "finetune", "a model of one task has been trained on it alone → write tasks: together"
        for at, name in enumerate(self.teaches or ()):
            if self.tasks and name not in self.tasks:
                yield f"teaches.{at}", f'it does not learn "{name}" itself → name one of its tasks'

    def teaches_task(self, name: str) -> bool:
        """Tell whether it teaches a task."""
        return name in self.teaches if self.teaches is not None else super().teaches_task(name)

    def named_tasks(self) -> Iterator[tuple[str, str]]:
        """Yield every task that it names, with the key where it does."""
        yield from super().named_tasks()
        yield from ((f"teaches.{at}", name) for at, name in enumerate(self.teaches or ()))

    def describe(self) -> str:
        """Say what it is."""
        how = "a model for each task" if self.models == "each" else "one model for all its tasks"
        return f"trained by the recipe, {how}" + (f", in {self.folds} folds" if self.folds else "")


class _Named(_BuiltIn):
    """A type whose labels have names of their own."""

    labels: dict[str, str] = Field(default_factory=dict)  # the teacher's names to the task's

    @field_validator("labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return {as_text(key): as_text(name) for key, name in value.items()} if isinstance(value, dict) else value


class CheckpointSpec(_Named):
    """A classifier that is there already: a Hugging Face folder or hub id, or another run's model."""

    key: ClassVar[str] = "checkpoint"
    article: ClassVar[str] = "a checkpoint"
    paths: ClassVar[tuple[str, ...]] = ("checkpoint",)

    type: Literal["checkpoint"] = "checkpoint"
    checkpoint: str
    max_length: Annotated[int, Field(ge=8)] | None = None

    def describe(self) -> str:
        """Say what it is."""
        return f"the checkpoint {self.checkpoint}"


class PredictionsSpec(_Named):
    """Files of answers."""

    key: ClassVar[str] = "predictions"
    article: ClassVar[str] = "a file of predictions"
    paths: ClassVar[tuple[str, ...]] = ("predictions",)
    sparse: ClassVar[bool] = True

    type: Literal["predictions"] = "predictions"
    predictions: Annotated[Names, Field(min_length=1)]
    values: Literal["auto", "probabilities", "logits"] = "auto"

    def describe(self) -> str:
        """Say what it is."""
        return f"the answers in {', '.join(self.predictions)}"


class LlmSpec(_BuiltIn):
    """A language model behind an OpenAI-compatible server."""

    key: ClassVar[str] = "llm"
    article: ClassVar[str] = "a language model"
    asked: ClassVar[bool] = True

    type: Literal["llm"] = "llm"
    llm: LlmServer

    def digest_with(self, digest: str, train: str) -> str:
        """Count the training rows in where some of them are in the prompt."""
        return fingerprint([digest, train]) if self.llm.examples else digest

    def describe(self) -> str:
        """Say what it is."""
        return f"the language model {self.llm.model}"


#: The types that come with understill. A teacher with the key of one is of this type; any other is trained.
BUILT_IN: dict[str, type[_BuiltIn]] = {
    "checkpoint": CheckpointSpec,
    "llm": LlmSpec,
    "predictions": PredictionsSpec,
    "trained": TrainedSpec,
}
