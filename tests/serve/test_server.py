"""The server says what the model says, to one or to many at once, with its teacher beside it."""

from __future__ import annotations

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kinds import LENGTHS, SECOND, TASKS, TEXTS
from serving import Served, serving
from understill.atomic import seal
from understill.inference.loading import load
from understill.inference.predictor import Predictor


@pytest.fixture(scope="module")
def model(exports: dict[str, Path]) -> Predictor:
    return load(exports["student"])


def expected(model: Predictor, texts: list[str], pairs: list[str] | None = None, tasks: list[str] | None = None) -> Any:
    """What a server should answer."""
    answers_by_task = model.predict(texts, pairs, tasks)
    return [{name: plain(answers[row]) for name, answers in answers_by_task.items()} for row in range(len(texts))]


def plain(answer: Any) -> dict[str, Any]:
    if answer.label is None:
        return {"score": pytest.approx(answer.score, abs=1e-4)}
    return {"label": answer.label, "probabilities": pytest.approx(dict(answer.probabilities), abs=1e-4)}


def test_texts_get_the_answers_that_the_model_gives(server: Served, model: Predictor) -> None:
    reply = server.ask(texts=TEXTS)
    assert reply.status_code == 200 and reply.headers["content-type"] == "application/json"
    assert list(reply.json()) == ["model", "answers", "milliseconds"]
    assert reply.json()["answers"] == expected(model, TEXTS)
    assert reply.json()["model"] == "bert" and reply.json()["milliseconds"] > 0


def test_pairs_get_the_answers_that_the_model_gives(server: Served, model: Predictor) -> None:
    assert server.ask(texts=TEXTS, pairs=SECOND).json()["answers"] == expected(model, TEXTS, SECOND)


def test_one_text_counts_as_a_list_of_one(server: Served, model: Predictor) -> None:
    assert server.ask(texts="good").json()["answers"] == expected(model, ["good"])
    assert server.ask(texts="good", pairs="bad").json()["answers"] == expected(model, ["good"], ["bad"])


@pytest.mark.parametrize("tasks", [["mood"], ["stars", "topic"], ["topic", "topic"]])
def test_some_tasks_alone_can_be_asked(server: Served, model: Predictor, tasks: list[str]) -> None:
    answers = server.ask(texts=TEXTS, tasks=tasks).json()["answers"]
    assert answers == expected(model, TEXTS, tasks=tasks)
    assert list(answers[0]) == list(dict.fromkeys(tasks))


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_top_k_gives_the_likeliest_classes_and_the_likeliest_first(server: Served, count: int) -> None:
    whole, some = (server.ask(texts=TEXTS, teacher=True, **more).json() for more in ({}, {"top_k": count}))
    for all_of, few in ((whole, some), (whole["teacher"], some["teacher"])):
        for every, row in zip(all_of["answers"], few["answers"], strict=True):
            assert row["stars"] == pytest.approx(every["stars"], abs=1e-5)
            for task in ("mood", "topic"):
                best = sorted(every[task]["probabilities"].items(), key=lambda item: -item[1])[:count]
                assert row[task]["label"] == next(iter(row[task]["probabilities"])) == every[task]["label"]
                assert list(row[task]["probabilities"]) == [label for label, _ in best]
                assert list(row[task]["probabilities"].values()) == pytest.approx([p for _, p in best], abs=1e-5)
    assert some["differ"] == whole["differ"]


def test_the_servers_top_k_counts_where_a_question_has_none(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path, "--top-k", 1) as running:
        assert len(running.ask(texts="good").json()["answers"][0]["topic"]["probabilities"]) == 1
        assert len(running.ask(texts="good", top_k=2).json()["answers"][0]["topic"]["probabilities"]) == 2
        form = running.get("/openapi.json").json()["components"]["schemas"]["Question"]
        assert form["properties"]["top_k"]["default"] == 1


def test_no_texts_get_no_answers(server: Served) -> None:
    assert server.ask(texts=[]).json()["answers"] == []
    both = server.ask(texts=[], teacher=True).json()
    assert (both["teacher"]["answers"], both["differ"]) == ([], [])


def test_many_at_once_get_each_their_own(server: Served, model: Predictor) -> None:
    draw = random.Random(0)
    asked: list[dict[str, Any]] = []
    for _ in range(120):
        texts = draw.choices(TEXTS, k=draw.choice([1, 1, 1, 3, 20]))
        pairs = draw.choices(SECOND, k=len(texts)) if draw.random() < 0.3 else None
        tasks = None if draw.random() < 0.5 else [draw.choice([t.name for t in TASKS if t.pair == bool(pairs)])]
        asked.append({"texts": texts, "pairs": pairs, "tasks": tasks})
    with ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda question: server.ask(**question), asked))
    for question, reply in zip(asked, replies, strict=True):
        assert reply.status_code == 200, reply.text
        assert reply.json()["answers"] == expected(model, **question)


def test_the_tasks_are_listed_with_all_that_is_needed_to_ask(server: Served) -> None:
    facts = server.get("/v1/tasks").json()
    assert (facts["model"], facts["teacher"]) == ("bert", "static")
    assert facts["limits"] == {"rows": 50, "characters": 2000, "bytes": 60_000}
    assert [each["name"] for each in facts["tasks"]] == [task.name for task in TASKS]
    by_name = {each.pop("name"): each for each in facts["tasks"]}
    assert by_name["mood"] == {
        "kind": "classification",
        "pair": False,
        "labels": ["calm", "upset"],
        "range": None,
        "tokens": 32,
    }
    assert by_name["alike"] == {"kind": "regression", "pair": True, "labels": None, "range": [-1, 1], "tokens": 32}
    assert by_name["best"] == {"kind": "ranking", "pair": True, "labels": None, "range": None, "tokens": 32}
    assert by_name["topic"]["tokens"] == LENGTHS["topic"]


# The teacher ----------------------------------------------------------------------------------------------------------


def test_the_teacher_answers_beside_the_model_and_differences_are_named(
    server: Served, model: Predictor, exports: dict[str, Path]
) -> None:
    teacher = load(exports["teacher"])
    differences = set()
    for pairs in (None, SECOND):
        reply = server.ask(texts=TEXTS, pairs=pairs, teacher=True).json()
        assert list(reply) == ["model", "answers", "milliseconds", "teacher", "differ"]
        assert reply["answers"] == expected(model, TEXTS, pairs)
        assert reply["teacher"]["answers"] == expected(teacher, TEXTS, pairs) and reply["teacher"]["model"] == "static"
        for one, other, differ in zip(reply["answers"], reply["teacher"]["answers"], reply["differ"], strict=True):
            want = []
            for task in TASKS:
                if (
                    task.name in one
                    and task.kind.name == "classification"
                    and one[task.name]["label"] != other[task.name]["label"]
                ):
                    want.append(task.name)
                if task.name in one and task.range:
                    low, high = task.range
                    if abs(one[task.name]["score"] - other[task.name]["score"]) > (high - low) / 10:
                        want.append(task.name)
            assert differ == want
            differences |= set(want)
    assert {"topic", "alike"} <= differences, "labels and scores differ somewhere"


def test_a_server_without_a_teacher_says_so(exports: dict[str, Path], tmp_path: Path) -> None:
    with serving(exports["student"], tmp_path) as plain_server:
        reply = plain_server.ask(texts="good", teacher=True)
        assert reply.status_code == 422 and "--teacher MODEL" in reply.json()["error"]
        assert plain_server.get("/v1/tasks").json()["teacher"] is None


# What goes wrong in the model -----------------------------------------------------------------------------------------


def test_a_row_on_which_the_model_fails_fails_alone_and_its_text_is_not_logged(
    exports: dict[str, Path], model: Predictor, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(exports["student"], broken)
    facts = json.loads((broken / "understill.json").read_text(encoding="utf-8"))
    # More tokens than the encoder has positions for, so that the graph itself fails.
    facts["max_lengths"] = {name: 500 for name in facts["max_lengths"]}
    (broken / "understill.json").write_text(json.dumps(facts), encoding="utf-8")
    seal(broken)
    long = "the secret film " * 100
    with serving(broken, tmp_path) as server, ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda n: server.ask(texts=long if n % 4 == 0 else "good"), range(24)))
        assert [reply.status_code for reply in replies] == [500 if n % 4 == 0 else 200 for n in range(24)]
        assert "the server failed; its log tells more of request" in replies[0].json()["error"]
        assert replies[1].json()["answers"] == expected(model, ["good"])
        numbers = dict(line.rsplit(" ", 1) for line in server.get("/metrics").text.splitlines() if line[0] != "#")
        assert float(numbers['understill_failed_passes_total{part="model"}']) >= 1
        assert float(numbers['understill_rows_total{part="model"}']) == 18, "rows that failed are not counted"
        assert float(numbers['understill_waiting_rows{part="model"}']) == 0
        failed = [line for line in server.lines() if line["event"] == "a pass failed"]
        assert failed and failed[0]["part"] == "model" and "onnx.py" in failed[0]["at"]
        log = server.log.read_text(encoding="utf-8")
        assert "secret" not in log and "Traceback" not in log


# Health, numbers, log -------------------------------------------------------------------------------------------------


def test_probes_and_numbers(server: Served) -> None:
    assert server.get("/healthz").json() == {"status": "alive"}
    assert server.get("/readyz").json() == {"status": "ready"}

    def count() -> float:
        lines = server.get("/metrics").text.splitlines()
        start = 'understill_rows_total{part="model"} '
        return next((float(line.removeprefix(start)) for line in lines if line.startswith(start)), 0.0)

    before = count()
    server.ask(texts=["good"] * 7)
    assert count() == before + 7
    text = server.get("/metrics").text
    for name in ("understill_requests_total", "understill_request_seconds_bucket", "understill_pass_rows_bucket"):
        assert name in text
    assert 'route="/v1/predict",status="200"' in text and "process_resident_memory_bytes" in text


def test_what_can_be_got_can_be_asked_for_its_head(server: Served) -> None:
    for path in ("/", "/healthz", "/readyz", "/metrics", "/v1/tasks", "/docs", "/openapi.json", "/page/docs.css"):
        head = server.client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
    assert server.client.head("/v1/predict").status_code == 405


def test_a_request_is_a_line_of_the_log_and_its_texts_are_not(server: Served) -> None:
    reply = server.client.post(
        "/v1/predict?word=hidden",
        json={"texts": ["a hidden word", "another"]},
        headers={"X-Request-Id": "mine-1"},
    )
    assert reply.headers["x-request-id"] == "mine-1"
    server.get("/no/hidden/place")
    server.ask(texts="x", hidden="a")
    line = next(line for line in server.lines() if line.get("id") == "mine-1")
    assert set(line) == {"time", "level", "event", "id", "method", "route", "status", "rows", "milliseconds"}
    assert (line["route"], line["status"], line["rows"], line["method"]) == ("/v1/predict", 200, 2, "POST")
    assert "hidden" not in server.log.read_text(encoding="utf-8")


def test_a_number_that_is_none_is_replaced(server: Served) -> None:
    for bad in ("a b", "x" * 100, "ü", '"'):
        number = server.get("/healthz", headers={"X-Request-Id": bad.encode()}).headers["x-request-id"]
        assert number != bad and len(number) < 40


# The page and the manual ----------------------------------------------------------------------------------------------


def test_the_page_and_its_files_come_with_headers_that_keep_them_at_home(server: Served) -> None:
    page = server.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert server.get("/page/docs.css").headers["content-type"].startswith("text/css")
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/nothing.js", "/page/"):
        refused = server.get(path)
        assert refused.status_code == 404 and "error" in refused.json(), path


def test_the_manual_needs_nothing_from_elsewhere_and_names_every_route(server: Served) -> None:
    manual = server.get("/docs").text
    assert f"curl {server.url}/v1/predict -H" in manual, "it can be tried as it stands"
    assert "//" not in manual.replace("<!doctype", "").replace(server.url, ""), "no address of another host"
    schema = server.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/v1/predict", "/v1/tasks", "/healthz", "/readyz", "/metrics"}
    for path in schema["paths"]:
        assert f"<code>{'POST' if path == '/v1/predict' else 'GET'} {path}</code>" in manual
    assert set(schema["paths"]["/v1/predict"]["post"]["responses"]) == set(
        ["200", "401", "408", "413", "421", "422", "431", "500", "503"]
    )
    question = schema["components"]["schemas"]["Question"]
    assert len(question["examples"]) == 3
    assert question["properties"]["texts"]["anyOf"][1]["maxItems"] == 50, "this server's own limit"
    for example in question["examples"]:
        assert server.ask(**(example | {"teacher": False})).status_code == 200, example
