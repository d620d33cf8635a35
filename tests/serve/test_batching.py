"""Rows of many requests go through the model together, and each request gets its own answers, in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understill.inference.cores import cores
from understill.inference.predictor import Predictions, Predictor
from understill.serve.batching import CHUNK, MIN_ROWS, PASS_SECONDS, ROW_COST, Batcher, ModelPass, NotFinite, QueueFull
from understill.tasks import Task

LENGTH = Task("length", "regression", ("text",), "label", range=(0, 1000))
DOUBLE = Task("double", "regression", ("text",), "label", range=(0, 1000))
BOTH = Task("both", "regression", ("one", "two"), "label", range=(0, 1000))


class Counting(Predictor):
    """Says how long texts are, remembers its passes, and can be held up."""

    def __init__(self) -> None:
        self.tasks, self.source = (LENGTH, DOUBLE, BOTH), Path("counting")
        self.passes: list[tuple[list[str], list[str]]] = []
        self.free = threading.Event()
        self.free.set()
        self.busy = threading.Event()
        self.seconds = self.pace = 0.0  # that a row takes, and a character of what it costs

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None, tasks: Sequence[Task]
    ) -> dict[str, Predictions]:
        self.passes.append((list(texts), [task.name for task in tasks]))
        self.busy.set()
        assert self.free.wait(30)
        time.sleep(self.seconds * len(texts) + self.pace * sum(ROW_COST + len(text) for text in texts))
        if "bad" in texts:
            raise ValueError("a bad row")
        lengths = np.array([[np.nan if text == "nan" else len(text)] for text in texts], np.float32)
        if pairs is not None:
            return {"both": Predictions(BOTH, lengths + [[len(text)] for text in pairs])}
        values = {"length": lengths, "double": 2 * lengths}
        return {task.name: Predictions(task, values[task.name]) for task in tasks}


def run(
    scene: Callable[[Counting, Batcher], Coroutine[Any, Any, None]],
    batch: int = 16,
    queue: int = 1000,
    wait: float = 0,
    pass_seconds: float = 1e9,  # so that no pass is shorter because the machine is busy
) -> list[ModelPass]:
    """Play a scene with a model and its batcher; return the passes that it reported."""
    passes: list[ModelPass] = []

    async def play() -> None:
        model = Counting()
        batcher = Batcher(model, batch, queue, wait, passes.append, pass_seconds=pass_seconds)
        try:
            await asyncio.wait_for(scene(model, batcher), 30)
        finally:
            model.free.set()
            await asyncio.to_thread(batcher.close)

    asyncio.run(play())
    return passes


def held(model: Counting, batcher: Batcher) -> Any:
    """Keep the model busy with one row until it is freed."""
    model.free.clear()
    model.busy.clear()
    first = batcher.submit(["x"], None, [LENGTH])
    assert model.busy.wait(30)
    return first


def scores(rows: list[dict[str, dict[str, Any]]], task: str = "length") -> list[float]:
    return [row[task]["score"] for row in rows]


def test_an_idle_model_is_asked_at_once() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        assert scores(await batcher.submit(["abc"], None, [LENGTH])) == [3]

    assert [(each.rows, each.requests) for each in run(scene)] == [(1, 1)]


def test_rows_gather_while_the_model_is_busy() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        others = [batcher.submit(["a" * n], None, [LENGTH]) for n in range(10)]
        model.free.set()
        await first
        assert [scores(rows) for rows in await asyncio.gather(*others)] == [[n] for n in range(10)]

    assert [(each.rows, each.requests) for each in run(scene)] == [(1, 1), (10, 10)]


def test_a_pass_has_the_tasks_of_all_and_everybody_gets_their_own() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        one, other = batcher.submit(["ab"], None, [DOUBLE]), batcher.submit(["abc"], None, [LENGTH])
        model.free.set()
        await first
        assert (await one, await other) == ([{"double": {"score": 4.0}}], [{"length": {"score": 3.0}}])
        assert model.passes[1] == (["ab", "abc"], ["length", "double"])

    run(scene)


def test_one_text_and_two_are_not_mixed_and_neither_waits_for_ever() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        single, pair = batcher.submit(["a"] * 30, None, [LENGTH]), batcher.submit(["ab"], ["abc"], [BOTH])
        model.free.set()
        await first
        assert scores(await pair, "both") == [5]
        assert len(await single) == 30
        turns = [names for _, names in model.passes]
        assert ["both"] in turns[1:3], "the pair has its turn before the long request is through"

    run(scene, batch=4)


def test_a_long_request_does_not_keep_short_ones_waiting() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        long = batcher.submit([str(n) * n for n in range(100)], None, [LENGTH])
        short = batcher.submit(["abcd"], None, [LENGTH])
        model.free.set()
        await first
        assert scores(await short) == [4]
        assert scores(await long) == [len(str(n) * n) for n in range(100)]
        assert len(model.passes[1][0]) == 16 and "abcd" in model.passes[1][0], "passes are full all the same"

    assert CHUNK < 16
    run(scene)


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        waiting = batcher.submit(["a"] * 6, None, [LENGTH])
        with pytest.raises(QueueFull) as refused:
            batcher.submit(["a"] * 5, None, [LENGTH])
        assert 1 <= refused.value.seconds <= 60
        fits = batcher.submit(["a"] * 4, None, [LENGTH])
        model.free.set()
        await asyncio.gather(first, waiting, fits)
        assert len(await batcher.submit(["a"] * 10, None, [LENGTH])) == 10, "there is room again"

    run(scene, queue=10)


def test_who_has_left_is_not_answered() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        gone, here = batcher.submit(["gone"], None, [LENGTH]), batcher.submit(["here"], None, [LENGTH])
        gone.cancel()
        model.free.set()
        await first
        await here
        assert [texts for texts, _ in model.passes] == [["x"], ["here"]]
        assert batcher.waiting == 0

    run(scene)


def test_a_row_that_fails_fails_nobody_elses() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        good, bad, late = (batcher.submit(texts, None, [LENGTH]) for texts in (["a"], ["b", "bad"], ["cc"]))
        model.free.set()
        await first
        assert (scores(await good), scores(await late)) == ([1], [2])
        with pytest.raises(ValueError, match="a bad row"):
            await bad
        assert scores(await batcher.submit(["ddd"], None, [LENGTH])) == [3], "and the thread lives on"

    assert [type(each.error) for each in run(scene)] == [type(None), ValueError, type(None)]


def test_waiting_gathers_rows_even_if_the_model_is_idle() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        one = batcher.submit(["a"], None, [LENGTH])
        other = batcher.submit(["b"], None, [LENGTH])
        await asyncio.gather(one, other)

    assert [each.rows for each in run(scene, wait=500)] == [2]


def test_the_passes_of_a_slow_model_are_short() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        model.seconds = 0.035  # a row: 29 a second
        await batcher.submit(["a"], None, [LENGTH])
        await batcher.submit(["a"] * 40, None, [LENGTH])
        assert all(MIN_ROWS <= len(texts) <= 15 for texts, _ in model.passes[1:-1])
        model.seconds = 0.0
        for _ in range(20):
            await batcher.submit(["a"], None, [LENGTH])
        await batcher.submit(["a"] * 60, None, [LENGTH])
        assert len(model.passes[-1][0]) == 60, "and longer when it is quick again"

    run(scene, batch=100, pass_seconds=PASS_SECONDS)


def test_a_short_row_waits_for_one_pass_of_long_ones_and_shares_none() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        model.pace = 1e-5  # a hundredth of a second for a long row
        await batcher.submit(["ok"], None, [LENGTH])
        long = [batcher.submit(["a" * 1000] * 40, None, [LENGTH]) for _ in range(2)]
        while len(model.passes) < 6:
            await asyncio.sleep(0.001)
        before = len(model.passes)
        assert scores(await batcher.submit(["ok"], None, [LENGTH])) == [2]
        passes = [texts for texts, _ in model.passes]
        place = passes.index(["ok"], 1)
        assert place <= before + 1, "its own comes after that which is being answered"
        await asyncio.gather(*long)
        rows = [texts for texts, _ in model.passes if len(texts[0]) == 1000]
        assert sum(map(len, rows)) == 80 and max(map(len, rows)) <= max(cores(), 2)

    run(scene, batch=100, pass_seconds=PASS_SECONDS)


def test_the_first_pass_has_few_rows_since_nobody_knows_how_slow_the_model_is() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        await batcher.submit(["a"] * 60, None, [LENGTH])
        await batcher.submit(["a" * 1000] * 60, None, [LENGTH])
        sizes = [len(texts) for texts, _ in model.passes]
        assert sizes[:2] == [MIN_ROWS, 60 - MIN_ROWS] and sizes[2] == cores()

    run(scene, batch=100)


def test_a_pass_that_is_slow_is_believed_at_once() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        await batcher.submit(["a"], None, [LENGTH])
        await batcher.submit(["a"] * 60, None, [LENGTH])
        model.seconds = 0.1
        await batcher.submit(["a"] * 12, None, [LENGTH])
        await batcher.submit(["a"] * 12, None, [LENGTH])
        assert [len(texts) for texts, _ in model.passes][:3] == [1, 60, 12]
        assert max(len(texts) for texts, _ in model.passes[3:]) <= 6

    run(scene, batch=100, pass_seconds=PASS_SECONDS)


def test_when_to_come_back_is_when_what_waits_is_answered() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        model.pace = 0.002
        await batcher.submit(["a" * 84], None, [LENGTH])  # 100 characters: a fifth of a second
        model.pace = 0.0
        first = held(model, batcher)
        waiting = [batcher.submit(["a" * 84] * 20, None, [LENGTH]) for _ in range(2)]
        with pytest.raises(QueueFull) as refused:
            batcher.submit(["a"], None, [LENGTH])
        assert 8 <= refused.value.seconds <= 12  # 40 rows
        waiting[0].cancel()
        model.free.set()
        await asyncio.gather(first, waiting[1])

    run(scene, queue=40)


def test_an_answer_that_is_no_number_fails_alone() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        good, bad = batcher.submit(["a", "bb"], None, [LENGTH]), batcher.submit(["ccc", "nan"], None, [LENGTH])
        model.free.set()
        await first
        assert scores(await good) == [1, 2]
        with pytest.raises(NotFinite):
            await bad

    passes = run(scene)
    assert [(each.rows, each.answered, type(each.error)) for each in passes][1] == (4, 2, NotFinite)


def test_a_row_that_fails_is_found_by_halves() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        asked = [batcher.submit(["bad" if n == 37 else "a"], None, [LENGTH]) for n in range(64)]
        model.free.set()
        await first
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, ValueError) for each in results] == [n == 37 for n in range(64)]
        assert len(model.passes) == 1 + 1 + 2 * 6

    run(scene, batch=64)


def test_who_leaves_while_the_model_is_at_it_harms_nobody() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        wrong: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: wrong.append(facts))
        first = held(model, batcher)
        first.cancel()
        model.free.set()
        await batcher.submit(["a"], None, [LENGTH])
        assert wrong == []

    run(scene)


def test_waiting_counts_from_the_first_row() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        model.free.clear()
        early = batcher.submit(["a"], None, [LENGTH])
        while not model.passes:
            await asyncio.sleep(0.01)
        behind = batcher.submit(["b"], None, [LENGTH])
        await asyncio.sleep(1.0)
        model.free.set()
        await early
        await asyncio.sleep(0.3)
        await asyncio.gather(behind, batcher.submit(["c"], None, [LENGTH]))
        assert [texts for texts, _ in model.passes] == [["a"], ["b"], ["c"]], "b has waited long enough"

    run(scene, wait=1000)


def test_how_many_rows_wait_is_told_when_they_leave_too() -> None:
    levels: list[int] = []

    async def play() -> None:
        model = Counting()
        batcher = Batcher(model, 16, 1000, on_level=levels.append)
        first = held(model, batcher)
        gone = batcher.submit(["a"] * 50, None, [LENGTH])
        gone.cancel()
        model.free.set()
        await first
        await asyncio.to_thread(batcher.close)

    asyncio.run(play())
    assert 50 in levels and levels[-1] == 0


def test_closing_answers_what_waits() -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        first = held(model, batcher)
        waiting = batcher.submit(["a"] * 40, None, [LENGTH])
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.01)
        model.free.set()
        await closing
        await first
        assert len(await waiting) == 40

    run(scene)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=20),
    batch=st.integers(1, 24),
)
def test_every_row_is_answered_once_in_its_place_and_no_pass_is_too_large(
    sizes: list[tuple[int, bool]], batch: int
) -> None:
    async def scene(model: Counting, batcher: Batcher) -> None:
        asked = []
        for rows, pair in sizes:
            texts = ["a" * n for n in range(rows)]
            asked.append((rows, pair, batcher.submit(texts, texts if pair else None, [BOTH if pair else LENGTH])))
        for rows, pair, answers in asked:
            want = [2 * n if pair else n for n in range(rows)]
            assert scores(await answers, "both" if pair else "length") == want

    passes = run(scene, batch=batch)
    assert sum(each.rows for each in passes) == sum(rows for rows, _ in sizes)
    assert all(each.rows <= batch for each in passes)
