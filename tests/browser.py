"""A headless Chromium, spoken to over a pipe, so that no driver and no package is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
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
        actual: dict[str, Any] = json.loads(message)
        return actual

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

    def open(self, page: Path | str) -> None:
        """Open a file or an address and wait until it is there."""
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return what an expression comes to on the page, a promise too."""
        actual = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in actual, actual
        return actual["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> Any:
        """Wait until an expression is true on the page, and return it."""
        until = time.monotonic() + seconds
        while not (actual := self.run(script)):
            assert time.monotonic() < until, f"{script} has not become true; the page says: {self.shown_text}"
            time.sleep(0.02)
        return actual

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key, as a hand would; modifiers are the protocol's: 1 alt, 2 control, 4 meta, 8 shift."""
        codes = {"Escape": 27, "Enter": 13, "Tab": 9, " ": 32, "ArrowRight": 39, "ArrowLeft": 37}
        text = {"text": {"Enter": "\r", " ": " "}.get(key, "")} if not modifiers else {}
        values = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **values, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def type(self, selector: str, text: str) -> None:
        """Put a text into a field in the place of what it holds, as a paste would."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus(); document.activeElement.select?.()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, which has to be there to be seen."""
        actual = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{actual}.scrollIntoView({{block: 'center'}})")
        box = self.run(f"(({{x, y, width, height}}) => [x, y, width, height])({actual}.getBoundingClientRect())")
        assert box[2] and box[3], f"{selector} is not to be seen"
        where = {"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def give(self, selector: str, file: Path) -> None:
        """Choose a file in a field for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file.resolve())])

    def download(self, selector: str, folder: Path) -> Path:
        """Click on what downloads a file, and return the file once it is whole."""
        where = {"behavior": "allow", "downloadPath": str(folder.resolve()), "eventsEnabled": True}
        self.call("Browser.setDownloadBehavior", **where)
        before, known = set(folder.iterdir()), len(self.events)
        self.click(selector)
        until = time.monotonic() + 20
        # A file has its name before it has its bytes: only the browser knows when it is whole.
        reported = "Browser.downloadProgress"
        while "completed" not in [e["params"]["state"] for e in self.events[known:] if e["method"] == reported]:
            assert time.monotonic() < until, "nothing was downloaded"
            time.sleep(0.02)
            self.run("0")  # events come in with answers
        (new,) = set(folder.iterdir()) - before
        return new

    def picture(self, file: Path, width: int = 1000, height: int = 0, dark: bool = False) -> None:
        """Write what the page looks like; without a height, all of it."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height or 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        time.sleep(0.3)  # bars move for a moment
        if not height:
            size["height"] = self.run("document.documentElement.scrollHeight")
            self.call("Emulation.setDeviceMetricsOverride", **size)
        file.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    @property
    def shown_text(self) -> str:
        """All the text that is to be seen."""
        return str(self.run("document.body.innerText"))

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
