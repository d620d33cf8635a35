"""A stand-in for a language model's server, for `--small`: it knows a label's words, and errs as a small model does."""

from __future__ import annotations

import json
import math
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def do_POST(self) -> None:
        prompt = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"][0]["content"]
        content = json.dumps(_answer(prompt)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _answer(prompt: str) -> dict[str, Any]:
    """Weigh options by the words they share with the text, with noise that depends on the prompt alone."""
    _, options, _, text = prompt.split("\n\n", 3)
    noise = random.Random(prompt)
    names = [re.split(r"[.:]", line)[0] for line in options.splitlines()]
    words = [set(re.findall(r"\w{3,}", line.casefold())) for line in options.splitlines()]
    received = set(re.findall(r"\w{3,}", text.casefold()))
    weights = [math.exp(2 * len(mine & received) + noise.gauss(0, 0.5)) for mine in words]
    shares = sorted(zip(names, (weight / sum(weights) for weight in weights), strict=True), key=lambda each: -each[1])
    tops = [{"token": name, "logprob": math.log(share)} for name, share in shares]
    choice = {"message": {"content": tops[0]["token"]}, "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]}}
    return {"choices": [choice], "usage": {"prompt_tokens": len(prompt) // 4, "completion_tokens": 1}}


@contextmanager
def stand_in() -> Iterator[str]:
    """Serve while the block lasts; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
