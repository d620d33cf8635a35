"""The client: requests to an OpenAI-compatible server, many at a time, within limits, each paid for once."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from understill.errors import UserError
from understill.recipe.schema import LlmServer
from understill.teachers.llm.cache import AnswerCache, LlmReply, request_key

if TYPE_CHECKING:
    import httpx

#: Answers that are worth another try: the server is busy, or out of order for a while.
PASSING = frozenset({408, 409, 425, 429})
#: Seconds: the first pause after a failure, which doubles, and the longest one, Retry-After included.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 120.0
#: The likeliest tokens that are asked for; no server gives more.
TOPS = 20
#: Bytes of a token, about, before the server has counted: four letters of English, or a little more than a syllable of
#: Korean, where counting characters would find a third of the tokens.
TOKEN_BYTES = 4
#: More tokens than any answer takes, however a server counts.
MOST_TOKENS = 2**31
#: Rows in a row without an answer, after which the server is taken to be gone.
GONE = 16


@dataclass(frozen=True)
class Ask:
    """One request."""

    prompt: str
    length: int  # tokens of the answer, at most
    logprobs: bool = True
    draw: int | None = None  # the number of the draw, where answers are drawn several times

    def body(self, model: str) -> dict[str, Any]:
        """Return it as JSON."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.length,
            "temperature": 0.0 if self.draw is None else 1.0,
        }
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": TOPS}
        return body if self.draw is None else {**body, "seed": self.draw}

    @property
    def tokens(self) -> int:
        """About how many tokens it takes."""
        return _tokens(self.prompt) + self.length


class NoAnswer(Exception):
    """A request that got no answer, however often it was sent."""


class Refused(Exception):
    """A request that the server will not answer: the row is too long, or the parameters are not known to it."""


class OutOfBudget(UserError):
    """A limit that the recipe sets is reached."""


class Bucket:
    """A token bucket: so many a minute, with ten seconds' worth at once."""

    def __init__(self, per_minute: float | None) -> None:
        self.rate = (per_minute or 0.0) / 60
        self.level = self.size = max(1.0, 10 * self.rate)
        self.last = time.monotonic()

    async def take(self, amount: float) -> None:
        """Wait until so much is there."""
        if not self.rate:
            return
        now = time.monotonic()
        self.level = min(self.size, self.level + (now - self.last) * self.rate) - amount
        self.last = now
        if self.level < 0:  # those who come later wait for it too
            await asyncio.sleep(-self.level / self.rate)


class LlmClient:
    """Asks a server, and keeps what it answers."""

    def __init__(self, name: str, settings: LlmServer, cache: AnswerCache, scope: str) -> None:
        self.name, self.settings, self.cache, self.scope = name, settings, cache, scope
        self.requests, self.tokens = Bucket(settings.requests_per_minute), Bucket(settings.tokens_per_minute)
        self.paused_until, self.failures, self.refusals = 0.0, 0, 0
        self.reached = self.answered = False  # whether it was there at all, and whether any request was answered
        self._secret = _secret(name, settings)
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> LlmClient:
        httpx = _httpx()
        headers = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        settings = self.settings
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=settings.timeout,
            limits=httpx.Limits(max_connections=settings.concurrency),
            verify=settings.endpoint.startswith("https"),  # certificates take a while to load
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._http
        await self._http.aclose()

    async def ask(self, ask: Ask) -> LlmReply:
        """Return the answer to a request, from the cache where it was paid for before."""
        body = ask.body(self.settings.model)
        key = request_key(body)
        if (kept := self.cache.get(key)) is not None:
            self.answered = True
            return kept
        last = ""
        for attempt in range(self.settings.retries + 1):
            if attempt:
                await asyncio.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)))
            while (wait := self.paused_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            await self.requests.take(1)
            await self.tokens.take(ask.tokens)
            self._within_budget()
            self.cache.count_request(self.scope)
            reply, last = await self._send(body)
            if reply is not None:
                self.failures, self.answered = 0, True
                self.cache.put(key, self.settings.model, reply, self.scope)
                return reply
        if not self.reached:
            fix = "start the server, or check endpoint"
            raise UserError(f"teacher {self.name}: nothing is there at {self.settings.endpoint} ({last}) → {fix}")
        self.failures += 1
        if self.failures >= max(GONE, self.settings.concurrency):
            what = f"{self.settings.endpoint} has stopped answering ({last})"
            fix = "check the server and run again; the answers received so far are kept"
            raise UserError(f"teacher {self.name}: {what} → {fix}")
        raise NoAnswer(last)

    async def _send(self, body: Mapping[str, Any]) -> tuple[LlmReply | None, str]:
        """Send a request once: return its answer, or what went wrong where it is worth another try."""
        httpx, began = _httpx(), time.monotonic()
        assert self._http
        try:
            response = await self._http.post(f"{self.settings.endpoint}/chat/completions", json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return None, self._clean(str(error) or type(error).__name__)
        except httpx.TimeoutException:
            self.reached = True
            return None, f"no answer within {self.settings.timeout:g} s"
        except (httpx.TransportError, httpx.DecodingError) as error:
            self.reached = True
            return None, self._clean(str(error) or type(error).__name__)
        self.reached = True
        if response.status_code in PASSING or response.status_code >= 500:
            if wait := _retry_after(response.headers.get("retry-after")):
                self.paused_until = max(self.paused_until, time.monotonic() + min(wait, LONGEST_PAUSE))
            return None, f"status {response.status_code}"
        if response.status_code >= 400 or response.is_redirect:
            raise self._refusal(response)
        try:
            return _reply(response.json(), time.monotonic() - began), ""
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            return None, "an answer that is no chat completion"

    def _refusal(self, response: httpx.Response) -> Exception:
        """Return what to raise where asking again is of no use."""
        status, place = response.status_code, f"teacher {self.name}: {self.settings.endpoint}"
        if status in (401, 403):
            variable = self.settings.key
            fix = f"check what {variable} holds" if variable else "write key: and the variable that holds your key"
            return UserError(f"{place} refuses the key (status {status}) → {fix}")
        if status == 404 or response.is_redirect:
            fix = "check endpoint, which mostly ends in /v1, and model"
            return UserError(f"{place} does not know this address or model (status {status}) → {fix}")
        if status == 402:
            return UserError(f"{place} requires payment (status 402) → check your account, then run again")
        self.refusals += 1
        if self.refusals >= GONE and not self.answered:
            what = f"refuses every request ({self._clean(response.text[:300])})"
            return UserError(f"{place} {what} → check model, and what else it names")
        return Refused(self._clean(response.text[:300]))

    def _within_budget(self) -> None:
        """Stop where a limit is reached, before the request that would go past it."""
        settings, spent = self.settings, self.cache.spent(self.scope)
        cost = settings.cost(spent.tokens_in, spent.tokens_out)
        limits = {
            "max_requests": (settings.max_requests, spent.requests),
            "max_tokens": (settings.max_tokens, spent.tokens),
            "max_cost": (settings.max_cost, cost),
        }
        for name, (limit, used) in limits.items():
            if limit is not None and used is not None and used >= limit:
                raise OutOfBudget(f"teacher {self.name}: llm.{name} is reached ({used:,.6g} of {limit:,.6g})")

    def _clean(self, text: str) -> str:
        """Take the key out of what a server writes, which may repeat it."""
        return text.replace(self._secret, "…") if self._secret else text


def _reply(body: Any, seconds: float) -> LlmReply:
    """Read a chat completion; whatever else is there raises an error of the kinds that `_send` knows."""
    choice = body["choices"][0]
    text = choice["message"].get("content")
    if text is None:
        text = str(choice["message"].get("refusal") or "")
    if not isinstance(text, str):
        raise ValueError("content is no text")
    usage = body.get("usage") or {}
    content = (choice.get("logprobs") or {}).get("content") or ()
    tops = tuple(_tops(position) for position in content)
    counted = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or max(1, _tokens(text)))
    tokens_in, tokens_out = (min(max(0, int(each)), MOST_TOKENS) for each in counted)
    text = text.encode("utf-8", "replace").decode()  # half a character cannot be kept
    return LlmReply(text, tuple(each for each in tops if each), tokens_in, tokens_out, seconds)


def _tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return len(text.encode("utf-8", "replace")) // TOKEN_BYTES


def _tops(position: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return the likeliest tokens at a place, the written one first."""
    written = (str(position["token"]), float(position["logprob"]))
    others = [(str(each["token"]), float(each["logprob"])) for each in position.get("top_logprobs") or ()]
    tops = (written, *(each for each in others if each[0] != written[0])) if others else ()
    return tuple(each for each in tops if each[1] <= 0)  # neither NaN nor nonsense


def _retry_after(value: str | None) -> float:
    """Return the seconds that a server asks to wait, given as a number or as a date."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0


def _secret(name: str, settings: LlmServer) -> str:
    """Return the key, which is never written anywhere."""
    if settings.key is None:
        return ""
    secret = os.environ.get(settings.key, "").strip()
    if not secret:
        raise UserError(
            f"teacher {name}: the variable {settings.key} is not set → export {settings.key}=… and run again"
        )
    return secret


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise UserError('a language model is asked with httpx → pip install "understill[llm]"') from None
    return httpx
