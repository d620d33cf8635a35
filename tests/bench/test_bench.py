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
from understill.bench import measure as measuring
from understill.bench.measure import MODEL, TOKENS, Measured, measure
from understill.bench.subjects import open_subjects
from understill.bench.texts import COUNT, made_up, read_texts
from understill.cli import main
from understill.errors import UserError
from understill.models.folder import load_model
from understill.ship.huggingface import write_classifier
from understill.ship.int8 import round_weights
from understill.ship.onnx import write_onnx

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
    told: list[Any] = []
    bench = measure(subjects, task, made_up(False)[:8], rounds=3, http=False, watch=told.append)
    assert [each.form for each in bench.models] == list(FORMS)
    for each in bench.models:
        assert set(each.rates) == {TOKENS, MODEL} and set(each.latency) == {MODEL}
        assert all(len(rates) == 3 and min(rates) > 0 for rates in each.rates.values())
        assert 0 < each.latency[MODEL].median <= each.latency[MODEL].p95
    assert bench.models[3].bytes < bench.models[2].bytes
    turns = [event.who for event in told if "text to answer, round" in event.what]
    assert all(set(turns[first : first + 4]) == {str(folders[form]) for form in FORMS} for first in (0, 4, 8))
    assert json.loads(json.dumps(bench.to_json()))["models"][1]["form"] == "torch"


@pytest.mark.usefixtures("quick")
def test_models_that_share_no_task_with_one_text_read_pairs(folders: dict[str, Path]) -> None:
    subjects, task = open_subjects([folders["ONNX float32"], folders["pairs"]])
    assert task == FOLLOWS
    assert len(measure(subjects, task, made_up(True)[:4], rounds=1, http=False).models) == 2


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=9))
def test_ratios_are_those_of_the_same_round(rounds: list[tuple[float, float]]) -> None:
    one, other = (Measured("", "", 0, {MODEL: tuple(values)}, {}) for values in zip(*rounds, strict=True))
    times = one.times(other, MODEL)
    assert times.low <= times.middle <= times.high
    assert {times.low, times.high} <= {mine / theirs for mine, theirs in rounds}
    assert one.times(one, MODEL).middle == 1


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
    found = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert [each["form"] for each in found["models"]] == list(FORMS[2:])
    assert found["texts"] == COUNT and found["machine"]["cores"] >= 1 and "torch_threads" not in found["machine"]


# Texts ----------------------------------------------------------------------------------------------------------------


def test_made_up_texts_are_always_the_same_and_of_many_lengths() -> None:
    texts = made_up(False)
    assert texts == made_up(False) and len(texts) == COUNT
    lengths = {len(str(text).split()) for text in texts}
    assert len(lengths) > 30
    assert all(isinstance(text, tuple) and len(text) == 2 for text in made_up(True))


def test_a_file_has_a_text_to_a_line(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("good\n\nnot\tbad\n", encoding="utf-8")
    assert read_texts(file, pair=False) == ["good", "not\tbad"]
    file.write_text("good\tbad\nnot\tbad\n", encoding="utf-8")
    assert read_texts(file, pair=True) == [("good", "bad"), ("not", "bad")]


@pytest.mark.parametrize(
    ("content", "pair", "said"),
    [
        (b"", False, "no text in it"),
        (b"\xff\xfe\x00", False, "no text in UTF-8"),
        (b"good\tbad\ngood\n", True, "text 2 is no pair → put one tab"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes, pair: bool, said: str) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_texts(tmp_path / "texts.txt", pair)


# The verb -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "more", "said"),
    [
        (["ONNX int8"], ["--task", "mod"], 'no task "mod"; did you mean "mood"?'),
        (["ONNX int8", "pairs"], ["--task", "mood"], "not all models have the task mood"),
        (["pipeline()", "pairs"], [], "the models have no task in common"),
        (["ONNX int8"], ["--texts", "nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["ONNX int8"], ["--json", "nowhere/bench.json"], "there is no folder nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(
    folders: dict[str, Path], models: list[str], more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *(str(folders[name]) for name in models), *more])
    told = capsys.readouterr().err
    assert stop.value.code == 2
    assert said in told and "Traceback" not in told


@pytest.mark.usefixtures("quick")
def test_servers_are_asked_too_and_gone_afterwards(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("fastapi", "uvicorn", "prometheus_client"):
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
    said = capsys.readouterr().out
    assert not stop.value.code
    assert "text to answer: 512 texts of mood" in said and "HTTP: 512 texts of mood" in said
    assert [each.returncode for each in started] == [0, 0], "they ended as servers end"


@pytest.mark.usefixtures("quick")
def test_a_server_that_does_not_start_is_one_sentence(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, task = open_subjects([folders["ONNX int8"]])
    monkeypatch.setattr("understill.bench.server.sys.executable", "/bin/false")
    with pytest.raises(UserError, match=r"int8 cannot be served: it said nothing; --no-http leaves servers out"):
        measure(subjects, task, ["good"], rounds=1)
