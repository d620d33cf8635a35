"""Sections: the frozen, strict models a recipe is built of, and the types of their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
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
from understill.names import RULE, is_name
from understill.plugins import Registry

Fault = tuple[str, str]  # the key, with dots where it is nested, and what is wrong → what to write instead
#: So many are put into words; to look for what each of thousands was meant to be would take minutes.
MOST_FAULTS = 200
Move = Callable[[str], str]  # from a path as it is written to one that the working folder has


class Section(BaseModel):
    """A part of a recipe: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    paths: ClassVar[tuple[str, ...]] = ()  # the keys that hold paths
    written: ClassVar[tuple[str, ...]] = ()  # the keys that a run writes into its own recipe, and no message proposes

    @classmethod
    def proposed(cls) -> dict[str, FieldInfo]:
        """Return the keys that messages may propose."""
        return {key: field for key, field in cls.model_fields.items() if key not in cls.written}

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

    def faults(self) -> Iterable[Fault]:
        """Return what is wrong with values that are sound one by one."""
        return ()

    def path_keys(self) -> tuple[str, ...]:
        """Return the keys whose values are paths."""
        return self.paths

    def located(self, move: Move) -> Self:
        """Return the section with all paths in it moved."""
        held = {key: getattr(self, key) for key in self.model_fields_set}
        moved = {key: _moved(value, move, key in self.path_keys()) for key, value in held.items()}
        # Always a copy, and with no more keys set than before.
        return self.model_copy(update={key: value for key, value in moved.items() if value != held[key]})

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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := list(islice(self.faults(), MOST_FAULTS)):
            raise faulty(*faults)
        return self


def _moved(value: Any, move: Move, is_path: bool) -> Any:
    if isinstance(value, Section):
        return value.located(move)
    if isinstance(value, str):
        return move(value) if is_path else value
    if isinstance(value, dict):
        return {key: _moved(each, move, is_path) for key, each in value.items()}
    return tuple(_moved(each, move, is_path) for each in value) if isinstance(value, tuple) else value


def _types(annotation: Any) -> set[Any]:
    """Return the plain types of an annotation such as `Annotated[int, …] | None`."""
    return {annotation}.union(*(_types(part) for part in get_args(annotation) if not isinstance(part, FieldInfo)))


def faulty(*faults: Fault) -> PydanticCustomError:
    """Return the error that reports several faults of one section."""
    return PydanticCustomError("faulty", "{faults}", {"faults": faults})


def shown(value: Any) -> str:
    """Show a value as it might stand in the file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:60]}…"' if len(value) > 60 else f'"{value}"'
    if isinstance(value, (int, float)):
        return f"{value}"[:60]
    return "a list" if isinstance(value, (list, tuple)) else "a mapping" if isinstance(value, dict) else repr(value)


def one_of(value: Any, words: Sequence[str] | Registry[Any]) -> Any:
    """Take a known name; say which there are where it is another value."""
    if isinstance(value, str) and value in words:
        return value
    known = list(words)
    wrong = "there is no value" if value is None else f"{shown(value)} is not allowed"
    raise ValueError(f"{wrong} → {nearest(str(value), known, f'write {listed(known)}')}")


def as_list(value: Any) -> Any:
    """Take one value or a list of them."""
    return value if isinstance(value, (list, tuple)) or value is None else [value]


def as_text(value: Any) -> Any:
    """Take a label that looks like a number or a truth value in YAML for the text that it is in data files."""
    text = str(value) if isinstance(value, (int, float)) else value
    return text.lower() if isinstance(value, bool) else text


def none_for(word: Any) -> BeforeValidator:
    """Take a word, such as none or false, for no value."""
    return BeforeValidator(lambda value: None if type(value) is type(word) and value == word else value)


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return what is there more than once, sorted."""
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _as_name(value: str) -> str:
    if not is_name(value):
        raise ValueError(f"{shown(value)} cannot be a name → {RULE}")
    return value


Name = Annotated[str, AfterValidator(_as_name)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
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
