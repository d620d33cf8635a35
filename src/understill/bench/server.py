"""A server in a process of its own, and a client with keep-alive connections."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

from understill.bench.clock import Text, split_pairs
from understill.errors import UserError
from understill.tasks import Task

#: Connections, and the texts of one request, when many texts are asked for.
CONNECTIONS, ROWS = 8, 32
#: Where a server looks for keys.
KEYS = "UNDERSTILL_KEYS"
#: Seconds that a server may take to load its model.
PATIENCE = 120.0


@contextmanager
def serving(path: Path, task: Task) -> Iterator[Client]:
    """Have `understill serve` answer with a model in a process of its own, as long as the block lasts."""
    command = [sys.executable, "-m", "understill", "serve", str(path), "--port", "0", "--log", "errors", "--drain", "0"]
    own = {name: value for name, value in os.environ.items() if name != KEYS}  # nobody else asks this server
    with (
        TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=own) as process,
    ):
        try:
            port = _port(process)
            if port is None:
                process.wait()
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
                why = lines[-1].removeprefix("error: ")
                raise UserError(f"{path} cannot be served: {why}; --no-http leaves servers out")
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                yield Client(path, task, port, pool)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _port(process: subprocess.Popen[bytes]) -> int | None:
    """Wait until a server prints its port; None where it ends without."""
    assert process.stdout
    late = Timer(PATIENCE, process.kill)
    late.start()
    line = process.stdout.readline().decode()
    late.cancel()
    match = re.search(r" at http://127\.0\.0\.1:(\d+)", line)
    return int(match[1]) if match else None


class Client:
    """Asks a server for one task of its model."""

    def __init__(self, path: Path, task: Task, port: int, pool: ThreadPoolExecutor) -> None:
        self.path, self.task, self.pool = path, task, pool
        self.idle: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self.idle.put(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE))

    def ask(self, texts: Sequence[Text]) -> None:
        """Have texts, or pairs, answered: some in each request, several requests at a time."""
        parts = [texts[first : first + ROWS] for first in range(0, len(texts), ROWS)]
        if len(parts) == 1:
            self._post(parts[0])
        else:
            list(self.pool.map(self._post, parts))

    def _post(self, texts: Sequence[Text]) -> None:
        """Ask about a few texts over a connection that is free."""
        first, second = split_pairs(texts)
        question = {"texts": first, "pairs": second, "tasks": [self.task.name]}
        connection = self.idle.get()
        try:
            status, answer = _exchange(connection, json.dumps(question))
        except ConnectionError:  # it has been idle while others had their turn, and the server has closed it
            connection.close()
            status, answer = _exchange(connection, json.dumps(question))
        finally:
            self.idle.put(connection)
        if status != 200:
            raise UserError(f"{self.path} over HTTP: {status}: {answer['error']} → try other texts with --texts")


def _exchange(connection: http.client.HTTPConnection, question: str) -> tuple[int, Any]:
    """Send a question, over a new line where there is none, and return status and answer."""
    connection.request("POST", "/v1/predict", question, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
