"""A language model is asked as often as allowed and no more, whatever its server does."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llm_server import Answer, by_word, serving
from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.recipe import make_recipe
from understill.tasks import Task
from understill.teachers import LlmTeacher, LlmType, Opening
from understill.teachers.llm import client
from understill.teachers.llm.cache import AnswerCache
from understill.teachers.llm.choose import choose

Stand = Callable[..., TaskData]
MOOD = Task("mood", "classification", ("text",), "label", ("negative", "positive"))
ROWS = [f"the film number {number} was {'good' if number % 3 else 'bad'}" for number in range(60)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)


def open_one(tmp_path: Path, data: TaskData, endpoint: str, **settings: Any) -> LlmTeacher:
    """Open a language model as a teacher of the data's task."""
    task = data.task
    values = {
        "tasks": {task.name: {"train": "x.csv", "text": list(task.text), "label": "label"}},
        "teachers": [{"llm": {"endpoint": endpoint, "model": "m", "options": "labels", **settings}}],
        "output": {"folder": str(tmp_path / "runs")},
    }
    recipe = make_recipe(values)
    loaded = LoadedTask(task, {"train": data}, {})
    opened = LlmType.open(recipe.teachers[0], Opening("llm", "", recipe, loaded))  # type: ignore[arg-type]
    assert isinstance(opened, LlmTeacher)
    return opened


def test_probabilities_become_log_probabilities_in_the_order_of_the_labels(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word) as server:
        logits = open_one(tmp_path, data, server.endpoint).logits(data)
    assert (logits.argmax(1) == ["good" in text for text in ROWS]).all()
    masses = by_word(f"text: {ROWS[1]}\nAnswer:")[1]
    assert masses is not None
    assert np.exp(logits[1]) == pytest.approx([masses["negative"] / 0.95, masses["positive"] / 0.95], abs=2e-3)


def test_an_answer_is_paid_for_once_in_all_runs_of_a_folder(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word) as server:
        first = open_one(tmp_path, data, server.endpoint).logits(data)
        again = open_one(tmp_path, data, server.endpoint, concurrency=1, timeout=9).logits(data)
        assert set(server.asked.values()) == {1}
        open_one(tmp_path, data, server.endpoint, model="another").logits(data)
        assert set(server.asked.values()) == {2}, "another model is another answer"
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    "fault", ["429 busy", "after 0.05", "500 broken", "503", "hang 3", "cut", "nojson", "odd", "endless"], ids=str.split
)
def test_a_passing_fault_is_tried_again(stand: Stand, tmp_path: Path, fault: str) -> None:
    data = stand(MOOD, ROWS[:6])
    with serving(by_word, lambda prompt, before: fault if before < 2 else "") as server:
        patience = 2.0 if fault.startswith("hang") else 60.0
        logits = open_one(tmp_path, data, server.endpoint, timeout=patience, retries=3).logits(data)
        assert set(server.asked.values()) == {3}
    assert not np.isnan(logits).any()


def test_retry_after_holds_back_every_request_for_that_long(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS[:6])
    reported: list[float] = []

    def once(prompt: str, before: int) -> str:
        if reported or ROWS[3] not in prompt:
            return ""
        reported.append(time.monotonic())
        return "after 1"

    with serving(by_word, once) as server:
        open_one(tmp_path, data, server.endpoint, concurrency=1).logits(data)
        later = [moment - reported[0] for moment in server.times if moment > reported[0]]
    assert min(later) >= 0.95


def test_a_row_that_never_gets_an_answer_is_listed_and_not_asked_more_often_than_allowed(
    stand: Stand, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word, lambda prompt, before: "500" if "number 7 " in prompt else "") as server:
        teacher = open_one(tmp_path, data, server.endpoint, retries=2)
        logits = teacher.logits(data)
        assert max(server.asked.values()) == 3
    assert np.flatnonzero(np.isnan(logits[:, 0])).tolist() == [7]
    assert teacher.usage.examples[0][0] == [ROWS[7]]
    assert "1 rows got no answer" in caplog.text


def test_a_server_that_is_gone_stops_the_run_and_says_that_answers_are_kept(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word, lambda prompt, before: "" if "number 0 " in prompt else "500") as server:
        with pytest.raises(UserError, match=r"has stopped answering .*run again; the answers received so far are kept"):
            open_one(tmp_path, data, server.endpoint, retries=0, concurrency=4).logits(data)
        assert len(server.asked) < 40, "it does not go on for all rows"


def test_where_no_server_is_there_the_first_row_says_so(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word) as server:
        endpoint = server.endpoint
    teacher = open_one(tmp_path, data, endpoint, retries=2)
    with pytest.raises(UserError, match=r"nothing is there at http://127.0.0.1:\d+/v1 \(.*\) → start the server"):
        teacher.logits(data)
    assert teacher.cache.spent(teacher.scope).requests == 3, "the tries of one row"


def test_a_server_that_refuses_everything_is_not_asked_about_every_row(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word, lambda prompt, before: "400 no such model") as server:
        with pytest.raises(UserError, match=r"refuses every request \(no such model\) → check model"):
            open_one(tmp_path, data, server.endpoint, concurrency=4).logits(data)
        assert len(server.bodies) < 24


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("401 Incorrect API key provided", "refuses the key .*check what SECRET_KEY holds"),
        ("404", "does not know this address or model"),
        ("402", "requires payment"),
    ],
)
def test_what_no_retry_mends_stops_at_the_first_request(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-very-secret")
    data = stand(MOOD, ROWS)
    with serving(by_word, lambda prompt, before: fault) as server:
        with pytest.raises(UserError, match=message) as caught:
            open_one(tmp_path, data, server.endpoint, key="SECRET_KEY").logits(data)
        assert len(server.bodies) == 1
    assert "sk-very-secret" not in str(caught.value)


# What comes back ------------------------------------------------------------------------------------------------------


def test_a_server_without_log_probabilities_is_asked_several_times(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS[:5])
    turns = iter(range(10**6))

    def draw(prompt: str) -> Answer:
        return ("Positive" if next(turns) % 5 else "negative"), None

    with serving(draw) as server:
        logits = open_one(tmp_path, data, server.endpoint, samples=10, concurrency=1).logits(data)
        assert {body["temperature"] for body in server.bodies[1:]} == {1.0}
        assert len({body["seed"] for body in server.bodies[1:]}) == 10
    assert np.exp(logits[:, 1]) == pytest.approx(np.full(5, 0.95 * 0.8 + 0.025), abs=1e-3)


def test_a_server_that_refuses_log_probabilities_is_asked_without(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS[:3])
    with serving(by_word) as server:
        server.fault = lambda prompt, before: (
            "400 logprobs are not supported" if server.bodies[-1].get("logprobs") else ""
        )
        logits = open_one(tmp_path, data, server.endpoint, samples=3, concurrency=1).logits(data)
    assert (logits.argmax(1) == [0, 1, 1]).all()


def test_unreadable_answers_are_asked_once_more_and_then_counted_as_silence(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    odd = {"number 3 ": "say:I cannot tell", "number 4 ": "refusal", "number 5 ": "say:naïve 🎬 question"}
    with serving(by_word, lambda prompt, _: next((fault for row, fault in odd.items() if row in prompt), "")) as server:
        teacher = open_one(tmp_path, data, server.endpoint)
        logits = teacher.logits(data)
        asked = [count for prompt, count in server.asked.items() if "number 3 " in prompt]
    assert np.flatnonzero(np.isnan(logits[:, 0])).tolist() == [3, 4, 5]
    assert asked == [1, 1], "in other words the second time"
    facts = teacher.usage.facts(teacher.settings)
    assert (facts["silences"], facts["rows"]) == (3, 57)
    replies = {reply for _, reply in facts["examples"]}
    assert replies == {"I cannot tell", "I cannot help with that.", "naïve 🎬 question"}


@pytest.mark.parametrize("text", ["POSITIVE", "Positive.", "The answer is positive", "**positive**"])
def test_answers_in_prose_and_other_cases_are_read_without_log_probabilities(
    stand: Stand, tmp_path: Path, text: str
) -> None:
    data = stand(MOOD, ROWS[:4])
    with serving(by_word, lambda prompt, before: f"say:{text}") as server:
        logits = open_one(tmp_path, data, server.endpoint, samples=1).logits(data)
    assert (logits.argmax(1) == 1).all() and np.exp(logits[:, 1]) == pytest.approx(np.full(4, 0.975), abs=1e-3)


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit", [{"max_requests": 20}, {"max_tokens": 1020}, {"max_cost": 0.001, "prices": {"input": 1, "output": 0}}]
)
def test_a_budget_stops_cleanly_holds_over_runs_and_says_how_to_go_on(
    stand: Stand, tmp_path: Path, limit: dict[str, Any]
) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word) as server:
        for _ in range(2):  # the second run has no more money than the first
            with pytest.raises(
                UserError, match=r"is reached .* of 60 rows of train are answered and kept → raise the limit"
            ):
                open_one(tmp_path, data, server.endpoint, concurrency=4, **limit).logits(data)
        assert 20 <= len(server.bodies) <= 24, "those on the way are waited for"
        assert not np.isnan(open_one(tmp_path, data, server.endpoint, max_requests=70).logits(data)).any()
        assert set(server.asked.values()) == {1}


def test_the_budget_that_a_reached_limit_names_takes_the_answered_rows(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word) as server:
        with pytest.raises(UserError, match=r"or take these rows alone with llm\.budget: 20$"):
            open_one(tmp_path, data, server.endpoint, concurrency=4, max_requests=20, seed=3).logits(data)
        asked, ids = set(server.asked), data.table()["id"].to_pylist()
        chosen = [ROWS[place] for place in choose("random", ids, 20, seed=3)]
    assert {row for row in ROWS if any(f"text: {row}\n" in prompt for prompt in asked)} == set(chosen)


def test_a_limit_that_is_reached_on_dev_is_not_said_to_be_a_matter_of_the_budget(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS, split="dev")
    with serving(by_word) as server:
        with pytest.raises(UserError, match=r"20 of 60 rows of dev are answered .* goes on from there$"):
            open_one(tmp_path, data, server.endpoint, max_requests=20, concurrency=1).logits(data)
        asked = len(server.bodies)
        logits = open_one(tmp_path, data, server.endpoint, max_requests=20, dev=20).logits(data)
        assert len(server.bodies) == asked and (~np.isnan(logits[:, 0])).sum() == 20, "a smaller dev is answered"


@pytest.mark.parametrize("limit", [1, 2, 3, 20])
def test_a_limit_that_is_reached_while_calibrating_says_how_to_go_on(stand: Stand, tmp_path: Path, limit: int) -> None:
    data = stand(MOOD, ROWS)
    message = rf"\({limit} of {limit}\); \d+ of 60 rows .* → raise the limit"
    with serving(by_word) as server, pytest.raises(UserError, match=message):
        open_one(tmp_path, data, server.endpoint, calibrate=True, max_requests=limit, concurrency=1).logits(data)


def test_a_text_without_content_that_gets_no_answer_is_said_to_be_the_reason(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS)
    with serving(by_word, lambda prompt, before: "400 too short" if "text: N/A" in prompt else "") as server:
        with pytest.raises(UserError, match=r"without content gets no answer \(too short\) → .* leave calibrate out"):
            open_one(tmp_path, data, server.endpoint, calibrate=True).logits(data)
        assert len(server.bodies) < 10, "before the rows are paid for"


def test_no_more_requests_and_tokens_a_minute_are_sent_than_allowed(stand: Stand, tmp_path: Path) -> None:
    data = stand(MOOD, ROWS[:12])
    with serving(by_word) as server:
        open_one(tmp_path, data, server.endpoint, requests_per_minute=60, concurrency=12).logits(data)
        assert server.times[-1] - server.times[0] >= 1.5, "ten at once, then one a second"
        tokens = sum(len(prompt) // 4 + 1 for prompt in server.asked)
        server.times.clear()
        rate = tokens / 12 * 60
        open_one(tmp_path, data, server.endpoint, model="b", tokens_per_minute=rate, concurrency=12).logits(data)
        assert server.times[-1] - server.times[0] >= 1.5, "and the tokens of ten at once"


def test_texts_in_other_scripts_count_for_more_tokens_than_english_of_that_length() -> None:
    english, korean = "the money has not come back yet " * 4, "아직 돈이 들어오지 않았습니다. 언제쯤 처리되는지 " * 4
    assert client.Ask(english, 1).tokens == len(english) // 4 + 1
    assert client.Ask(korean, 1).tokens > len(korean) / 2


def test_many_are_asked_at_a_time_but_not_more_than_allowed(stand: Stand, tmp_path: Path) -> None:
    data, running, most = stand(MOOD, ROWS), [0], [0]

    def slow(prompt: str) -> Answer:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.02)
        running[0] -= 1
        return by_word(prompt)

    with serving(slow) as server:
        open_one(tmp_path, data, server.endpoint, concurrency=6).logits(data)
    assert 3 <= most[0] <= 6


# Two thousand requests ------------------------------------------------------------------------------------------------

FAULTS = ("429 busy", "after 0.01", "500", "502", "hang 5", "cut", "nojson", "odd")


def _one_in_five(prompt: str, before: int) -> str:
    """Break a fifth of the requests, each prompt's in its own way."""
    dice = random.Random(f"{prompt} {before}")
    return dice.choice(FAULTS) if dice.random() < 0.2 else ""


CLIENT = """
import sys
sys.path[:0] = [{tests!r}, {here!r}]
from pathlib import Path
from test_client import MOOD, open_one
from understill.data.taskdata import TaskData
from understill.teachers.llm import client
from understill.teachers.llm.cache import AnswerCache
client.FIRST_PAUSE = 0.01
data = TaskData(MOOD, "train", Path({rows!r}), "x", {count})
logits = open_one(Path({out!r}), data, {endpoint!r}, concurrency=16, timeout=4.0, retries=8).logits(data)
Path({out!r}, "logits.npy").write_bytes(logits.tobytes())
"""


@pytest.mark.parametrize(
    ("rows", "kills"), [(150, (60,)), pytest.param(2000, (300, 800, 1300), marks=pytest.mark.slow)]
)
def test_rows_with_a_fifth_of_faults_and_kills_are_all_answered_and_paid_for_once(
    stand: Stand, tmp_path: Path, rows: int, kills: tuple[int, ...]
) -> None:
    texts = [f"the film number {number} was {'good' if number % 3 else 'bad'}" for number in range(rows)]
    data = stand(MOOD, texts)
    here, env = Path(__file__).parent, {**os.environ, "OMP_NUM_THREADS": "1"}
    answers = tmp_path / "runs" / "cache" / "answers.sqlite"
    facts = {"tests": str(here.parent.parent), "here": str(here), "rows": str(data.path), "out": str(tmp_path)}
    with serving(by_word, _one_in_five) as server:
        script, kept = CLIENT.format(**facts, count=rows, endpoint=server.endpoint), 0
        for goal in kills:
            before = sum(server.answered.values())
            process = subprocess.Popen([sys.executable, "-c", script], env=env)
            deadline = time.monotonic() + 120
            while _count(answers) < goal and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            process.wait()
            paid = _count(answers)
            assert paid >= max(goal, kept), "nothing that was kept is lost"
            assert paid - kept >= sum(server.answered.values()) - before - 16, "but what is on the way"
            kept = paid
        asked = dict(server.asked)
        subprocess.run([sys.executable, "-c", script], check=True, timeout=240, env=env)
        again = {prompt for prompt, count in server.asked.items() if count > asked.get(prompt, 0)}
        assert len(again) <= rows - kept, "what was kept is not asked again"
        assert sum(count > 1 for count in server.answered.values()) <= 16 * len(kills)
        assert max(server.asked.values()) <= 9 * (len(kills) + 1), "no more tries than each run allows"
    logits = np.frombuffer((tmp_path / "logits.npy").read_bytes(), np.float32).reshape(-1, 2)
    assert (logits.argmax(1) == ["good" in text for text in texts]).all() and not np.isnan(logits).any()
    assert _count(answers) == rows


def _count(path: Path) -> int:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as base:
            return int(base.execute("SELECT COUNT(*) FROM replies").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.parametrize("count", [2**70, 1e308, -5, "12"])
def test_what_a_server_counts_and_writes_can_be_kept(tmp_path: Path, count: Any) -> None:
    reply = client._reply({"choices": [{"message": {"content": "g\ud83d"}}], "usage": {"prompt_tokens": count}}, 0.1)
    assert 0 <= reply.tokens_in <= client.MOST_TOKENS and reply.text == "g?"
    cache = AnswerCache(tmp_path)
    cache.put("key", "m", reply, "run/llm")
    assert cache.get("key") == reply
    cache.close()


def test_answers_that_cannot_be_read_as_a_database_are_named(tmp_path: Path, stand: Stand) -> None:
    (tmp_path / "runs" / "cache").mkdir(parents=True)
    (tmp_path / "runs" / "cache" / "answers.sqlite").write_bytes(
        b"not a database, but long enough to be read as one" * 9
    )
    with pytest.raises(UserError, match=r"answers\.sqlite: the answers cannot be read .* → move it away"):
        open_one(tmp_path, stand(MOOD, ROWS), "http://localhost:1/v1")
