"""The bench: models of all forms take turns, over the same texts, and what comes out can be trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds import FOLLOWS, MOOD, save_kind
from understill.bench import clock as clocks
from understill.bench import measure as measuring
from understill.bench.clock import Latency
from understill.bench.measure import HTTP, MODEL, TOKENS, Bench, Measurement, measure
from understill.bench.samples import COUNT, made_up
from understill.bench.subjects import Subject, open_subjects
from understill.cli import main
from understill.errors import UserError
from understill.events import Expected
from understill.export.huggingface import write_classifier
from understill.export.int8 import round_weights
from understill.export.onnx_graph import write_onnx
from understill.models.folder import load_model

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

FORMS = ("pipeline()", "torch", "ONNX float32", "ONNX int8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model in all forms, and one of another task."""
    root = tmp_path_factory.mktemp("bench")
    made = {form: root / name for form, name in zip(FORMS, ("hf", "model", "onnx", "int8"), strict=True)}
    folder = load_model(save_kind(made["torch"], "bert", (MOOD, FOLLOWS)))
    made["pipeline()"].mkdir()
    write_classifier(folder, MOOD, made["pipeline()"])
    for form in FORMS[2:]:
        made[form].mkdir()
        write_onnx(folder, folder.tasks, made[form])
    round_weights(made["ONNX int8"])
    pairs = load_model(save_kind(root / "pairs-model", "static", (FOLLOWS,)))
    made["pairs"] = root / "pairs"
    made["pairs"].mkdir()
    write_onnx(pairs, pairs.tasks, made["pairs"])
    return made


def test_a_folder_that_pipeline_cannot_ask_is_asked_by_us(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    folder = load_model(save_kind(tmp_path / "model", "bert", (MOOD,), pooling="mean"))
    write_classifier(folder, MOOD, tmp_path / "plain")
    ((subject,), _) = open_subjects([tmp_path / "plain"])
    assert subject.form == "torch" and subject.weights.is_file()
    subject.ask(["good"])
    subject.tokenise(["good"])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that take no time."""
    monkeypatch.setattr(measuring, "TURN", 0.0)
    monkeypatch.setattr(measuring, "SINGLES", 4)
    monkeypatch.setattr(measuring, "RUN", 2)


@pytest.mark.usefixtures("quick")
def test_all_forms_stand_side_by_side(folders: dict[str, Path]) -> None:
    subjects, task = open_subjects([folders[form] for form in FORMS])
    assert task == MOOD and [each.form for each in subjects] == list(FORMS)
    reported: list[Any] = []
    bench = measure(subjects, task, made_up(False)[:8], rounds=3, http=False, watch=reported.append)
    assert [each.form for each in bench.models] == list(FORMS)
    for each in bench.models:
        assert set(each.seconds) == {TOKENS, MODEL} and set(each.latency) == {MODEL}
        assert all(len(each.rates(part)) == 3 and min(each.rates(part)) > 0 for part in each.seconds)
        assert 0 < each.latency[MODEL].median <= each.latency[MODEL].p95
    assert bench.models[3].bytes < bench.models[2].bytes
    turns = [event.who for event in reported if "text to answer, round" in getattr(event, "what", "")]
    assert all(set(turns[first : first + 4]) == {str(folders[form]) for form in FORMS} for first in (0, 4, 8))
    told_of = json.loads(json.dumps(bench.to_json()))["models"][1]
    assert told_of["form"] == "torch"
    assert told_of["texts_per_second"][MODEL] == bench.models[1].rates(MODEL).tolist()
    assert told_of["milliseconds_per_text"][MODEL]["p95"] == pytest.approx(1000 * bench.models[1].latency[MODEL].p95)


class Clocked:
    """Something that is timed: it notes what it is asked, and on its clock takes a second for every eight texts."""

    def __init__(self, name: str) -> None:
        self.asked: list[list[Any]] = []
        self.subject = Subject(Path(name), "torch", Path(__file__), self.ask, self.ask)

    def ask(self, texts: Any) -> None:
        self.asked.append(list(texts))


def clock(ask: Any, texts: Any) -> float:
    """Stand in for the clock."""
    ask(texts)
    return len(texts) / 8


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    monkeypatch.setattr(measuring, "seconds_of", clock)
    monkeypatch.setattr(clocks, "seconds_of", clock)
    return Clocked("one")


@pytest.mark.parametrize("turn", [0.0, 1.5])
def test_a_rate_is_texts_by_seconds_however_often_they_are_answered_in_a_turn(
    clocked: Clocked, turn: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "TURN", turn)
    reported: list[Any] = []
    bench = measure([clocked.subject], MOOD, list("abcdefgh"), rounds=2, http=False, watch=reported.append)
    assert [bench.models[0].rates(part).tolist() for part in (TOKENS, MODEL)] == [[8.0, 8.0], [8.0, 8.0]]
    again = 2 if turn else 1
    whole = [asked for asked in clocked.asked if asked == list("abcdefgh")]
    assert len(whole) == 2 * (1 + 2 * again), "in both parts once to warm up, then in each round"
    (expected,) = [event.seconds for event in reported if isinstance(event, Expected)]
    single = (measuring.SINGLES + measuring.SINGLES // measuring.RUN) / 8
    assert expected == pytest.approx(2 * 2 * again + single)
    turns = [event.turn for event in reported[reported.index(Expected(expected)) + 1 :]]
    assert turns == list(range(reported[-1].total)), "and then the last turn is over"


def test_single_texts_are_asked_one_by_one(clocked: Clocked) -> None:
    bench = measure([clocked.subject], MOOD, list("abcdefgh"), rounds=1, http=False)
    latency = bench.models[0].latency[MODEL]
    assert latency.median == latency.p95 == latency.p99 == 1 / 8
    single = [asked for asked in clocked.asked if len(asked) == 1]
    assert len(single) >= measuring.SINGLES
    assert len({text for (text,) in single}) > 4, "and not always the same"


def test_a_server_is_asked_about_all_texts_some_in_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from understill.bench.server import ROWS, Client

    asked: list[list[Any]] = []
    monkeypatch.setattr(Client, "_post", lambda self, texts: asked.append(list(texts)))
    texts = [str(number) for number in range(3 * ROWS + 1)]
    with ThreadPoolExecutor(2) as pool:
        client = Client(Path("model"), MOOD, 1, pool)
        client.ask(texts)
        assert sorted(map(len, asked)) == [1, ROWS, ROWS, ROWS]
        assert sorted(text for part in asked for text in part) == sorted(texts)
        asked.clear()
        client.ask(texts[:1])
        assert asked == [["0"]]


def test_a_connection_that_the_server_has_closed_meanwhile_is_made_anew() -> None:
    from concurrent.futures import ThreadPoolExecutor
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    from understill.bench.server import CONNECTIONS, Client

    asked: list[int] = []

    class Forgetful(BaseHTTPRequestHandler):
        protocol_version = (
            "HTTP/1.1"  # so that the client keeps the line, of which the server does not say that it ends
        )

        def do_POST(self) -> None:
            asked.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Forgetful) as other, ThreadPoolExecutor(1) as pool:
        Thread(target=other.serve_forever, daemon=True).start()
        client = Client(Path("model"), MOOD, other.server_port, pool)
        for _ in range(2 * CONNECTIONS):
            client.ask(["good"])
        other.shutdown()
    assert len(asked) == 2 * CONNECTIONS


def test_pipeline_takes_thirty_two_texts_at_once(folders: dict[str, Path]) -> None:
    from understill.bench.subjects import Pipeline

    pipeline = Pipeline(folders["pipeline()"])
    sizes: list[int] = []
    pipeline.answer.model.register_forward_pre_hook(
        lambda module, given, named: sizes.append(len(named["input_ids"])), with_kwargs=True
    )
    pipeline.ask(made_up(False)[:70])
    assert sizes == [32, 32, 6]


def test_a_table_has_room_for_every_number_and_names_what_a_server_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from understill.terminal import outputs

    slow, fast = Latency(0.25, 1.25, 2.0), Latency(0.001, 0.002, 0.003)
    forms = {"hf/mood": ("pipeline()", slow), "onnx": ("ONNX float32", fast), "int8": ("ONNX int8", fast)}
    rates = {MODEL: (12345.6, 23456.7), HTTP: (1234.5, 2345.6), TOKENS: (99999.0, 99999.0)}
    parts = {part: tuple(512 / rate for rate in values) for part, values in rates.items()}
    models = [
        Measurement(f"runs/a-long-name/export/{name}", 512, parts, {MODEL: latency, HTTP: latency}, form, 90_912_345)
        for name, (form, latency) in forms.items()
    ]
    outputs.show_bench(Bench("mood", 512, 20.0, 1, {"cores": 2}, tuple(models)))
    output = capsys.readouterr().out
    assert "512 texts of mood, 1 round, 2 cores" in output
    rows = [line for line in output.splitlines() if " to " in line and "texts" not in line and "low" not in line]
    assert max(map(len, output.splitlines())) <= 120 and "…" not in output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in rows]
    assert [row[:2] for row in cells] == [
        *(["hf/mood", "pipeline()"], ["onnx", "ONNX float32"], ["int8", "ONNX int8"]),
        *(["hf/mood", "torch"], ["onnx", "ONNX float32"], ["int8", "ONNX int8"]),
    ]
    assert cells[0][2:] == ["90.9", "250.00", "1250.00", "17,901", "12,346 to 23,457", "1", "1 to 1"]


@pytest.mark.usefixtures("quick")
def test_models_that_share_no_task_with_one_text_read_pairs(folders: dict[str, Path]) -> None:
    subjects, task = open_subjects([folders["ONNX float32"], folders["pairs"]])
    assert task == FOLLOWS
    assert len(measure(subjects, task, made_up(True)[:4], rounds=1, http=False).models) == 2


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=9))
def test_ratios_are_those_of_the_same_round(rounds: list[tuple[float, float]]) -> None:
    one, other = (Measurement("", 1, {MODEL: tuple(values)}, {}, "", 0) for values in zip(*rounds, strict=True))
    times = one.times_as_fast(other, MODEL)
    assert times.low <= times.value <= times.high
    ratios = [theirs / mine for mine, theirs in rounds]  # of seconds
    assert (times.low, times.high) == pytest.approx((min(ratios), max(ratios)))
    assert one.times_as_fast(one, MODEL).value == 1


def test_torch_is_not_imported_for_graphs(folders: dict[str, Path], tmp_path: Path) -> None:
    program = """
import sys
from understill.bench import measure as measuring
measuring.TURN, measuring.SINGLES = 0.0, 20
from understill.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code
print(*[name for name in ("torch", "transformers", "pyarrow", "scipy") if name in sys.modules], "imported")
"""
    asked = ["bench", *(str(folders[form]) for form in FORMS[2:]), "--rounds", "1", "--no-http"]
    asked += ["--json", str(tmp_path / "bench.json")]
    done = subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == " imported".strip(), done.stdout + done.stderr
    result = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert [each["form"] for each in result["models"]] == list(FORMS[2:])
    assert result["texts"] == COUNT and result["machine"]["cores"] >= 1 and "torch_threads" not in result["machine"]


# The verb -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "more", "output"),
    [
        (["ONNX int8"], ["--task", "mod"], 'no task "mod"; did you mean "mood"?'),
        (["ONNX int8", "pairs"], ["--task", "mood"], "not all models have the task mood"),
        (["pipeline()", "pairs"], [], "the models have no task in common"),
        (["ONNX int8"], ["--texts", "nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["ONNX int8"], ["--json", "nowhere/bench.json"], "there is no folder nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(
    folders: dict[str, Path], models: list[str], more: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *(str(folders[name]) for name in models), *more])
    reported = capsys.readouterr().err
    assert stop.value.code == 2
    assert output in reported and "Traceback" not in reported


@pytest.mark.usefixtures("quick")
def test_servers_are_asked_too_and_gone_afterwards(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("starlette", "uvicorn", "prometheus_client"):
        if find_spec(library) is None:
            pytest.skip(f"needs {library}")
    from understill.bench import server

    started = []
    real = subprocess.Popen

    def start(*given: Any, **settings: Any) -> Any:
        started.append(real(*given, **settings))
        return started[-1]

    monkeypatch.setattr(server.subprocess, "Popen", start)
    with pytest.raises(SystemExit) as stop:
        main(["bench", str(folders["ONNX float32"]), str(folders["ONNX int8"]), "--rounds", "1"])
    output = capsys.readouterr().out
    assert not stop.value.code
    assert "text to answer: 512 texts of mood" in output and "HTTP: 512 texts of mood" in output
    assert [each.returncode for each in started] == [0, 0], "they ended as servers end"


@pytest.mark.usefixtures("quick")
def test_a_server_that_does_not_start_is_one_sentence(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, task = open_subjects([folders["ONNX int8"]])
    monkeypatch.setattr("understill.bench.server.sys.executable", "/bin/false")
    with pytest.raises(UserError, match=r"int8 cannot be served: it said nothing; --no-http leaves servers out"):
        measure(subjects, task, ["good"], rounds=1)
