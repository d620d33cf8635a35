"""A server starts with one sentence or none, runs in several processes, and ends without losing a request."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kinds import BEST
from serving import Served, export_tiny, serving
from understill.cli import main
from understill.errors import UserError
from understill.loading import load
from understill.serve.settings import Settings, digest, name_of, read_keys


class Pressing:
    """Clients that ask without pause, until nobody lets them connect any more."""

    def __init__(self, server: Served, clients: int, keep: bool) -> None:
        self.server, self.keep = server, keep
        self.told: Counter[str] = Counter()
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _ask(self) -> None:
        with httpx.Client(timeout=30, verify=False) as client:
            while True:
                headers = {} if self.keep else {"Connection": "close"}
                try:
                    reply = client.post(
                        f"{self.server.url}/v1/predict", json={"texts": ["good", "bad"]}, headers=headers
                    )
                except httpx.ConnectError:
                    return
                except httpx.HTTPError as error:
                    self.told[type(error).__name__] += 1
                    return
                self.told[str(reply.status_code)] += 1

    def wait(self) -> Counter[str]:
        for thread in self.threads:
            thread.join(30)
        return self.told


def taken(server: Served) -> Counter[int]:
    """The questions that the server has taken, by what became of them."""
    return Counter(line["status"] for line in server.lines() if line.get("route") == "/v1/predict")


@pytest.mark.parametrize("keep", [True, False], ids=["kept open", "anew"])
def test_sigterm_under_load_loses_no_request(exports: dict[str, Path], tmp_path: Path, keep: bool) -> None:
    with serving(exports["student"], tmp_path, "--drain", 0.5) as server:
        pressing = Pressing(server, 8, keep)
        time.sleep(0.7)
        assert server.end(signal.SIGTERM) == 0
        told = pressing.wait()
        assert told["200"] > 20
        assert taken(server) == {200: told["200"]} and set(told) == {"200"}


def test_while_it_drains_it_says_so_and_still_answers(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--drain", 1.5) as server:
        assert server.get("/readyz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        while (ready := server.get("/readyz")).status_code == 200:
            time.sleep(0.02)
        assert ready.status_code == 503 and ready.json() == {"status": "draining"}
        assert server.get("/healthz").status_code == 200
        answer = server.ask(texts="good")
        assert answer.status_code == 200 and answer.headers["connection"] == "close"
        assert server.process.wait(timeout=30) == 0
        events = [line["event"] for line in server.lines()]
        assert events[0] == "ready" and "draining" in events


def test_ctrl_c_ends_it_at_once(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--drain", 1000) as server:
        assert server.ask(texts="good").status_code == 200
        assert server.end(signal.SIGINT) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_two_workers_share_an_address_and_count_together(
    exports: dict[str, Path], tmp_path: Path, number: signal.Signals
) -> None:
    want = load(exports["student"]).predict(["good"])["mood"][0].label
    with serving(exports["student"], tmp_path, "--workers", 2, "--drain", 0.5) as server:
        for _ in range(40):
            assert server.ask(texts="good").json()["answers"][0]["mood"]["label"] == want
        assert 'understill_requests_total{route="/v1/predict",status="200"} 40.0' in server.get("/metrics").text
        first, second = workers(server)
        os.kill(first, number)
        until = time.monotonic() + 30
        while len(found := workers(server)) < 2 or first in found:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert second in found
        assert httpx.post(f"{server.url}/v1/predict", json={"texts": "good"}).status_code == 200  # connects anew
        assert 'understill_requests_total{route="/v1/predict",status="200"} 41.0' in server.get("/metrics").text
        assert any(line["event"] == "a worker has ended and is replaced" for line in server.lines())
        before, pressing = taken(server)[200], Pressing(server, 6, keep=True)
        time.sleep(0.7)
        assert server.end(signal.SIGTERM) == 0
        told = pressing.wait()
        assert taken(server) == {200: before + told["200"]} and set(told) == {"200"}
        assert not any(Path(f"/proc/{each}").exists() for each in found)


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--workers", 2, "--drain", 0) as server:
        found = workers(server)
        server.process.kill()
        until = time.monotonic() + 30
        while any(Path(f"/proc/{each}").exists() for each in found):
            assert time.monotonic() < until
            time.sleep(0.1)


def workers(server: Served) -> list[int]:
    """The processes that answer."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [child for child, line in lines.items() if b"spawn_main" in line]


# What cannot be started -----------------------------------------------------------------------------------------------


def start(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "understill", "serve", *map(str, arguments), "--port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path, workers: int) -> None:
    done = start(tmp_path / "nowhere", "--workers", workers)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / 'nowhere'}: no such model folder\n"


def test_what_cannot_be_started_is_one_sentence(
    exports: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, empty = exports["student"], tmp_path / "keys"
    empty.write_text("# none\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for arguments, said in (
            (("--port", taken), f"127.0.0.1, port {taken}: Address already in use → choose another"),
            (("--queue", 5), "a queue of 5 rows never has room for a request of 512 → write --queue 512"),
            (("--keys", empty), "no key in it → write one to a line"),
            (("--keys", tmp_path / "none"), "cannot be read"),
            (("--log", "some"), '--log "some": write all or errors'),
            (("--host", "no.such.host.invalid"), "there is no such address"),
        ):
            with pytest.raises(SystemExit) as stop:
                main(["serve", str(model), *map(str, arguments)])
            told = capsys.readouterr()
            assert stop.value.code == 2 and told.out == ""
            assert told.err.startswith("error: ") and said in told.err and told.err.count("\n") == 1


def test_an_open_address_without_keys_is_warned_of(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--host", "0.0.0.0") as server:
        assert any("there are no keys" in line["event"] and line["level"] == "warning" for line in server.lines())
    with serving(exports["student"], tmp_path, "--host", "0.0.0.0", UNDERSTILL_KEYS="a-key b-key") as server:
        assert not any(line["level"] == "warning" for line in server.lines())
        assert server.ask(texts="good").status_code == 401
        allowed = {"Authorization": "Bearer b-key"}
        assert server.get("/v1/tasks", headers=allowed).status_code == 200


def test_a_teacher_without_a_task_of_the_model_is_refused(exports: dict[str, Path], tmp_path: Path) -> None:
    other = export_tiny(tmp_path, "static", (replace(BEST, name="else"),))
    done = start(exports["student"], "--teacher", other)
    assert done.returncode == 2 and "has no task of the model's, which are mood, topic" in done.stderr


# Settings -------------------------------------------------------------------------------------------------------------


def test_a_model_is_named_after_its_folder_and_its_run() -> None:
    assert name_of(Path("runs/quickstart")) == "quickstart"
    assert name_of(Path("runs/quickstart/export/int8")) == "quickstart/int8"
    assert name_of(Path("runs/quickstart/models/teacher-multi")) == "quickstart/teacher-multi"
    assert name_of(Path("there/model-int8/")) == "model-int8"
    assert name_of(Path(".")) == Path.cwd().name


def test_keys_are_kept_as_digests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("one\n# two\n three \n", encoding="utf-8")
    assert read_keys(tmp_path / "keys") == (digest("one"), digest("three"))
    monkeypatch.delenv("UNDERSTILL_KEYS", raising=False)
    assert read_keys(None) == ()
    monkeypatch.setenv("UNDERSTILL_KEYS", "one  two\nthree")
    assert read_keys(None) == tuple(map(digest, ("one", "two", "three")))
    assert "three" not in repr(Settings(Path("model"), keys=read_keys(None)))
    with pytest.raises(UserError, match="never has room"):
        Settings(Path("model"), queue=1)
