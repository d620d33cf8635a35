"""A headless Chromium, spoken to over a pipe, so that no driver and no package is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """One page in a browser, with all that it said and asked for since it was opened."""

    def __init__(self) -> None:
        assert CHROMIUM
        self.home = tempfile.mkdtemp(prefix="chromium-")
        read, self.out = os.pipe()
        self.into, write = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self.home}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", *command],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self.number, self.rest, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.home, ignore_errors=True)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            piece = os.read(self.into, 1 << 16)
            assert piece, "the browser has ended"
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Ask for something and return the answer."""
        self.number += 1
        asked = {"id": self.number, "method": method, "params": values}
        os.write(self.out, json.dumps(asked | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def open(self, page: Path) -> None:
        """Open a file and wait until it is there."""
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.run("document.readyState") != "complete":
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """Return what an expression comes to on the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What went wrong on the page."""
        return [
            event["params"]
            for event in self.events
            if event["method"] == "Runtime.exceptionThrown"
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"))
            or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"))
        ]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
