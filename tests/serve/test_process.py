"""A server starts with one sentence or none, runs in several processes, and ends without losing a request."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kinds import BEST
from serving import Served, export_tiny, serving
from understill.atomic import CHECKSUMS
from understill.cli import main
from understill.errors import UserError
from understill.inference.loading import load
from understill.serve import supervisor
from understill.serve.process import ending_signals, threads_of
from understill.serve.settings import ServerSettings, digest, name_of, read_keys


class Pressing:
    """Clients that ask without pause, until nobody lets them connect any more."""

    def __init__(self, server: Served, clients: int, keep: bool) -> None:
        self.server, self.keep = server, keep
        self.counts: Counter[str] = Counter()
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
                    self.counts[type(error).__name__] += 1
                    return
                self.counts[str(reply.status_code)] += 1

    def wait(self) -> Counter[str]:
        for thread in self.threads:
            thread.join(30)
        return self.counts


def taken(server: Served) -> Counter[int]:
    """The questions that the server has taken, by what became of them."""
    return Counter(line["status"] for line in server.lines() if line.get("route") == "/v1/predict")


@pytest.mark.parametrize("keep", [True, False], ids=["kept open", "anew"])
def test_sigterm_under_load_loses_no_request(exports: dict[str, Path], tmp_path: Path, keep: bool) -> None:
    with serving(exports["student"], tmp_path, "--drain", 0.5) as server:
        pressing = Pressing(server, 8, keep)
        time.sleep(0.7)
        assert server.end(signal.SIGTERM) == 0
        counts = pressing.wait()
        assert counts["200"] > 20
        assert taken(server) == {200: counts["200"]} and set(counts) == {"200"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_while_it_drains_it_says_so_and_still_answers(
    exports: dict[str, Path], tmp_path: Path, number: signal.Signals
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may have been started with nohup
    try:
        with serving(exports["student"], tmp_path, "--drain", 1.5) as server:
            assert server.get("/readyz").status_code == 200
            server.process.send_signal(number)
            while (ready := server.get("/readyz")).status_code == 200:
                time.sleep(0.02)
            assert ready.status_code == 503 and ready.json() == {"status": "draining"}
            assert server.get("/healthz").status_code == 200
            answer = server.ask(texts="good")
            assert answer.status_code == 200 and answer.headers["connection"] == "close"
            assert server.process.wait(timeout=30) == 0
            assert [line["event"] for line in server.lines() if line["event"] != "request"] == [
                "ready", "draining", "ended",
            ]  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_nohup_has_switched_off_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == (signal.SIGINT, signal.SIGTERM)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert ending_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_does_not_drain(exports: dict[str, Path], tmp_path: Path, processes: int) -> None:
    with serving(exports["student"], tmp_path, "--workers", processes, "--drain", 1000) as server:
        assert server.ask(texts="good").status_code == 200
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(timeout=60) == 0
        lines = server.lines()
        events = Counter(line["event"] for line in lines)
        assert events["ready"] == events["ending"] == processes and "draining" not in events
        assert lines[-1]["event"] == "ended" and "worker" not in lines[-1]
        if processes > 1:
            speaking = {line["worker"] for line in lines if line["event"] == "ended" and "worker" in line}
            assert len(speaking) == 2 and speaking == {line["worker"] for line in lines if line["event"] == "ready"}


#: A server for which a second signal is one however early, or however late, it comes.
ECHO = """
from understill.serve import process, supervisor
process.ECHO = supervisor.ECHO = {seconds}
from understill.cli import main
main()
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_signal_ends_it_at_once(exports: dict[str, Path], tmp_path: Path, processes: int) -> None:
    options = ("--workers", processes, "--drain", 1000)
    with serving(exports["student"], tmp_path, *options, program=ECHO.format(seconds=0)) as server:
        pids = workers(server)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: any(line["event"] == "draining" for line in server.lines()))
        assert server.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert server.lines()[-1]["event"] == "ended at once"
        assert not any(Path(f"/proc/{each}").exists() for each in pids)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_signal_that_comes_twice_at_once_is_one(exports: dict[str, Path], tmp_path: Path, processes: int) -> None:
    options = ("--workers", processes, "--drain", 1.5)
    with serving(exports["student"], tmp_path, *options, program=ECHO.format(seconds=1000)) as server:
        server.process.send_signal(signal.SIGTERM)
        until(lambda: any(line["event"] == "draining" for line in server.lines()))
        time.sleep(0.7)
        os.killpg(server.process.pid, signal.SIGTERM)  # workers get from outside what they know already, however late
        assert server.process.wait(timeout=60) == 0
        events = Counter(line["event"] for line in server.lines())
        assert events["draining"] == processes and events["ended"] == (3 if processes == 2 else 1)


# What comes while it ends ---------------------------------------------------------------------------------------------

BODY = b'{"texts": "good"}'
REQUEST = (
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    % (len(BODY), BODY)
)
#: A server that is asked by itself, in moments that nobody else could hit. What came of it is written to a file.
ASKED = """
import asyncio, json, socket, threading
from pathlib import Path
from understill.serve import process

replies = {{}}

def tell(name, reply):
    replies[name] = reply
    Path({file!r}).write_text(json.dumps(replies))

def ask(listening, name):
    client = socket.create_connection(listening.getsockname(), timeout=60)
    client.sendall({request!r})
    threading.Thread(target=lambda: tell(name, client.recv(15).decode())).start()

filter_of, waiting_of = process.drop_new_connections, process.accept_waiting
{patch}
from understill.cli import main
main()
"""
#: Between the last turn of the loop and the closing.
AT_THE_DOOR = """
def begin(listening):
    ask(listening, "before")
    filter_of(listening)

def take(listening):
    connections = waiting_of(listening)
    try:
        socket.create_connection(listening.getsockname(), timeout=0.3)
    except OSError as error:
        tell("after", type(error).__name__)
    return connections

process.HANDSHAKE, process.drop_new_connections, process.accept_waiting = 0, begin, take
"""
#: A little after connections have been forbidden; it had been begun before.
BEING_MADE = """
def begin(listening):
    asyncio.get_running_loop().call_later(process.HANDSHAKE / 3, ask, listening, "made")

process.drop_new_connections = begin
"""


def asked_at_the_end(model: Path, folder: Path, patch: str) -> dict[str, str]:
    file = folder / "replies.json"
    program = ASKED.format(file=str(file), request=REQUEST, patch=patch)
    with serving(model, folder, "--drain", 0, program=program) as server:
        assert server.end(signal.SIGTERM) == 0
    replies: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return replies


def test_at_the_door_who_was_there_is_taken_and_nobody_else_gets_through(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    replies = asked_at_the_end(exports["student"], tmp_path, AT_THE_DOOR)
    assert replies == {"before": "HTTP/1.1 200 OK", "after": "TimeoutError"}


def test_a_connection_that_is_being_made_when_it_ends_is_waited_for(exports: dict[str, Path], tmp_path: Path) -> None:
    assert asked_at_the_end(exports["student"], tmp_path, BEING_MADE) == {"made": "HTTP/1.1 200 OK"}


def test_who_asks_over_an_open_connection_when_nobody_listens_any_more_is_answered(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    long = ASKED.format(file="", request=b"", patch="process.LAST_CALL = 1000")
    with serving(exports["student"], tmp_path, "--drain", 0, program=long) as server:
        address = (server.client.base_url.host, server.client.base_url.port)
        kept = http.client.HTTPConnection(*address, timeout=60)
        for last in (False, True):
            if last:
                server.process.send_signal(signal.SIGTERM)
                until(lambda: not listens(*address))
            kept.request("POST", "/v1/predict", BODY, {"Content-Type": "application/json"})
            answer = kept.getresponse()
            assert answer.status == 200 and answer.read() and answer.will_close == last
        assert server.process.wait(timeout=60) == 0


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=0.2).close()
    except ConnectionRefusedError:
        return False
    except TimeoutError:  # not any more, but not closed yet
        return True
    return True


def test_who_asked_before_the_signal_is_answered_though_nobody_had_looked(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    with serving(exports["student"], tmp_path, "--drain", 0) as server:
        address = (server.client.base_url.host, server.client.base_url.port)
        server.process.send_signal(signal.SIGSTOP)
        clients = [socket.create_connection(address, timeout=60) for _ in range(20)]
        for client in clients:
            client.sendall(REQUEST)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        for client in clients:
            with client:
                assert client.recv(15) == b"HTTP/1.1 200 OK"
        assert server.process.wait(timeout=60) == 0


# Several workers ------------------------------------------------------------------------------------------------------


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
        until(lambda: len(workers(server)) == 2 and first not in workers(server))
        pids = workers(server)
        assert second in pids
        assert (
            httpx.post(f"{server.url}/v1/predict", json={"texts": "good"}, timeout=60).status_code == 200
        )  # connects anew
        assert 'understill_requests_total{route="/v1/predict",status="200"} 41.0' in server.get("/metrics").text
        assert any(line["event"] == "a worker has ended and is replaced" for line in server.lines())
        before, pressing = taken(server)[200], Pressing(server, 6, keep=True)
        time.sleep(0.7)
        assert server.end(signal.SIGTERM) == 0
        counts = pressing.wait()
        assert taken(server) == {200: before + counts["200"]} and set(counts) == {"200"}
        assert not any(Path(f"/proc/{each}").exists() for each in pids)


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--workers", 2, "--drain", 0) as server:
        pids = workers(server)
        server.process.kill()
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in pids))


#: A server that does not wait long before it replaces a worker, but long for one that does not respond.
HASTY = """
from understill.serve import supervisor
supervisor.PAUSE, supervisor.LONGEST, supervisor.LIVENESS = 0.05, 0.2, 1000
from understill.cli import main
main()
"""


def test_a_worker_that_cannot_be_replaced_leaves_the_other_alone_until_it_can(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    model, away = tmp_path / "model", tmp_path / "away"
    shutil.copytree(exports["student"], model)
    with serving(model, tmp_path, "--workers", 2, "--drain", 0, program=HASTY) as server:
        first, second = workers(server)
        model.rename(away)
        os.kill(first, signal.SIGKILL)
        until(lambda: failures(server) == 1)
        assert httpx.post(f"{server.url}/v1/predict", json={"texts": "good"}, timeout=60).status_code == 200
        # From now on the other one has no time. Who connects waits for a worker that has a model.
        os.kill(second, signal.SIGSTOP)
        with socket.create_connection((server.client.base_url.host, server.client.base_url.port)) as client:
            client.sendall(REQUEST)
            until(lambda: failures(server) > 2)
            pauses = [line["seconds"] for line in server.lines() if line["event"].endswith("is replaced")]
            assert pauses[:3] == [0.05, 0.1, 0.2]
            content = slow_to_load(away)
            away.rename(model)
            hand_out = opened_by_somebody(model / CHECKSUMS)
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.recv(15)
            hand_out(content)
            client.settimeout(60)
            assert client.recv(15) == b"HTTP/1.1 200 OK"
        os.kill(second, signal.SIGCONT)
        assert server.end(signal.SIGTERM) == 0


#: A server that soon misses a worker that does not respond, or that soon gives up when it is to end.
STRICT = """
from understill.serve import process, supervisor
supervisor.PAUSE, supervisor.LIVENESS = 0.05, {liveness}
process.DEADLINE = supervisor.DEADLINE = {deadline}
from understill.cli import main
main()
"""


def test_a_stopped_worker_is_replaced(exports: dict[str, Path], tmp_path: Path) -> None:
    program = STRICT.format(liveness=3, deadline=1000)
    with serving(exports["student"], tmp_path, "--workers", 2, "--drain", 0, program=program) as server:
        first, second = workers(server)
        os.kill(first, signal.SIGSTOP)
        until(lambda: len(workers(server)) == 2 and first not in workers(server))
        assert second in workers(server), "the other one is alive"
        events = [line["event"] for line in server.lines() if line["level"] == "error"]
        assert events == ["a worker does not respond and is killed", "a worker has ended and is replaced"]
        assert httpx.post(f"{server.url}/v1/predict", json={"texts": "good"}, timeout=60).status_code == 200
        assert server.end(signal.SIGTERM) == 0


def test_a_stopped_worker_does_not_keep_the_server_from_ending(exports: dict[str, Path], tmp_path: Path) -> None:
    program = STRICT.format(liveness=1000, deadline=3)
    with serving(exports["student"], tmp_path, "--workers", 2, "--drain", 0.5, program=program) as server:
        os.kill(workers(server)[0], signal.SIGSTOP)
        began = time.monotonic()
        assert server.end(signal.SIGTERM) == 1
        assert time.monotonic() - began > 3, "until then it could have come back"
        assert server.lines()[-1]["event"] == "ended with requests unanswered: something hangs"


#: A server whose model never answers.
STUCK = """
import time
from understill.inference.onnx import OnnxModel
logits = OnnxModel.logits
OnnxModel.logits = lambda self, texts, *more: time.sleep(1000) if texts == ["stuck"] else logits(self, texts, *more)
"""


def test_a_model_that_hangs_does_not_keep_the_server_from_ending(exports: dict[str, Path], tmp_path: Path) -> None:
    program = STUCK + STRICT.format(liveness=1000, deadline=2)
    with serving(exports["student"], tmp_path, "--drain", 0, program=program) as server:
        with socket.create_connection((server.client.base_url.host, server.client.base_url.port)) as client:
            client.sendall(REQUEST.replace(b"good", b"stuck").replace(b"Length: 17", b"Length: 18"))
            time.sleep(0.5)
            assert server.end(signal.SIGTERM) == 1
        assert server.lines()[-1]["event"] == "ended with requests unanswered: something hangs"


def failures(server: Served) -> int:
    return sum(line["event"] == "a worker cannot begin" for line in server.lines())


def test_when_nobody_is_left_who_answers_and_nobody_can_begin_it_gives_up(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(exports["student"], model)
    with serving(model, tmp_path, "--workers", 2, program=HASTY) as server:
        shutil.rmtree(model)
        for each in workers(server):
            os.kill(each, signal.SIGKILL)
        assert server.process.wait(timeout=60) == 2
        assert server.log.read_text(encoding="utf-8").endswith(f"error: {model}: no such model folder\n")


def slow_to_load(model: Path) -> bytes:
    """Make a model one that is being loaded until somebody hands out the content of its checksums."""
    path = model / CHECKSUMS
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    return content


def opened_by_somebody(path: Path) -> Callable[[bytes], None]:
    """Wait until somebody reads a pipe, and return what hands it out."""
    descriptors: list[int] = []

    def opens() -> bool:
        try:
            descriptors.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    until(opens)
    os.set_blocking(descriptors[0], True)

    def hand_out(content: bytes) -> None:
        whole = path.with_name("whole")
        whole.write_bytes(content)
        whole.replace(path)  # whoever reads it again finds a file
        with os.fdopen(descriptors[0], "wb") as file:
            file.write(content)

    return hand_out


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def workers(server: Served) -> list[int]:
    """The processes that answer."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    lines = {}
    for child in map(int, children):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            lines[child] = Path(f"/proc/{child}/cmdline").read_bytes()
    return [child for child, line in lines.items() if b"spawn_main" in line]


# While it starts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_a_signal_while_the_model_is_loaded_ends_it_and_nothing_is_said_to_be_ready(
    exports: dict[str, Path], tmp_path: Path, processes: int
) -> None:
    model = tmp_path / "model"
    shutil.copytree(exports["student"], model)
    slow_to_load(model)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "understill", "serve", model, "--workers", processes, "--port", port]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def loads() -> bool:
        try:
            reply = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60)
        except httpx.ConnectError:
            return False
        assert reply.status_code == 503 and reply.json() == {"status": "loading"}
        return True

    try:
        until(loads)
        process.terminate()
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "")
    assert {json.loads(line)["event"] for line in errors.splitlines()} <= {"request", "ended"}


#: A server that is told to end as soon as its first worker has been started.
SHORT = """
import os, signal
from understill.serve import supervisor
start = supervisor.Supervisor._start

def start_and_end(self):
    worker = start(self)
    os.kill(os.getpid(), signal.SIGTERM)
    return worker

supervisor.Supervisor._start = start_and_end
from understill.cli import main
main()
"""


def test_a_signal_while_workers_are_started_ends_them_all(exports: dict[str, Path]) -> None:
    command = [sys.executable, "-c", SHORT, "serve", str(exports["student"]), "--port", "0", "--workers", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert {json.loads(line)["event"] for line in done.stderr.splitlines()} == {"ended"}


def test_ctrl_c_before_it_serves_says_no_more_than_that(
    exports: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "serve", press)
    with pytest.raises(SystemExit) as stop:
        main(["serve", str(exports["student"])])
    assert stop.value.code == 130 and capsys.readouterr() == ("", "\nstopped\n")


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
        for arguments, message in (
            (("--port", taken), f"127.0.0.1, port {taken}: Address already in use → choose another"),
            (("--queue", 5), "a queue of 5 rows never has room for a request of 512 → write --queue 512"),
            (("--keys", empty), "no key in it → write one to a line"),
            (("--keys", tmp_path / "none"), f"--keys {tmp_path / 'none'}: No such file or directory"),
            (("--cors", "example.net"), '--cors "example.net": browsers name a site by scheme, host and port alone'),
            (("--log", "some"), '--log "some": write all or errors'),
            (("--host", "no.such.host.invalid"), "there is no such address"),
        ):
            with pytest.raises(SystemExit) as stop:
                main(["serve", str(model), *map(str, arguments)])
            printed = capsys.readouterr()
            assert stop.value.code == 2 and printed.out == ""
            assert printed.err.startswith("error: ") and message in printed.err and printed.err.count("\n") == 1


def test_an_open_address_without_keys_is_warned_of(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--host", "0.0.0.0") as server:
        assert any("no API keys" in line["event"] and line["level"] == "warning" for line in server.lines())
    with serving(exports["student"], tmp_path, "--host", "0.0.0.0", UNDERSTILL_KEYS="a-key b-key") as server:
        assert not any(line["level"] == "warning" for line in server.lines())
        assert server.ask(texts="good").status_code == 401
        allowed = {"Authorization": "Bearer b-key"}
        assert server.get("/v1/tasks", headers=allowed).status_code == 200


def test_a_teacher_without_a_task_of_the_model_is_refused(exports: dict[str, Path], tmp_path: Path) -> None:
    other = export_tiny(tmp_path, "static", (replace(BEST, name="else", head="else"),))
    done = start(exports["student"], "--teacher", other)
    assert done.returncode == 2 and "has no task of the model's, which are mood, topic" in done.stderr


# Settings ------------------------------------------------------------------------------------------------------------


def test_a_model_is_named_after_its_folder_and_its_run() -> None:
    assert name_of(Path("runs/quickstart")) == "quickstart"
    assert name_of(Path("runs/quickstart/export/int8")) == "quickstart/int8"
    assert name_of(Path("runs/quickstart/models/teacher-multi")) == "quickstart/teacher-multi"
    assert name_of(Path("there/model-int8/")) == "model-int8"
    assert name_of(Path(".")) == Path.cwd().name


def test_keys_are_kept_as_digests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    for mark in ("", "\ufeff"):  # some editors begin a file with it
        file.write_text(f"{mark}one\n# two\n three \n", encoding="utf-8")
        assert read_keys(file) == (digest("one"), digest("three"))
    monkeypatch.delenv("UNDERSTILL_KEYS", raising=False)
    assert read_keys(None) == ()
    monkeypatch.setenv("UNDERSTILL_KEYS", "one  two\nthree")
    assert read_keys(None) == tuple(map(digest, ("one", "two", "three")))
    assert "three" not in repr(ServerSettings(Path("model"), keys=read_keys(None)))
    with pytest.raises(UserError, match="never has room"):
        ServerSettings(Path("model"), queue=1)


def test_keys_that_are_none_are_refused_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    for key in ("schlüssel", "a b", "\x7f", "ключ"):
        file.write_text(f"fine\n\n{key}\n", encoding="utf-8")
        with pytest.raises(UserError, match="line 3: a header could not carry this key → use letters") as refused:
            read_keys(file)
        assert key not in str(refused.value)
    file.write_text("key\n", encoding="utf-16")
    with pytest.raises(UserError, match="no text in UTF-8"):
        read_keys(file)
    monkeypatch.setenv("UNDERSTILL_KEYS", "fine schlüssel")
    with pytest.raises(UserError, match="UNDERSTILL_KEYS, key 2: a header could not"):
        read_keys(None)
    for blank in ("", "  \n"):
        monkeypatch.setenv("UNDERSTILL_KEYS", blank)
        with pytest.raises(UserError, match="UNDERSTILL_KEYS: no key in it → write one into it, or unset it"):
            read_keys(None)


def test_a_site_is_named_as_browsers_name_it_or_refused() -> None:
    for site in ("https://example.org", "http://localhost:3000", "http://[::1]:8080", "*", "app://local"):
        assert ServerSettings(Path("model"), cors=(site,)).cors == (site,)
    for site, named in (
        ("https://example.org/", "https://example.org"),
        ("example.net", "https://example.net"),
        ("HTTPS://Example.org/page?a", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("localhost:3000", "https://localhost:3000"),
        (" http://a.b ", "http://a.b"),
    ):
        with pytest.raises(UserError, match=f"alone → write {re.escape(named)}$"):
            ServerSettings(Path("model"), cors=("https://fine.org", site))
    for site in ("", "https://", "https://*.example.org", "a b", "https://user@host"):
        with pytest.raises(UserError, match="no site → write scheme://host"):
            ServerSettings(Path("model"), cors=(site,))


def test_the_cores_are_shared_where_a_system_tells_how_many_are_allowed_and_where_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert [threads_of(workers) for workers in (1, 2, 4, 9)] == [6, 3, 1, 1]
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [threads_of(workers) for workers in (1, 3, 9)] == [8, 2, 1]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads_of(1) == 1
