"""The models: what a teacher, a student and all of them are made of."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import FieldSerializationInfo, field_serializer, field_validator

from understill.recipe.schema.network import EncoderSpec, HeadsSpec
from understill.recipe.schema.training import Training
from understill.recipe.section import Section

SomeSection = TypeVar("SomeSection", bound=Section)


class Partial(Section):
    """A part of the recipe whose sections hold only what differs from the top of the recipe."""

    encoder: EncoderSpec | None = None
    heads: HeadsSpec | None = None
    training: Training | None = None
    finetune: Training | None = None  # afterwards, on each task alone: what differs from the training before

    @field_validator("finetune", mode="before")
    @classmethod
    def _finetune(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_serializer("encoder", "heads", "training", "finetune")
    def _given(self, value: Section | None, info: FieldSerializationInfo) -> Any:
        # Were defaults written out, a copy would no longer follow the top of the recipe.
        return None if value is None else value.model_dump(mode=info.mode, exclude_unset=True)


class Settings(Section):
    """Everything that decides a model besides its tasks and data."""

    encoder: EncoderSpec
    heads: HeadsSpec
    training: Training


def over(base: SomeSection, given: SomeSection | None) -> SomeSection:
    """Return a section with another's given values laid over it."""
    if given is None:
        return base
    changes = {key: getattr(given, key) for key in given.model_fields_set}
    if "epochs" in changes and "steps" not in changes:
        changes["steps"] = None  # they would go before the epochs that are asked for
    return base.model_copy(update=changes)
