"""What a language model's answers will take, before any of them is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from understill.data.load import LoadedTask
from understill.events import Watch, silent
from understill.pipeline.language_models import open_llms
from understill.recipe import Recipe
from understill.recipe.schema import LlmServer
from understill.teachers import LlmTeacher
from understill.teachers.llm.prompts import texts_of

#: Seconds that an answer takes where none was timed yet.
ASSUMED = 1.0


@dataclass(frozen=True)
class AskEstimate:
    """What one language model will be asked about one task."""

    teacher: str
    task: str
    rows: int
    requests: int  # still to be paid for
    kept: int  # paid for before
    tokens_in: float
    tokens_out: float
    minutes: float
    timed: bool  # by answers of this model that were kept
    cost: float | None


def estimate_asks(recipe: Recipe, watch: Watch = silent) -> Iterator[AskEstimate]:
    """Estimate the requests, tokens, minutes and money of every language model of a recipe."""
    for teacher, loaded in open_llms(recipe, watch):
        yield _estimate(teacher, loaded)


def _estimate(teacher: LlmTeacher, loaded: LoadedTask) -> AskEstimate:
    """Count what has to be asked; of a budget, the rows that come first stand for those that will be chosen."""
    settings = teacher.settings
    rows = requests = kept = tokens_in = length = 0
    for data in loaded.splits.values():
        if data.split.startswith("test"):
            continue
        places = teacher.rows(data)
        if settings.budget and not settings.only and not data.split.startswith("dev"):
            places = places[: settings.budget - rows if data.split == "unlabelled" else settings.budget]
        for texts in texts_of(data, places.tolist()).values():
            asks = teacher.asks(texts)
            known = teacher.cache.known(teacher.keys(texts))
            rows, kept, requests = rows + 1, kept + known, requests + len(asks) - known
            tokens_in += sum(ask.tokens - ask.length for ask in asks[known:])
            length += sum(ask.length for ask in asks[known:])
    seconds = teacher.cache.seconds(settings.model)
    return AskEstimate(
        teacher=teacher.name,
        task=loaded.task.name,
        rows=rows,
        requests=requests,
        kept=kept,
        tokens_in=tokens_in,
        tokens_out=length,
        minutes=_minutes(settings, requests, tokens_in + length, seconds or ASSUMED),
        timed=seconds is not None,
        cost=settings.cost(tokens_in, length),
    )


def _minutes(settings: LlmServer, requests: int, tokens: float, seconds: float) -> float:
    """Return how long it takes: by the server's speed, or by the limits that the recipe sets."""
    return max(
        requests * seconds / settings.concurrency / 60,
        requests / settings.requests_per_minute if settings.requests_per_minute else 0.0,
        tokens / settings.tokens_per_minute if settings.tokens_per_minute else 0.0,
    )
