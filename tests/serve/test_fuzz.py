"""Whatever is sent, the answer is a sentence: never a 5xx besides 503, never a traceback in the log."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import Served, serving

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")

QUICK = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


def unharmed(server: Served) -> None:
    """The server answers, and its log is JSON without a traceback."""
    assert server.ask(texts="good").status_code == 200
    assert all("error" not in line for line in server.lines())


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/tasks", "/healthz", "/readyz", "/metrics"])
def test_the_schema_is_kept_whatever_it_lets_be_sent(server: Served, path: str) -> None:
    # Texts and second texts have to be as many, and tasks to be the model's, which no schema says: hence this one less.
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    schema.config.checks.negative_data_rejection.expected_statuses = ["413", "422"]
    operation = schema[path]["POST" if path == "/v1/predict" else "GET"]
    modes = list(schemathesis.GenerationMode) if path == "/v1/predict" else [schemathesis.GenerationMode.POSITIVE]
    for mode in modes:

        @QUICK
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            reply = case.call()
            assert reply.status_code < 500, reply.text
            case.validate_response(reply, excluded_checks=[positive_data_acceptance])

        check()
    unharmed(server)


def raw(server: Served, sent: bytes) -> bytes:
    """Send bytes and return the head of what comes back; the line stays open meanwhile, as clients leave it."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(sent)
        received = b""
        while b"\r\n\r\n" not in received and (piece := line.recv(65536)):
            received += piece
        return received


#: A server without uvloop, as where it cannot be installed.
PLAIN = """
import sys
sys.modules["uvloop"] = None
from understill.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def either(
    request: pytest.FixtureRequest, server: Served, exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The server with the quick event loop, and one with Python's own."""
    if request.param == "uvloop":
        yield server
    else:
        with serving(exports["student"], tmp_path_factory.mktemp("plain"), program=PLAIN) as running:
            yield running


KINDS = st.sampled_from(
    ["application/json", "text/plain", "application/json; charset=latin-1", "multipart/form-data", ""]
)
ENCODINGS = st.sampled_from([None, "gzip", "identity", "br", "x"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["texts", "pairs", "tasks", "teacher", "top_k", "x"]), inner)
    ),
)


@QUICK
@given(body=st.binary(max_size=400), kind=KINDS, encoding=ENCODINGS)
def test_any_bytes(server: Served, body: bytes, kind: str, encoding: str | None) -> None:
    reply = server.send(body, kind, **({"Content-Encoding": encoding} if encoding else {}))
    assert reply.status_code in (200, 413, 422) and isinstance(reply.json(), dict)


@QUICK
@given(question=JSONS)
def test_any_json(server: Served, question: Any) -> None:
    body = json.dumps(question).encode("utf-8", "surrogatepass")
    reply = server.send(body)
    assert reply.status_code in (200, 413, 422) and isinstance(reply.json(), dict)


@QUICK
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=12),
    pair=st.booleans(),
)
def test_any_texts_are_answered(server: Served, texts: list[str], pair: bool) -> None:
    reply = server.ask(texts=texts, pairs=texts[::-1] if pair else None, teacher=True)
    assert reply.status_code == 200 and len(reply.json()["answers"]) == len(texts)


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": "' + b"a" * 10_000_000,
        b"a" * 10_000_000 + b"\n",
        b"[" * 50_000,
        b'{"texts": [' + b'"\\u0000",' * 5_000 + b'""]}',
        b'{"texts": "a", "texts": ["b"], "texts": 3}',
        b"\xef\xbb\xbf" + b'{"texts": "a"}',
        b'{"texts": "\xed\xa0\x80"}',
        b'{"texts": "\\udfff\\ud800"}',
        b"1e999",
        b"-0",
        b'"' + b"\\u0041" * 9_000 + b'"',
    ],
)
def test_bodies_that_hurt_others(server: Served, body: bytes) -> None:
    reply = server.send(body)
    assert reply.status_code in (413, 422) and list(reply.json()) == ["error"]
    unharmed(server)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: [::1]\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
        b"GET /%00%ff%2e%2e HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"GET /page/%00 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"GET /page/" + b"a" * 5000 + b" HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        b"HEAD /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    ],
)
def test_requests_that_are_hardly_http(either: Served, sent: bytes) -> None:
    received = raw(either, sent)
    assert received.startswith(b"HTTP/1.1 ") and not received.startswith(b"HTTP/1.1 5"), received
    unharmed(either)
