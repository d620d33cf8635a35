"""Sections: what a recipe is built of, frozen and strict about what may stand there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from understill.errors import listed, nearest
from understill.plugins import Registry
from understill.recipe.mistakes import shown


class Section(BaseModel):
    """A part of a recipe: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def short(cls, value: Any) -> Any:
        """Spell out a short form, such as a mere name."""
        return value

    @classmethod
    def read_as(cls, value: Any) -> type[Section]:
        """Return the section that a value is read as, where there are several that may stand here."""
        return cls

    @classmethod
    def members(cls) -> tuple[type[Section], ...]:
        """The sections that may stand where this one is wanted."""
        return (cls,)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, cls) else cls.short(value)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Left alone, pydantic would read true as 1.
        if isinstance(value, bool) and _types(cls.model_fields[str(info.field_name)].annotation) & {int, float}:
            raise PydanticCustomError("float_type", "a number")
        return value


def _types(annotation: Any) -> set[Any]:
    """Return the plain types of an annotation such as `Annotated[int, …] | None`."""
    return {annotation}.union(*(_types(part) for part in get_args(annotation) if not isinstance(part, FieldInfo)))


def faulty(*faults: tuple[str, str]) -> PydanticCustomError:
    """Report several faults of one section, each by its key and in words."""
    return PydanticCustomError("faulty", "{faults}", {"faults": faults})


def one_of(value: Any, words: Sequence[str] | Registry[Any]) -> Any:
    """Take a known name; say which there are where it is another value."""
    if isinstance(value, str) and value in words:
        return value
    known = list(words)
    wrong = "there is no value" if value is None else f"{shown(value)} is not allowed"
    close = nearest(str(value), known)
    raise ValueError(f"{wrong} → {close if close.startswith('did you mean') else f'write {listed(known)}'}")


def as_list(value: Any) -> Any:
    """Take one value or a list of them."""
    return value if isinstance(value, (list, tuple)) or value is None else [value]


Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _or_auto(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if value == "auto" else check(value)


if TYPE_CHECKING:
    Chosen: TypeAlias = float | Literal["auto"]
else:
    # No union, of which each part would have its own complaint about a wrong value.
    Chosen = Annotated[float, Field(gt=0), WrapValidator(_or_auto), PlainSerializer(lambda value: value)]


class Every(Section):
    """How often something happens: `200 steps`, `1 epoch`, `0.5 epochs`, `5 minutes`, `never`, or `auto`."""

    count: Positive
    unit: Literal["steps", "epochs", "minutes", "never", "auto"]

    @classmethod
    def short(cls, value: Any) -> Any:
        """Read an interval in words."""
        if isinstance(value, dict):
            return value
        if isinstance(value, str):
            if value.strip() in ("never", "auto"):
                return {"count": 1, "unit": value.strip()}
            match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+)\s*(step|epoch|minute)s?\s*", value)
            if match and float(match[1]) > 0:
                return {"count": float(match[1]), "unit": f"{match[2]}s"}
        raise ValueError(f'{shown(value)} is not an interval → write "200 steps", "1 epoch", "5 minutes" or "never"')

    def __str__(self) -> str:
        count = int(self.count) if self.count < 1e15 and self.count.is_integer() else self.count
        return self.unit if self.unit in ("never", "auto") else f"{count} {self.unit}"
