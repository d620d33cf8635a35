"""A language model as a teacher: its server, how it is asked, which rows, and what that may cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from understill.recipe.section import Count, Fault, Positive, Section, Seed, Text, Weight

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: How keys of well-known servers begin; none of them is a name of a variable that somebody would choose.
_KEY = re.compile(r"(sk|gsk|hf|xai|key)[-_][A-Za-z0-9]|.{50}")


class Prices(Section):
    """What a server charges for a million tokens, in any currency."""

    input: Weight
    output: Weight


class LlmServer(Section):
    """An OpenAI-compatible server, and what is asked of it."""

    paths: ClassVar[tuple[str, ...]] = ("prompt", "only")
    written: ClassVar[tuple[str, ...]] = ("only",)

    endpoint: Text  # such as http://localhost:8080/v1
    model: Text
    key: str | None = None  # the environment variable that holds the key, never the key itself

    prompt: str | None = None  # a file with a template of your own
    options: Literal["labels", "letters", "numbers"] = "labels"  # what stands for the labels in prompts and answers
    examples: Annotated[int, Field(ge=0, le=64)] = 0  # labelled rows of train in the prompt
    seed: Seed = 0  # by which examples and rows are drawn
    answers: Literal["auto", "logprobs", "samples"] = "auto"  # probabilities, where the server gives them
    samples: Count = 5  # how often a row is asked where it gives none
    calibrate: bool = False  # divide by the answer to an empty text

    rows: Literal["all", "train", "unlabelled"] = "all"
    dev: Count | None = None  # at most so many rows of a dev set are asked
    budget: Count | None = None  # at most so many other rows
    choose: Literal["random", "uncertainty", "diverse"] = "random"
    rounds: Count = 1  # the budget is spent in so many parts, until the dev score no longer rises
    only: str | None = None  # a file with the ids of the rows that are asked; a run writes it for a budget

    concurrency: Count = 8
    timeout: Positive = 120.0  # seconds, for one answer
    retries: Annotated[int, Field(ge=0, le=20)] = 5
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_requests: Count | None = None
    max_tokens: Count | None = None
    max_cost: Positive | None = None
    prices: Prices | None = None

    @field_validator("endpoint")
    @classmethod
    def _address(cls, value: str) -> str:
        # What is wrong is not repeated here: it may be a key, and errors are logged.
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("this is no address → write it as in http://localhost:8080/v1")
        if "@" in parts.netloc or parts.query:
            raise ValueError(
                "it holds a password or a key → put that into a variable, and name it: key: OPENAI_API_KEY"
            )
        return value.rstrip("/").removesuffix("/chat/completions")

    @field_validator("key")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and (not _VARIABLE.fullmatch(value) or _KEY.match(value)):
            raise ValueError(
                "this is no name of an environment variable → write key: OPENAI_API_KEY, never the key itself"
            )
        return value

    def faults(self) -> Iterator[Fault]:
        """Yield limits that nothing could be held to."""
        if self.max_cost and not self.prices:
            yield "max_cost", "what an answer costs is not known → add prices: {input: 0.15, output: 0.60}"
        if self.budget is None and (self.rounds > 1 or self.choose != "random"):
            key = "rounds" if self.rounds > 1 else "choose"
            yield key, "rows are chosen within a budget → add budget: 2000"
        if self.choose == "uncertainty" and self.rounds == 1:
            yield "choose", "a student must have learnt from some rows before it can be uncertain → write rounds: 4"
        if self.budget and self.rounds > self.budget:
            yield "rounds", f"{self.rounds} rounds do not share out {self.budget} rows → write fewer"

    def cost(self, tokens_in: float, tokens_out: float) -> float | None:
        """Return what so many tokens cost; None where no prices are given."""
        prices = self.prices
        return (tokens_in * prices.input + tokens_out * prices.output) / 1e6 if prices else None
