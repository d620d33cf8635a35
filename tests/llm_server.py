"""A server that speaks the OpenAI protocol as badly as it is told to, and remembers what it was asked."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: What the server answers to a prompt: the text, and the likeliest first tokens with their probabilities.
Answer = tuple[str, dict[str, float] | None]
#: From a prompt and how often it came before, what goes wrong; empty where nothing does.
Fault = Callable[[str, int], str]


class LlmServer(ThreadingHTTPServer):
    """Answers prompts by a function; `fault` decides what goes wrong with each request."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Callable[[str], Answer], fault: Fault = lambda prompt, times: "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.fault = answer, fault
        self.lock = threading.Lock()
        self.asked: Counter[str] = Counter()  # requests by prompt
        self.answered: Counter[str] = Counter()  # whole answers by prompt
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.times: list[float] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LlmServer

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt, server = body["messages"][0]["content"], self.server
        with server.lock:
            before = server.asked[prompt]
            server.asked[prompt] += 1
            server.bodies.append(body)
            server.keys.add(self.headers.get("authorization", ""))
            server.times.append(time.monotonic())
        fault = server.fault(prompt, before)
        if fault and not fault.startswith("say:"):
            self._fail(fault, body)
            return
        text, tops = server.answer(prompt)
        if fault:
            text, tops = fault[4:], None
        self._send(200, json.dumps(completion(text, tops if body.get("logprobs") else None)).encode())
        with server.lock:
            server.answered[prompt] += 1

    def _fail(self, fault: str, body: dict[str, Any]) -> None:
        kind, _, more = fault.partition(" ")
        if kind.isdigit():
            self._send(int(kind), (more or "out of order").encode(), {})
        elif kind == "after":
            self._send(429, b"{}", {"Retry-After": more})
        elif kind == "hang":
            time.sleep(float(more))
            self.close_connection = True
        elif kind == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b'{"choices": [{"mess')
            self.close_connection = True
        elif kind == "nojson":
            self._send(200, b"<html>busy</html>")
        elif kind == "odd":
            self._send(200, b'{"choices": []}')
        elif kind == "endless":
            self._send(200, b'{"choices": [{"message": {"content": "good"}}], "usage": {"prompt_tokens": 1e999}}')
        elif kind == "refusal":
            choice = {"message": {"content": None, "refusal": "I cannot help with that."}, "logprobs": None}
            self._send(200, json.dumps({"choices": [choice], "usage": None}).encode())

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def completion(text: str, tops: dict[str, float] | None) -> dict[str, Any]:
    """Return a chat completion, with log-probabilities of its first token where some are given."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}}
    if tops:
        likeliest = [{"token": token, "logprob": math.log(value)} for token, value in tops.items()]
        choice["logprobs"] = {"content": [{**likeliest[0], "top_logprobs": likeliest}]}
    return {"choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 1}}


@contextmanager
def serving(answer: Callable[[str], Answer], fault: Fault = lambda prompt, times: "") -> Iterator[LlmServer]:
    """Run a server on a port of its own while the block lasts."""
    server = LlmServer(answer, fault)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def by_word(prompt: str) -> Answer:
    """Answer positive where the text has "good" in it, with a probability that depends on the text."""
    text = prompt.rpartition("text: ")[2]
    sure = 0.6 + 0.3 * (sum(map(ord, text)) % 100) / 100
    right, wrong = ("positive", "negative") if "good" in text else ("negative", "positive")
    return right, {right: sure, wrong: 0.95 - sure}
