"""What a language model's answers will take, before any of them is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.errors import listed
from understill.events import Watch, silent
from understill.pipeline.language_models import open_llms
from understill.recipe import Recipe
from understill.recipe.schema import LlmServer
from understill.teachers import LlmTeacher
from understill.teachers.llm.choose import choose
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
    draws: int = 1  # how often each row will be asked if the server gives no log-probabilities, while that is not known
    short: str = ""  # which limits of the recipe its teacher's requests go past


def estimate_asks(recipe: Recipe, watch: Watch = silent) -> Iterator[AskEstimate]:
    """Estimate the requests, tokens, minutes and money of every language model of a recipe."""
    for _, opened in groupby(open_llms(recipe, watch), key=lambda each: each[0].name):
        mine = []
        for teacher, loaded in opened:
            mine.append(_estimate(teacher, loaded))
        if any(each.requests for each in mine):
            mine[-1] = replace(mine[-1], short=_beyond(teacher, mine))
        yield from mine


def _beyond(teacher: LlmTeacher, asks: Sequence[AskEstimate]) -> str:
    """Name the limits of a language model that what is to be asked goes past, with what was spent before."""
    settings, spent = teacher.settings, teacher.cache.spent(teacher.scope)
    tokens_in, tokens_out = sum(each.tokens_in for each in asks), sum(each.tokens_out for each in asks)
    wanted = {
        "max_requests": spent.requests + sum(each.requests for each in asks),
        "max_tokens": spent.tokens + tokens_in + tokens_out,
        "max_cost": settings.cost(spent.tokens_in + tokens_in, spent.tokens_out + tokens_out),
    }
    limits = {name: getattr(settings, name) for name in wanted}
    passed = [
        f"llm.{name}: {limits[name]:,.6g}, for it needs about {need:,.6g} with what was spent before"
        for name, need in wanted.items()
        if limits[name] is not None and need is not None and need > limits[name]
    ]
    return f"{teacher.name} would stop at {listed(passed, 'and at')}" if passed else ""


def _estimate(teacher: LlmTeacher, loaded: LoadedTask) -> AskEstimate:
    """Count what has to be asked; of a budget, random rows stand for those that other rules will choose."""
    settings = teacher.settings
    requests = kept = tokens_in = length = 0
    asked = {data: teacher.rows(data).tolist() for data in loaded.splits.values() if not data.split.startswith("test")}
    if settings.budget and not settings.only:
        asked |= _within(settings, {data: places for data, places in asked.items() if not data.split.startswith("dev")})
    texts_by_split = [list(texts_of(data, places).values()) for data, places in asked.items()]
    # Whether the server gives probabilities shows in the first answer of a split; where not, draws were kept.
    firsts = [texts[0] for texts in texts_by_split if texts]
    draws = settings.answers == "auto" and any(teacher.known(teacher.draws(texts)) for texts in firsts)
    rows = [texts for split in texts_by_split for texts in split]
    for texts in rows + (teacher.blanks() if settings.calibrate and rows else []):
        asks = teacher.asks(texts, draws=draws)
        known = teacher.known(asks)
        kept, requests = kept + known, requests + len(asks) - known
        tokens_in += sum(ask.tokens - ask.length for ask in asks[known:])
        length += sum(ask.length for ask in asks[known:])
    seconds = teacher.cache.seconds(settings.model)
    return AskEstimate(
        teacher=teacher.name,
        task=loaded.task.name,
        rows=len(rows),
        requests=requests,
        kept=kept,
        tokens_in=tokens_in,
        tokens_out=length,
        minutes=_minutes(settings, requests, tokens_in + length, seconds or ASSUMED),
        timed=seconds is not None,
        cost=settings.cost(tokens_in, length),
        draws=settings.samples if settings.answers == "auto" and not kept else 1,
    )


def _within(settings: LlmServer, pools: dict[TaskData, list[int]]) -> dict[TaskData, list[int]]:
    """Return those of the rows of a pool's splits that a random choice takes within the budget."""
    ids = {data: data.table()["id"].to_pylist() for data in pools}
    own = list(dict.fromkeys(ids[data][place] for data, places in pools.items() for place in places))
    chosen = {own[place] for place in choose("random", own, settings.budget or 0, seed=settings.seed)}
    return {data: [place for place in places if ids[data][place] in chosen] for data, places in pools.items()}


def _minutes(settings: LlmServer, requests: int, tokens: float, seconds: float) -> float:
    """Return how long it takes: by the server's speed, or by the limits that the recipe sets."""
    return max(
        requests * seconds / settings.concurrency / 60,
        requests / settings.requests_per_minute if settings.requests_per_minute else 0.0,
        tokens / settings.tokens_per_minute if settings.tokens_per_minute else 0.0,
    )
