"""Whatever strangers send, however slowly and over however many connections, the server answers everybody else."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import Served, serving
from understill.errors import UserError
from understill.serve.connections import MAX_HEAD, MAX_HEADERS, MAX_PIPELINED
from understill.serve.process import RESERVED, connections_of
from understill.serve.schemas import MAX_TASKS, is_simple
from understill.serve.settings import ServerSettings

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"texts": "good"}'


def post(body: bytes, length: int | None = None) -> bytes:
    start = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return start + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def connect(server: Served) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def received(line: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    data = b""
    while piece := line.recv(65536):
        data += piece
    return data


def exchange(server: Served, sent: bytes) -> tuple[int, str]:
    """Send a request that the server is to refuse, and return status and reason."""
    with connect(server) as line:
        line.sendall(sent)
        head, _, body = received(line).partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(body)["error"]


def cut(server: Served, reason: str) -> float:
    """Return how many connections were cut for a reason."""
    lines = server.get("/metrics").text.splitlines()
    name = f'understill_connections_cut_total{{reason="{reason}"}}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


#: A server that is as impatient as a test.
IMPATIENT = """
from understill.serve import app, connections
connections.HEAD_SECONDS = connections.WRITE_SECONDS = app.BODY_TIMEOUT = 1
from understill.cli import main
main()
"""


@pytest.fixture(scope="module")
def impatient(exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with room for 20 connections, which waits a second for everything."""
    folder = tmp_path_factory.mktemp("impatient")
    with serving(exports["student"], folder, "--max-connections", 20, program=IMPATIENT) as running:
        yield running


# Headers --------------------------------------------------------------------------------------------------------------


def test_headers_end_at_64_kib(server: Served) -> None:
    for over in (0, 1):
        start, end = GET + b"Connection: close\r\nX: ", b"\r\n\r\n"
        with connect(server) as line:
            line.sendall(start + b"a" * (MAX_HEAD + over - len(start) - len(end)) + end)
            assert received(line)[9:12] == (b"431" if over else b"200")
    before = cut(server, "headers")
    status, message = exchange(server, GET + b"X: " + b"a" * 1_000_000)
    assert status == 431 and "more than 65,536 bytes" in message
    assert cut(server, "headers") == before + 1


def test_headers_that_come_in_pieces_are_counted_together_and_for_each_request_anew(server: Served) -> None:
    with connect(server) as line:
        for _ in range(3):  # on one connection
            line.sendall(GET)
            for _ in range(4):
                line.sendall(b"X: " + b"a" * 12_000 + b"\r\n")
                time.sleep(0.01)
            line.sendall(b"\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += line.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
        line.sendall(GET)
        for _ in range(6):
            line.sendall(b"X: " + b"a" * 12_000 + b"\r\n")
            time.sleep(0.01)
        assert line.recv(65536).startswith(b"HTTP/1.1 431")


def test_headers_of_many_lines_and_many_requests_at_once_are_refused(server: Served) -> None:
    assert exchange(server, GET + b"a: b\r\n" * MAX_HEADERS + b"\r\n")[0] == 431
    with connect(server) as line:
        line.sendall((GET + b"\r\n") * MAX_PIPELINED + GET + b"Connection: close\r\n\r\n")
        assert received(line).count(b"HTTP/1.1 200") == MAX_PIPELINED + 1
    with connect(server) as line:
        line.sendall((GET + b"\r\n") * 5000)
        assert 1 <= received(line).count(b"HTTP/1.1 200") <= MAX_PIPELINED + 1, "and the line is closed"


def test_what_is_refused_behind_a_request_does_not_answer_in_its_place(server: Served) -> None:
    for after in (b"garbage\r\n\r\n", GET + b"X: " + b"y" * MAX_HEAD, (GET + b"\r\n") * 99, post(b"", -1)):
        with connect(server) as line:
            line.sendall(post(BODY) + after)
            answer = received(line)
        assert answer.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 4" not in answer, after[:40]
    assert all(line["level"] != "error" for line in server.lines())


def test_a_body_in_crumbs_is_refused(server: Served) -> None:
    chunked = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked += b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert exchange(server, chunked + b"1\r\na\r\n" * 2000)[0] == 400
    with connect(server) as line:
        line.sendall(chunked + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n")
        assert received(line).startswith(b"HTTP/1.1 200")


# Slow clients ---------------------------------------------------------------------------------------------------------


def test_who_is_slow_is_not_waited_for(impatient: Served) -> None:
    with connect(impatient) as silent, connect(impatient) as slow, connect(impatient) as body:
        slow.sendall(GET)
        body.sendall(post(b"{", 100))
        assert received(silent) == b""
        assert received(slow).startswith(b"HTTP/1.1 408")
        assert body.recv(65536).startswith(b"HTTP/1.1 408")
    assert cut(impatient, "slow") >= 1


def test_a_byte_now_and_then_does_not_keep_a_connection(impatient: Served) -> None:
    kept = connect(impatient)
    with kept:
        kept.sendall(GET + b"\r\n")
        first = b""
        while b"alive" not in first:  # head and body may come one after the other
            first += kept.recv(65536)
        assert first.startswith(b"HTTP/1.1 200")
        kept.settimeout(0.2)
        began, answer = time.monotonic(), b""
        while not answer and time.monotonic() - began < 20:
            kept.sendall(b"G" if time.monotonic() - began < 0.1 else b"E")
            try:
                answer = kept.recv(65536)
            except TimeoutError:
                continue
        assert answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))


def test_an_unread_body_of_a_refused_request_is_not_waited_for(impatient: Served) -> None:
    with connect(impatient) as line:
        line.sendall(post(b"", 10**9))
        line.settimeout(20)
        assert line.recv(65536).startswith(b"HTTP/1.1 413")
        try:
            while line.send(b"a" * 1000):
                time.sleep(0.05)
        except OSError:
            pass  # the server has closed it


# Connections ----------------------------------------------------------------------------------------------------------


def test_beyond_the_limit_those_that_wait_for_their_clients_go_first(impatient: Served) -> None:
    before = cut(impatient, "limit")
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(impatient)) for _ in range(60)]
        for _ in range(5):
            assert httpx.post(f"{impatient.url}/v1/predict", json={"texts": "good"}).status_code == 200
        assert lines[0].recv(1) == b"", "the one that has waited longest is closed"
    assert cut(impatient, "limit") >= before + 40
    reached = [line for line in impatient.lines() if line["event"] == "the limit on connections is reached"]
    assert reached and reached[0]["limit"] == 20 and reached[0]["level"] == "warning"


#: A server whose model takes its time, so that connections wait for the server and not for their clients.
BUSY = """
import time
from understill.inference.onnx import OnnxModel
logits = OnnxModel.logits

def slowly(self, texts, pairs, tasks):
    if "slow" in texts[0]:
        time.sleep(2)
    return logits(self, texts, pairs, tasks)

OnnxModel.logits = slowly
from understill.cli import main
main()
"""


def test_when_all_connections_are_being_answered_a_further_one_is_told_to_come_back(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    options = ("--max-connections", 4, "--batch", 1)
    with serving(exports["student"], tmp_path, *options, program=BUSY) as server, ExitStack() as stack:
        busy = [stack.enter_context(connect(server)) for _ in range(4)]
        for line in busy:
            line.sendall(post(b'{"texts": "slow"}'))
        time.sleep(0.3)
        with connect(server) as line:
            assert received(line).startswith(b"HTTP/1.1 503")
        for line in busy:
            assert line.recv(65536).startswith(b"HTTP/1.1 200"), "and nobody else is disturbed"


def test_connections_are_no_more_than_there_are_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (256, 1024)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    asked: list[tuple[int, int]] = []
    assert connections_of(100) == 100 and asked == []
    assert connections_of(512) == 512 and asked == [(512 + RESERVED, 1024)]
    assert connections_of(5000) == 1024 - RESERVED and asked[1:] == [(1024, 1024)]
    limits = (256, resource.RLIM_INFINITY)
    assert connections_of(5000) == 5000


# Bodies ---------------------------------------------------------------------------------------------------------------

#: A server in which two large requests may be in progress.
NARROW = """
from understill.serve import app, service
service.LARGE_REQUESTS, app.TURN_SECONDS = 2, 0.3
from understill.cli import main
main()
"""


def test_of_many_unfinished_bodies_few_are_read_and_small_ones_do_not_wait(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    large = json.dumps({"texts": ["good " * 1000] * 40}).encode()
    with serving(exports["student"], tmp_path, program=NARROW) as server, ExitStack() as stack:
        unfinished = [stack.enter_context(connect(server)) for _ in range(4)]
        for line in unfinished:
            line.sendall(post(large[:-1], len(large)))
        for line in unfinished[2:]:
            answer = line.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503") and b"retry-after: 5" in answer
        assert server.ask(texts="good").status_code == 200
        for line in unfinished[:2]:
            line.sendall(large[-1:])
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
        assert server.send(large).status_code == 200, "and then it is the turn of others"


@given(
    texts=st.lists(st.text('ab",[]{}\\\n: ', max_size=4000), min_size=1, max_size=20),
    pairs=st.booleans(), indent=st.sampled_from([None, 2]),
)  # fmt: skip
def test_no_question_has_too_many_values(texts: list[str], pairs: bool, indent: int | None) -> None:
    question = {"texts": texts * 3, "tasks": ["x"] * MAX_TASKS} | ({"pairs": texts * 3} if pairs else {})
    assert is_simple(bytearray(json.dumps(question, indent=indent).encode()), 3 * len(texts))


@pytest.mark.parametrize("unit", ["1,", '"",', "[],", "{},", '"a":1,', '"\\"",', "[[", " 1 ,"])
def test_a_million_small_values_are_refused_before_they_are_parsed(server: Served, unit: str) -> None:
    for start in ('{"texts": [', '{"texts": "' + "," * 90_000 + '", "tasks": ['):
        assert not is_simple(bytearray((start + unit * 60_000).encode()), 50)
    assert server.send('{"texts": [' + unit * 9000).status_code in (413, 422)


# Other names, and half a connection -----------------------------------------------------------------------------------


def asked_as(server: Served, host: str | None, path: str = "/v1/tasks") -> int:
    place = httpx.URL(server.url)
    with closing(http.client.HTTPConnection(place.host, place.port or 80, timeout=30)) as line:
        line.putrequest("GET", path, skip_host=True)
        if host is not None:
            line.putheader("Host", host)
        line.endheaders()
        return line.getresponse().status


def test_on_localhost_it_answers_to_names_of_localhost_alone(server: Served) -> None:
    for ours in ("localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", "localhost.", None):
        assert asked_as(server, ours) == 200, ours
    for other in (
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "a@b",
    ):
        assert asked_as(server, other) == 421, other
        assert asked_as(server, other, "/") == 421
        assert asked_as(server, other, "/healthz") == 200, "probes tell nothing, and come by any name"
    reply = server.get("/v1/tasks", headers={"Host": "evil.example"})
    assert "start it with --hosts NAME" in reply.json()["error"] and "evil" not in reply.text


def test_other_names_are_given_by_hosts(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--hosts", "box.example", "--hosts", "10.0.0.7") as server:
        assert [asked_as(server, name) for name in ("box.example:80", "10.0.0.7", "localhost", "other")] == [
            200, 200, 200, 421,
        ]  # fmt: skip
    with serving(exports["student"], tmp_path, "--host", "0.0.0.0") as server:
        assert asked_as(server, "any.example") == 200, "elsewhere than on localhost, any name unless some are given"
    for wrong in ("https://box.example", "box.example:80", "a b", ""):
        with pytest.raises(UserError, match="no name of a host → write it without scheme and port"):
            ServerSettings(Path("model"), hosts=(wrong,))


def test_who_closes_its_half_is_answered_and_who_leaves_is_not(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--batch", 1, program=BUSY) as server:
        with connect(server) as line:
            line.sendall(post(BODY))
            line.shutdown(socket.SHUT_WR)
            interim, _, answer = received(line).rpartition(b"HTTP/1.1 200 OK")
            assert interim.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == b"" and b'"answers"' in answer
        with connect(server) as first:
            first.sendall(post(b'{"texts": "slow"}'))
            time.sleep(0.2)
            with connect(server) as leaves:
                leaves.sendall(post(b'{"texts": "slow"}'))
            assert first.recv(65536).startswith(b"HTTP/1.1 200")
        assert server.ask(texts="good").status_code == 200
        asked = [line for line in server.lines() if line.get("route") == "/v1/predict"]
        assert sorted(line["status"] for line in asked) == [200, 200, 200, 499]
        (gone,) = (line for line in asked if line["status"] == 499)
        assert gone["milliseconds"] < 1000, "it leaves the queue long before it would have been answered"
