"""The teachers: trained here, there already, or a file of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from understill.recipe.schema.models import Partial
from understill.recipe.section import Names, Seed, faulty
from understill.recipe.sweep import several_seeds


class TeacherSpec(Partial):
    """A teacher: models trained here, a checkpoint that is there already, or a file of predictions."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    tasks: Names = ()  # all, where none is named
    teaches: Names | None = None  # those of its tasks that it teaches; all, where the recipe does not say
    models: Literal["each", "together"] = "each"
    seeds: tuple[Seed, ...] | Literal["student"] = ()  # of its own, or that of the student, with which it changes
    folds: Annotated[int, Field(ge=2, le=100)] | None = None  # each row is labelled by a model that has not seen it
    grid: dict[str, Any] = Field(default_factory=dict)  # a teacher for each combination; taken apart before
    checkpoint: str | None = None
    predictions: Names = ()
    labels: dict[str, str] = Field(default_factory=dict)  # the teacher's names to the task's
    max_length: Annotated[int, Field(ge=8)] | None = None
    values: Literal["auto", "probabilities", "logits"] = "auto"

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
        return value if value == "student" else several_seeds(value)

    @field_validator("labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        # In YAML a label or a class number may look like a number or a truth value.
        plain = {True: "true", False: "false"}
        if isinstance(value, dict):
            return {_text(key, plain): _text(name, plain) for key, name in value.items()}
        return value

    def teaches_task(self, name: str) -> bool:
        """Tell whether it teaches a task."""
        return name in self.teaches if self.teaches is not None else not self.tasks or name in self.tasks

    @property
    def trained(self) -> bool:
        """Whether it is trained by the run."""
        return self.checkpoint is None and not self.predictions

    @model_validator(mode="after")
    def _whole(self) -> TeacherSpec:
        faults = []
        if self.checkpoint is not None and self.predictions:
            faults.append(("predictions", "a teacher is a checkpoint or a file of predictions → make it two teachers"))
        where = "a checkpoint" if self.checkpoint is not None else "a file of predictions"
        taught = ("models", "encoder", "heads", "training", "finetune", "teaches", "seeds", "folds")
        alien = taught if not self.trained else ("labels", "max_length", "values")
        if self.checkpoint is not None:
            alien = (*alien, "values")
        elif self.predictions:
            alien = (*alien, "max_length")
        for key in alien:
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                what = f"{where} is not trained here" if key in taught else "it does not go with this kind of teacher"
                faults.append((key, f"{what} → leave it out"))
        if self.finetune is not None and self.models == "each":
            faults.append(("finetune", "a model of one task has been trained on it alone → write tasks: together"))
        for at, name in enumerate(self.teaches or ()):
            if self.tasks and name not in self.tasks:
                faults.append((f"teaches.{at}", f'it does not learn "{name}" itself → name one of its tasks'))
        if faults:
            raise faulty(*faults)
        return self


def _text(value: Any, plain: Mapping[Any, str]) -> Any:
    return plain[value] if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value
