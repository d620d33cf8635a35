"""Schemas: what is asked and answered over HTTP, as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import from_json

from understill.errors import UserError, nearest

MAX_TASKS = 1000
#: Values of JSON that are parsed in a few milliseconds.
FEW_VALUES = 50_000

_TEXT = "The parcel never came."


def _listed(value: Any) -> Any:
    """Return one text as a list of one."""
    return [value] if isinstance(value, str) else value


Name = Annotated[str, StringConstraints(max_length=200)]
# Of a million wrong texts only the first is reported. The JSON schema of both is made in openapi.py.
Texts = Annotated[list[str], Field(fail_fast=True), BeforeValidator(_listed), WithJsonSchema({})]


class Form(BaseModel):
    """A JSON object whose keys are known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Question(Form):
    """Texts, or pairs of texts, and what to tell of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"texts": _TEXT},
                {"texts": ["I paid twice.", _TEXT], "pairs": ["I was charged two times.", "All is well."]},
                {"texts": [_TEXT], "tasks": ["mood"], "teacher": True},
            ]
        }
    )

    texts: Texts = Field(description="One text, or several; the first texts of pairs.")
    pairs: Texts | None = Field(None, description="The second texts of pairs, as many as texts.")
    tasks: Annotated[list[Name], Field(fail_fast=True)] | None = Field(
        None, max_length=MAX_TASKS, description="The tasks to answer; all that read so many texts if left out."
    )
    teacher: bool = Field(False, description="Ask the teacher too, where the server has one.")
    top_k: int | None = Field(
        None, ge=1, description="How many of the likeliest classes to give probabilities of; all if left out."
    )


class Labelled(Form):
    """The answer of a task of classes."""

    label: str = Field(description="The likeliest class.")
    probabilities: dict[str, float] = Field(
        description="The probability of each class; with top_k, of the likeliest, in order."
    )


class ScoreAnswer(Form):
    """The answer of a task of scores, or of a candidate in a ranking."""

    score: float = Field(description="The score, on the task's scale.")


class SeveralScored(Form):
    """The answer of a task of several scores."""

    scores: dict[str, float] = Field(description="The scores by their names.")


Row = dict[str, Labelled | ScoreAnswer | SeveralScored]


class ModelAnswers(Form):
    """A model's answers for all rows."""

    model: str = Field(description="The name of the model, such as quickstart/int8.")
    answers: list[Row] = Field(description="For each row, the answer of each task by its name.")
    milliseconds: float = Field(description="From the question to these answers, waiting included.")


class Reply(ModelAnswers):
    """The model's answers for all rows, and the teacher's where it was asked."""

    teacher: ModelAnswers | None = Field(None, description="The teacher's answers; there only if they were asked for.")
    differ: list[list[str]] | None = Field(
        None,
        description="For each row, the tasks whose label differs, or whose scores lie more than a tenth of the range "
        "apart; there only if the teacher was asked for.",
    )


class TaskFacts(Form):
    """One task of the model."""

    name: str
    kind: str = Field(description="classification, regression, ranking, or what a plug-in adds.")
    pair: bool = Field(description="Whether it reads two texts.")
    labels: list[str] | None = Field(description="The classes; null for scores.")
    range: tuple[float, float] | None = Field(description="The lowest and the highest score, where there are bounds.")
    tokens: int = Field(description="How many tokens it reads; the rest is truncated.")


class Limits(Form):
    """How much one request may hold."""

    rows: int = Field(description="Texts, or pairs.")
    characters: int = Field(description="Characters of a text.")
    bytes: int = Field(description="Bytes of the body.")


class TaskList(Form):
    """What the server can be asked."""

    model: str
    teacher: str | None = Field(description="The teacher's name, where there is one.")
    limits: Limits
    tasks: list[TaskFacts]


class Status(Form):
    """How the server is."""

    status: Literal["alive", "loading", "ready", "draining"]


class Refusal(Form):
    """Why there is no answer."""

    error: str = Field(description='One sentence, such as: the model has no task "mod"; did you mean "mood"?')


def is_simple(body: bytearray, rows: int) -> bool:
    """Tell whether a body has no more JSON values than so many rows need: a million small ones take half a second."""
    strings = 2 * rows + MAX_TASKS + len(Question.model_fields)
    for size in (2**16, len(body)):  # what is wrong from the beginning need not be read to the end
        unescaped = body[:size].replace(b"\\\\", b"").replace(b'\\"', b"")
        if unescaped.count(b'"') > 2 * strings:
            return False
        outside = b"".join(unescaped.split(b'"')[::2]).translate(None, b" \t\r\n")
        if len(outside) > 4 * strings:  # a comma or a colon for each, a few brackets and numbers
            return False
    return True


def read_question(body: bytes | bytearray) -> Question:
    """Read a question, or say what is wrong with it, without quoting more of it than a key."""
    try:
        data = from_json(body)
    except ValueError as error:
        raise UserError(f"the body is no JSON: {error}") from None
    # Of a million unknown keys pydantic would list each.
    unknown = next((key for key in data if key not in Question.model_fields), None) if isinstance(data, dict) else None
    if unknown is not None:
        shown = json.dumps(unknown if len(unknown) <= 40 else f"{unknown[:40]}…", ensure_ascii=False)
        raise UserError(f"unknown key {shown}; {nearest(unknown[:40], Question.model_fields)}")
    try:
        return Question.model_validate(data)
    except ValidationError as error:
        raise UserError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    wrong = error.errors(include_url=False, include_input=False)[0]
    error_type, (key, *rest) = wrong["type"], wrong["loc"] or ("the body",)
    place = f"{key}, number {int(rest[0]) + 1}" if rest else str(key)
    if error_type == "list_type":
        return f"{key} must be a {'' if key == 'tasks' else 'string or a '}list of strings"
    return f"{place} {_WRONG[error_type]}" if error_type in _WRONG else f"{place}: {wrong['msg']}"


_WRONG = {
    "missing": "is missing",
    "model_type": "must be an object, in braces",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be 1 or more",
}
