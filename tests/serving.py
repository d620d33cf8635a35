"""Real servers for tests: tiny exported models, `understill serve` in a process of its own, and its log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kinds import TASKS, save_kind
from understill.export.onnx_graph import write_onnx
from understill.models.folder import load_model
from understill.tasks import Task


def export_tiny(folder: Path, network: str, tasks: tuple[Task, ...] = TASKS) -> Path:
    """Write a tiny model and its export, and return the export's folder."""
    loaded = load_model(save_kind(folder / f"{network}-model", network, tasks))
    out = folder / network
    out.mkdir()
    write_onnx(loaded, loaded.tasks, out)
    return out


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[str]
    client: httpx.Client
    log: Path

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return str(self.client.base_url).rstrip("/")

    def ask(self, **question: Any) -> httpx.Response:
        """Send a question."""
        return self.client.post("/v1/predict", json=question)

    def send(self, body: Any, kind: str = "application/json", **headers: str) -> httpx.Response:
        """Send any body as a question."""
        return self.client.post("/v1/predict", content=body, headers={"Content-Type": kind, **headers})

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask for a path."""
        return self.client.get(path, **options)

    def lines(self) -> list[dict[str, Any]]:
        """Return what the server has logged; every line is JSON. A line may come a moment after its answer."""
        size = -1
        while size != (size := self.log.stat().st_size):
            time.sleep(0.1)
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@contextmanager
def serving(
    model: Path, folder: Path, *options: object, program: str | None = None, **environment: str
) -> Iterator[Served]:
    """A server of a model on a free port; `program` starts it in another way than `python -m understill`."""
    start = ["-c", program] if program else ["-m", "understill"]
    command = [sys.executable, *start, "serve", model, "--port", 0, *options]
    log = folder / f"server-{os.urandom(4).hex()}.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | environment,
            start_new_session=True,  # so that a test can send to all of its processes what a terminal would
        )
    try:
        assert process.stdout
        output = process.stdout.readline()
        assert output.startswith("serving "), log.read_text(encoding="utf-8")
        # No certificates: to read them takes longer than all else that a client does.
        with httpx.Client(base_url=output.split()[-1], timeout=30, verify=False) as client:
            yield Served(process, client, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
