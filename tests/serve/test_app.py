"""What becomes of a request that ends in an odd way: the client leaves, the model fails, the body does not come."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from understill.serve.app import make_app
from understill.serve.logs import JsonFormatter
from understill.serve.prometheus import ServerMetrics
from understill.serve.service import Service
from understill.serve.settings import ServerSettings

JSON = [(b"content-type", b"application/json")]
BODY = {"type": "http.request", "body": b'{"texts": "a secret"}', "more_body": False}
GONE = {"type": "http.disconnect"}


class Scene:
    """One request, played without a network."""

    def __init__(self, answer: Callable[..., Awaitable[Any]] | None = None, fails: bool = False) -> None:
        self.service = Service(ServerSettings(Path("model"), max_bytes=1000), ServerMetrics())
        if answer:
            self.service.answer = answer  # type: ignore[method-assign]
        self.sent: list[dict[str, Any]] = []
        self.fails = fails
        self.read = 0

    def play(self, *incoming: dict[str, Any], headers: Any = JSON) -> Any:
        """Send messages as they come, then nothing more; return what is answered."""
        waiting = list(incoming)

        async def receive() -> dict[str, Any]:
            self.read += 1
            if waiting:
                return waiting.pop(0)
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: Any) -> None:
            if self.fails:
                raise RuntimeError("the response has been sent already")
            self.sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/predict",
            "raw_path": b"/v1/predict",
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("here", 80),
            "client": ("there", 1),
        }
        asyncio.run(asyncio.wait_for(make_app(self.service)(scope, receive, send), 20))  # type: ignore[arg-type]
        if not self.sent:
            return None
        body = b"".join(each.get("body", b"") for each in self.sent[1:])
        heads = {key.decode(): value.decode() for key, value in self.sent[0]["headers"]}
        return SimpleNamespace(status=self.sent[0]["status"], body=json.loads(body or b"null"), headers=heads)

    def counted(self, status: int) -> bool:
        text = generate_latest(self.service.metrics.registry).decode()
        return f'understill_requests_total{{route="/v1/predict",status="{status}"}} 1.0' in text


def test_who_leaves_while_waiting_is_not_answered_and_counted_as_gone() -> None:
    given_up = []

    async def answer(_: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    scene = Scene(answer)
    scene.play(BODY, GONE)
    assert given_up == [True] and scene.counted(499)


def test_before_the_model_is_there_it_says_when_to_come_back() -> None:
    reply = Scene().play(BODY)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1") and "is being loaded" in reply.body["error"]


def test_a_failure_is_a_sentence_and_what_it_quotes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(question: Any) -> None:
        raise ValueError(f"cannot read {question.texts[0]}")

    with caplog.at_level(logging.INFO):
        reply = Scene(answer).play(BODY)
    assert reply.status == 500 and reply.body["error"].endswith(reply.headers["x-request-id"])
    lines = [JsonFormatter(None).format(record) for record in caplog.records]
    assert any("ValueError" in line for line in lines) and not any("secret" in line for line in lines)


def test_a_body_that_is_too_long_by_its_own_words_is_not_read() -> None:
    scene = Scene()
    reply = scene.play(BODY, headers=[*JSON, (b"content-length", b"1001")])
    assert reply.status == 413 and scene.read == 0


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understill.serve.app.BODY_TIMEOUT", 0.05)
    reply = Scene().play({"type": "http.request", "body": b"{", "more_body": True})
    assert (
        reply.status == 408
        and reply.headers["connection"] == "close"
        and "did not arrive within 0.05 s" in reply.body["error"]
    )


def test_an_answer_that_cannot_be_sent_is_a_client_that_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(fails=True)
    with caplog.at_level(logging.INFO):
        assert scene.play({"type": "http.request", "body": b"{", "more_body": False}) is None
    assert scene.counted(499) and {record.levelname for record in caplog.records} == {"INFO"}
