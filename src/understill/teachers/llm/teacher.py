"""A language model as a teacher: it is asked about rows, and its probabilities are the soft targets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from understill.atomic import fingerprint, known_digest
from understill.data.taskdata import TaskData, source_rows
from understill.errors import UserError
from understill.plugins import TEACHERS
from understill.recipe import Recipe
from understill.recipe.schema import LlmServer, LlmSpec
from understill.teachers.llm.answers import calibrated, drawn, read_reply, read_text
from understill.teachers.llm.cache import AnswerCache, LlmReply, request_key
from understill.teachers.llm.choose import random_order
from understill.teachers.llm.client import Ask, LlmClient, NoAnswer, OutOfBudget, Refused
from understill.teachers.llm.prompts import EMPTY, TEMPLATE, Prompt, make_prompt, texts_of
from understill.teachers.llm.usage import Usage
from understill.teachers.protocol import Logits, Opening, Progress, Teacher

log = logging.getLogger(__name__)

#: The settings that decide answers; the others decide how and when they are asked for.
DECIDING = ("model", "options", "examples", "seed", "answers", "samples", "calibrate", "rows", "dev")
#: Tokens of an answer to a second question, which may be a sentence.
SENTENCE = 24
#: From this share of rows without an answer on, something is wrong with the server and not with the rows.
TOO_MANY = 0.05

T = TypeVar("T")


@TEACHERS.own("llm")
class LlmType:
    """Language models behind a server."""

    Spec = LlmSpec

    @staticmethod
    def digest_of(spec: LlmSpec, recipe: Recipe) -> str:
        """Return the digest of what decides its answers; the address of its server does not."""
        settings = spec.llm
        own = {name: getattr(settings, name) for name in DECIDING}
        meant = {
            name: [task.question, task.descriptions] for name, task in recipe.tasks.items() if spec.teaches_task(name)
        }
        only = known_digest(recipe.find(settings.only)) if settings.only else None
        return fingerprint({**own, "template": _template(spec, recipe), "meant": meant, "only": only})

    @staticmethod
    def open(spec: LlmSpec, opening: Opening) -> Teacher:
        """Make its prompt; nothing is asked yet."""
        recipe, task = opening.recipe, opening.data.task
        reported, train = recipe.tasks[task.name], opening.data.splits["train"]
        template = _template(spec, recipe)
        prompt = make_prompt(task, spec.llm, template, reported.question, reported.descriptions, train)
        digest = spec.digest_with(LlmType.digest_of(spec, recipe), train.fingerprint)
        only = _ids(recipe.find(spec.llm.only)) if spec.llm.only else None
        scope = f"{recipe.name}/{spec.name}"
        # Where no training row has gold, the training rows are the unlabelled files: nothing is left to choose between.
        texts_alone = reported.goldless or "train" in reported.silver
        settings = spec.llm.model_copy(update={"rows": "all"}) if texts_alone else spec.llm
        wanted = ("train", "unlabelled") if settings.rows == "all" else (settings.rows,)
        nested = (
            spec.llm.choose == "random"
            and sum(split in opening.data.splits for split in wanted) == 1
            and len(spec.tasks or recipe.tasks) == 1  # otherwise the limit is spent on several
            and (not texts_alone or isinstance(reported.dev, tuple))  # what is held out of texts is asked about last
        )
        cache = AnswerCache(opening.cache)
        return LlmTeacher(opening.name, digest, settings, prompt, cache, scope, only, nested)


def _template(spec: LlmSpec, recipe: Recipe) -> str:
    if not spec.llm.prompt:
        return TEMPLATE
    path = recipe.find(spec.llm.prompt)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"teacher {spec.name}: the prompt {spec.llm.prompt} cannot be read: {error}") from None


def _ids(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split())


@dataclass(frozen=True, eq=False)
class LlmTeacher:
    """A language model, asked row by row; what it answered before is not asked again."""

    name: str
    digest: str
    settings: LlmServer
    prompt: Prompt
    cache: AnswerCache
    scope: str  # under which money is counted
    only: frozenset[str] | None = None
    nested: bool = False  # whether the rows of a smaller budget are those that are asked about first
    usage: Usage = field(default_factory=Usage, init=False)  # of the answers that were asked for through this object

    def logits(self, data: TaskData, progress: Progress | None = None) -> Logits:
        """Return what the model answers, in the order of the task's labels; NaN for rows not asked or not answered."""
        rows = self.rows(data)
        result = np.full((data.rows, data.task.outputs), np.nan, np.float32)
        if progress:
            progress(data.rows - len(rows))
        if not len(rows):
            return result
        logged = run(self._all(texts_of(data, rows.tolist()).values(), data.split, progress))
        answered = ~np.isnan(logged).any(axis=1)
        if answered.any():
            order = data.task.kind.order(self.prompt.task, data.task)
            result[rows[answered]] = self.prompt.task.kind.from_choices(self.prompt.task, logged[answered])[:, order]
        return result

    def rows(self, data: TaskData) -> NDArray[np.int64]:
        """Return the places of the rows of a split that are asked about, in the order in which a smaller `dev` or a
        smaller random budget would take them: where a limit stops a run, such a part is answered.
        """
        ids = data.table()["id"].to_pylist()
        if data.split.startswith(("dev", "test")):
            # The ids are hashes, so that the lowest ones are a fair sample, and the same one in every run.
            return np.argsort(ids, kind="stable")[: self.settings.dev]
        split = "unlabelled" if data.split == "unlabelled" else "train"
        if self.settings.rows not in ("all", split):
            return np.zeros(0, np.int64)
        own = source_rows(data) == np.arange(data.rows)  # what augmentation made is not paid for
        first = {name: place for place, name in reversed(list(enumerate(ids)))}  # texts may be there twice
        names = list(first)
        rank = {names[place]: number for number, place in enumerate(random_order(names, self.settings.seed))}
        wanted = [place for place, name in enumerate(ids) if own[place] and (self.only is None or name in self.only)]
        return np.array(sorted(wanted, key=lambda place: rank[ids[place]]), np.int64)

    def asks(self, texts: Sequence[str], draws: bool = False) -> list[Ask]:
        """Return the requests about one row, as far as they are known before the first is answered.

        `draws` where it is known that answers are drawn several times.
        """
        if draws or self.settings.answers == "samples":
            return self.draws(texts)
        return [Ask(self.prompt(texts), self.prompt.decisive)]

    def draws(self, texts: Sequence[str]) -> list[Ask]:
        """Return the requests by which the answer to one row is drawn several times."""
        prompt, length = self.prompt(texts), self.prompt.longest
        return [Ask(prompt, length, False, number) for number in range(self.settings.samples)]

    def blanks(self) -> list[tuple[str, ...]]:
        """Return the texts without content that calibration asks about."""
        return [tuple(text for _ in self.prompt.task.text) for text in EMPTY]

    def known(self, asks: Sequence[Ask]) -> int:
        """Count the requests that were answered before."""
        return self.cache.known([request_key(ask.body(self.settings.model)) for ask in asks])

    def asked(self) -> dict[str, Any]:
        """Return what the answers took that were asked for through this object, for the record of a run."""
        return self.usage.facts(self.settings)

    def spending(self) -> str:
        """Say what was spent so far, for the progress bar."""
        spent = self.cache.spent(self.scope)
        cost = self.settings.cost(spent.tokens_in, spent.tokens_out)
        money = "" if cost is None else f" · {cost:,.4f} spent"
        return f"{spent.requests:,} requests · {spent.tokens:,} tokens{money}"

    # One after the other, and many at a time -------------------------------------------------------------------------

    async def _all(
        self, texts: Collection[tuple[str, ...]], split: str, progress: Progress | None
    ) -> NDArray[np.float64]:
        """Ask about all rows; return the log-probabilities of the choices, [rows, choices]."""
        logged = np.full((len(texts), len(self.prompt.names)), np.nan)
        async with LlmClient(self.name, self.settings, self.cache, self.scope) as client:
            session = _Session(self, client)
            rows = enumerate(texts)
            first = next(rows)  # alone: what is wrong with the server shows before many are asked
            await session.work(iter([first]), logged, progress)
            empty = await session.empty() if self.settings.calibrate else []
            workers = [session.work(rows, logged, progress) for _ in range(self.settings.concurrency)]
            await asyncio.gather(*workers)
            if session.error:
                raise self._stopped(session.error, int((~np.isnan(logged[:, 0])).sum()), len(texts), split)
            if answered := [each for each in empty if each is not None]:
                logged = calibrated(logged, np.log(np.exp(answered).mean(axis=0)))
        if session.failed > TOO_MANY * len(texts):
            what = f"{session.failed:,} of {len(texts):,} rows got no answer ({session.last})"
            raise UserError(
                f"teacher {self.name}: {what} → check the server and run again; the answers received so far are kept"
            )
        if session.failed or session.silent:
            counts = f"{session.failed:,} rows got no answer, {session.silent:,} one that cannot be read"
            log.warning("teacher %s: %s; of %s in all", self.name, counts, f"{len(texts):,}")
        return logged

    def _stopped(self, error: UserError, answered: int, rows: int, split: str) -> UserError:
        if not isinstance(error, OutOfBudget):
            return error
        what = f"{answered:,} of {rows:,} rows of {split} are answered and kept"
        fix = "raise the limit and run again, which goes on from there"
        only = self.nested and answered and not split.startswith(("dev", "test"))
        fewer = f", or take these rows alone with llm.budget: {answered}" if only else ""
        return UserError(f"{error}; {what} → {fix}{fewer}")


class _Session:
    """One round of questions: what is known of the server, and what could not be read."""

    def __init__(self, teacher: LlmTeacher, client: LlmClient) -> None:
        self.teacher, self.client = teacher, client
        self.draws = teacher.settings.answers == "samples"
        self.gives: bool | None = None  # whether answers are read with probabilities; the first one tells
        self.error: UserError | None = None
        self.failed = self.silent = 0
        self.last = ""

    async def work(
        self, rows: Iterator[tuple[int, tuple[str, ...]]], logged: NDArray[np.float64], progress: Progress | None
    ) -> None:
        """Take rows until none is left, or one shows that there is no use in going on."""
        for number, texts in rows:
            if self.error:
                return
            try:
                answer = await self.row(texts)
                if answer is not None:
                    logged[number] = answer
            except (NoAnswer, Refused) as error:
                self.failed, self.last = self.failed + 1, str(error)
                self.teacher.usage.silent(texts, f"no answer: {error}")
            except UserError as error:
                self.error = self.error or error
            if progress:
                progress(1)

    async def empty(self) -> list[NDArray[np.float64] | None]:
        """Ask about texts without content; what is wrong with one of them stops the run, as it decides every row."""
        answers = []
        try:
            for texts in self.teacher.blanks() if not self.error else ():
                answers.append(await self.row(texts))
        except (NoAnswer, Refused) as error:
            fix = "check the server and run again, or leave calibrate out"
            self.error = UserError(
                f"teacher {self.teacher.name}: a text without content gets no answer ({error}) → {fix}"
            )
        except UserError as error:
            self.error = error
        return answers

    async def row(self, texts: Sequence[str]) -> NDArray[np.float64] | None:
        """Ask about one row; None where what is answered cannot be read."""
        teacher, prompt = self.teacher, self.teacher.prompt
        if not self.draws:
            try:
                reply = await self.client.ask(*teacher.asks(texts))
            except Refused as error:
                self._without(error)
                return await self.row(texts)
            if self.gives is None:
                self.gives = bool(reply.tops) or teacher.settings.answers == "logprobs" or teacher.settings.samples == 1
            if self.gives:
                return await self._readable(texts, [reply])
            self.draws = True  # the server gives no probabilities, and answers are drawn from now on
        replies = [await self.client.ask(ask) for ask in teacher.draws(texts)]
        places = [read_text(reply.text, prompt.names, prompt.choices) for reply in replies]
        known = [place for place in places if place is not None]
        if not known:
            return await self._readable(texts, replies)
        teacher.usage.add(replies)
        return drawn(known, len(prompt.names))

    async def _readable(self, texts: Sequence[str], replies: list[LlmReply]) -> NDArray[np.float64] | None:
        """Read an answer; where that cannot be done, ask once more in other words."""
        prompt, usage = self.teacher.prompt, self.teacher.usage
        answer = read_reply(replies[0], prompt.names, prompt.choices)
        if answer is None:
            replies.append(await self.client.ask(Ask(prompt(texts, again=True), SENTENCE, replies[0].tops != ())))
            answer = read_reply(replies[-1], prompt.names, prompt.choices)
        usage.add(replies, answer is not None)
        if answer is None:
            self.silent += 1
            usage.silent(texts, replies[-1].text)
        return answer

    def _without(self, error: Refused) -> None:
        """Go on without log-probabilities where the server seems not to know them; else it is the row."""
        words = str(error).casefold()
        if self.teacher.settings.answers == "logprobs" or not ("logprob" in words or "top_" in words):
            raise error
        self.draws = True


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run what is asynchronous to its end, also where a notebook has a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
