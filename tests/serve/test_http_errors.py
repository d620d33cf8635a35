"""What cannot be answered gets one plain sentence: limits, keys, other sites, a full queue."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from serving import Served, serving
from understill.errors import UserError
from understill.serve import schemas


def refused(reply: httpx.Response, status: int, message: str) -> None:
    assert reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"] and message in reply.json()["error"]
    assert "\n" not in reply.json()["error"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"texts": 1}, "texts must be a string or a list of strings"),
        ({"texts": None}, "texts must be a string or a list of strings"),
        ({"texts": ["a", 2]}, "texts, number 2 must be a string"),
        ({"texts": ["a", ["b"]]}, "texts, number 2 must be a string"),
        ({}, "texts is missing"),
        ([], "the body must be an object"),
        ("texts", "the body must be an object"),
        ({"texts": "a", "task": ["mood"]}, 'unknown key "task"; did you mean "tasks"?'),
        ({"texts": "a", "tasks": "mood"}, "tasks must be a list of strings"),
        ({"texts": "a", "tasks": ["mod"]}, 'no task "mod"; did you mean "mood"?'),
        ({"texts": "a", "tasks": ["follows"]}, "task follows reads two texts"),
        ({"texts": "a", "pairs": "b", "tasks": ["mood"]}, "task mood reads one text"),
        ({"texts": ["a", "b"], "pairs": ["c"]}, "2 texts and 1 second texts do not make pairs"),
        ({"texts": "a", "teacher": "yes"}, "teacher must be true or false"),
        ({"texts": "a", "tasks": ["x" * 300]}, "tasks, number 1: "),
        ({"texts": "a", "y" * 300: 1}, "unknown key"),
        ({"text": "a"}, 'unknown key "text"; did you mean "texts"?'),
        ({"texts": "a", "a\nb": 1}, 'unknown key "a\\nb"'),
        ({"texts": "a", "teacher": [1]}, "teacher must be true or false"),
        ({"texts": "a", "top_k": 0}, "top_k must be 1 or more"),
        ({"texts": "a", "top_k": -3}, "top_k must be 1 or more"),
        ({"texts": "a", "top_k": 2.5}, "top_k must be a whole number"),
        ({"texts": "a", "top_k": "3"}, "top_k must be a whole number"),
        ({"texts": "a", "top_k": True}, "top_k must be a whole number"),
        ({"texts": "a", "top_k": [1]}, "top_k must be a whole number"),
        ({"texts": "a", "topk": 1}, 'unknown key "topk"; did you mean "top_k"?'),
    ],
)
def test_a_question_that_makes_no_sense_is_told_so(server: Served, question: Any, message: str) -> None:
    reply = server.send(json.dumps(question))
    refused(reply, 422, message)
    assert len(reply.text) < 300


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b'{"texts": "\xff"}', "the body is no JSON"),
        (b'{"texts": "\\ud800"}', "the body is no JSON"),
        (b'{"texts": NaN}', "texts must be a string"),
        (b'{"texts": [Infinity, -Infinity]}', "number 1 must be a string"),
        (b'{"texts": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "the body is no JSON"),
        (b'{"texts": ' + b"9" * 20_000 + b"}", "the body is no JSON"),
        (b"\x00" * 100, "the body is no JSON"),
        ("{}".encode("utf-16"), "the body is no JSON"),
    ],
)
def test_a_body_that_is_no_json_is_told_so(server: Served, body: bytes, message: str) -> None:
    refused(server.send(body), 422, message)


def test_a_body_of_another_kind_is_told_what_to_send(server: Served) -> None:
    good = json.dumps({"texts": "good"}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"):
        refused(server.send(good, kind), 422, "Content-Type: application/json")
    packed = gzip.compress(good)
    refused(server.send(packed, **{"Content-Encoding": "gzip"}), 422, "uncompressed")
    assert server.send(good, "Application/JSON; charset=utf-8").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": [' + b"1," * 29_000 + b"1]}",
        b'{"texts": "a", "tasks": [' + b"1," * 29_000 + b"1]}",
        b"{" + b",".join(b'"%d": 1' % n for n in range(5000)) + b"}",
    ],
)
def test_a_thousand_mistakes_are_one_sentence_about_the_first(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    sentence = schemas._sentence

    def count(error: ValidationError) -> str:
        listed.append(error.error_count())
        return sentence(error)

    monkeypatch.setattr(schemas, "_sentence", count)
    with pytest.raises(UserError, match=r"number 1 must be a string|unknown key"):
        schemas.read_question(body)
    assert listed in ([], [1]), "nor does pydantic list each of them"


def test_limits_are_told_with_their_numbers(server: Served) -> None:
    assert server.ask(texts=["a"] * 50).status_code == 200
    refused(server.ask(texts=["a"] * 51), 413, "51 rows are more than 50 → send them in parts")
    assert server.ask(texts="a" * 2000).status_code == 200
    refused(server.ask(texts=["a", "a" * 2001]), 413, "text 2 has 2,001 characters; 2,000 may be sent")
    refused(server.ask(texts="a", pairs="a" * 2001), 413, "second text 1 has 2,001 characters")
    refused(server.ask(texts=["a" * 2000] * 31), 413, "the body has more than 60,000 bytes")
    refused(server.ask(texts="a" * 10_000_000), 413, "the body has more than 60,000 bytes")


def test_a_body_without_a_length_is_not_read_beyond_the_limit(server: Served) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 1000

    refused(server.send(endless()), 413, "more than 60,000 bytes")
    assert server.send(iter([b'{"texts":', b' "good"', b"}"])).status_code == 200


def test_who_leaves_in_the_middle_of_a_body_harms_nobody(server: Served) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for sent in (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n",
        b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    ):
        with socket.create_connection((host, int(port))) as line:
            line.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n" + sent if sent.startswith(b"C") else sent)
    assert server.ask(texts="good").status_code == 200
    assert "Traceback" not in server.log.read_text(encoding="utf-8")


def test_addresses_and_methods_that_are_not_there(server: Served) -> None:
    refused(server.get("/v2/predict"), 404, "not found")
    refused(server.get("/v1/predict/"), 404, "not found")
    wrong = server.get("/v1/predict")
    refused(wrong, 405, "method not allowed")
    assert wrong.headers["allow"] == "POST"
    refused(server.client.put("/v1/tasks"), 405, "method not allowed")


def test_a_full_queue_is_503_with_a_time_to_come_back(exports: dict[str, Path], tmp_path: Path) -> None:
    options = ("--queue", 8, "--max-rows", 8, "--batch", 1, "--log", "errors")
    with serving(exports["student"], tmp_path, *options) as server, ThreadPoolExecutor(32) as pool:
        # Each asks over a connection of its own: threads that share a client may close each other's.
        place, question = f"{server.url}/v1/predict", {"texts": ["the film was good"] * 8}
        replies = list(pool.map(lambda _: httpx.post(place, json=question, timeout=60), range(96)))
        full = [reply for reply in replies if reply.status_code == 503]
        assert full and len(full) < 96 and {reply.status_code for reply in replies} == {200, 503}
        for reply in full:
            refused(reply, 503, "too many rows are waiting; ask again in")
            assert int(reply.headers["retry-after"]) >= 1
        assert server.ask(texts="good").status_code == 200, "and then there is room again"
        statuses = {line.get("status") for line in server.lines() if line["event"] != "ready"}
        assert statuses == {503}, "of requests that went well --log errors says nothing"


# Keys and other sites -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that wants a key, and lets pages of one site ask."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = folder / "keys.txt"
    keys.write_text("# ours\nfirst-long-key\n\n  second-long-key  \n", encoding="utf-8")
    with serving(exports["student"], folder, "--keys", keys, "--cors", "https://example.org") as running:
        yield running


def test_a_page_of_an_allowed_site_may_number_its_requests_and_reads_what_is_refused(guarded: Served) -> None:
    leave = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    leave["Access-Control-Request-Headers"] = "content-type,x-request-id"
    reply = guarded.client.options("/v1/predict", headers=leave)
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == "https://example.org"
    refused = guarded.client.post("/v1/predict", json={"texts": "good"}, headers={"Origin": "https://example.org"})
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://example.org"


def test_only_who_has_a_key_is_answered(guarded: Served) -> None:
    def ask(header: str | None) -> httpx.Response:
        headers = {"Authorization": header} if header is not None else {}
        return guarded.client.post("/v1/predict", json={"texts": "good"}, headers=headers)

    for key in ("first-long-key", "second-long-key"):
        assert ask(f"Bearer {key}").status_code == 200 and ask(f"bearer {key}").status_code == 200
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer first-long-ke",
        "Basic first-long-key",
        "first-long-key",
        "Bearer # ours",
    ):
        reply = ask(wrong)
        refused(reply, 401, "Authorization: Bearer KEY")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert guarded.get("/v1/tasks").status_code == guarded.get("/metrics").status_code == 401
    assert guarded.get("/v1/tasks", headers={"Authorization": "Bearer first-long-key"}).status_code == 200
    for path in ("/", "/page/docs.css", "/docs", "/openapi.json", "/healthz", "/readyz"):
        assert guarded.get(path).status_code == 200, path
    assert guarded.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["security"] == [{"key": []}]
    assert "long-key" not in guarded.log.read_text(encoding="utf-8")


def test_pages_of_a_named_site_may_ask_and_no_others(guarded: Served, server: Served) -> None:
    def preflight(server: Served, origin: str) -> httpx.Response:
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        return server.client.options("/v1/predict", headers=headers)

    allowed = preflight(guarded, "https://example.org")
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "https://example.org"
    assert "access-control-allow-origin" not in preflight(guarded, "https://elsewhere.org").headers
    refusal = guarded.get("/v1/tasks", headers={"Origin": "https://example.org"})
    assert refusal.status_code == 401 and refusal.headers["access-control-allow-origin"] == "https://example.org"
    assert "access-control-allow-origin" not in preflight(server, "https://example.org").headers, "off by default"
