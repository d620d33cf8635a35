"""The speed benchmarks run in a size of seconds, print their tables and write what they promise."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from understill.tasks import KINDS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KEYS = {"command", "device", "versions", "date", "settings", "rows"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Path) -> Any:
    """A function that runs a benchmark on a tiny encoder and returns what it wrote."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name: str, *options: object) -> dict[str, Any]:
        out = tmp_path / "figures.json"
        fixed = ["--small", "--device", "cpu", "--rounds", 2, "--encoder", tiny, "--out", out]
        importlib.import_module(name).main([str(option) for option in (*fixed, *options)])
        figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        assert set(figures) == KEYS
        return figures

    return run


def test_train_speed_sets_ours_beside_trainer(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench("train_speed", "--steps", 2, "--layers", 1)["rows"]
    by_place = {(row["setting"], row["variant"]): row for row in rows}
    assert {variant for setting, variant in by_place if setting == "mood"} == {
        "ours, plain",
        "Trainer",
        "Trainer, best flags",
    }
    assert by_place["mood", "Trainer"]["ratio"] == 1 and by_place["mood", "Trainer"]["rows"] == 64
    assert by_place["four tasks", "ours, plain"]["ratio"] is None
    assert all(row["rows_per_second"] > 0 and len(row["seconds"]) == 2 for row in rows)
    assert "× Trainer" in capsys.readouterr().out


def test_distil_speed_counts_the_labelling(bench: Any) -> None:
    rows = {row["variant"]: row for row in bench("distil_speed", "--rows", 64, "--layers", 1)["rows"]}
    assert {"ours, plain", "a live teacher", "Trainer, live teacher"} <= set(rows)
    ours = rows["ours, plain"]
    assert ours["seconds_once"] > 0 and rows["a live teacher"]["seconds_once"] == 0
    assert math.isclose(ours["seconds"]["6"], ours["seconds_once"] + 6 * ours["seconds_epoch"])
    assert rows["a live teacher"]["ratio"] == {"1": 1, "3": 1, "6": 1}


def test_label_speed_measures_from_text_too(bench: Any) -> None:
    rows = {row["variant"]: row for row in bench("label_speed", "--rows", 64)["rows"]}
    halves = ["ours, forward alone", "ours, tokenising alone"]
    assert list(rows) == [*halves, "ours, from text", "pipeline", "pipeline, best"]
    assert rows["pipeline"]["ratio"] == 1 and rows["ours, from text"]["rows"] == 64


def test_scaling_measures_a_point(bench: Any, tiny: Path, tmp_path: Path) -> None:
    scaling = importlib.import_module("scaling")
    size = {"rows": 300, "length": 24, "tasks": 4, "teachers": 2}
    point = {**size, "encoder": str(tiny), "device": "cpu", "steps": 2, "batch": 8}
    scaling.generate(point, tmp_path)
    result = scaling.measure(point, tmp_path)
    assert result["tokens"] > 300 * 12 and result["step"] > 0
    assert list(result["peaks_mib"]) == ["start", "tokenise", "plan", "label", "train"]
    assert math.isclose(result["seconds"], sum(result[stage] for stage in scaling.STAGES))


@pytest.mark.slow
def test_scaling_takes_every_axis(bench: Any) -> None:
    figures = bench("scaling", "--rows", 2000, "--steps", 2)
    rows = figures["rows"]
    assert [row["axis"] for row in rows] == ["rows"] * 3 + [
        name for name in ("length", "tasks", "teachers") for _ in "12"
    ]
    assert [row["value"] for row in rows[:3]] == [20, 200, 2000]
    assert rows[4]["tokens"] > 3 * rows[3]["tokens"]
    assert set(figures["settings"]["exponents"]) == {"seconds", "tokenise", "plan", "label", "step"}


def test_variants_take_turns(bench: Any) -> None:
    shared = importlib.import_module("_side_by_side")
    order: list[str] = []
    seconds = iter([9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    def variant(name: str) -> Any:
        def run() -> tuple[int, float]:
            order.append(name)
            return 10, next(seconds)

        return shared.Variant(name, run)

    measured = shared.take_turns([variant("a"), variant("b")], 3)
    assert order == ["a", "b"] * 4  # the first turns are a warm-up
    assert measured["a"].seconds == [1, 3, 5] and measured["a"].rate == 10 / 3 and measured["b"].median == 4
    assert measured["b"].preparation == 5


def test_significance_times_every_metric_and_counts_what_is_found_by_chance(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    significance = importlib.import_module("significance")
    significance.main(["--time", "--small", "--resamples", "20"])
    out = capsys.readouterr().out
    assert all(metric in out for kind in ("classification", "regression") for metric in KINDS[kind].metrics)
    significance.main(["--trials", "4", "--seeds", "2", "--rows", "60"])
    out = capsys.readouterr().out
    assert "from two seeds on: coverage" in out and sum(line.startswith("mean ") for line in out.splitlines()) == 2
    shares = [float(line.split()[5]) for line in out.splitlines() if line.startswith("accuracy")]
    assert len(shares) == 2 and all(0 <= share <= 100 for share in shares)


def test_the_tables_of_simulated_tests_on_the_page_are_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    docs = BENCHMARKS.parent / "docs"
    importlib.import_module("significance").main(["--tables", str(docs / "results" / "significance.json")])
    printed = capsys.readouterr().out
    assert printed.count("\n|") > 10
    assert printed in (docs / "performance.md").read_text(encoding="utf-8")


def test_efficiency_sets_students_beside_a_large_encoder(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    figures = bench("efficiency", "--shape", "2x32x2", "--rows", 40, "--count", 4, "--singles", 2, "--batch", 8)
    rows = {row["name"]: row for row in figures["rows"]}
    assert list(rows) == ["BERT 2×32×2", "tiny-bert", "BiLSTM 150/200", "BiLSTM 300/400", "static"]
    for row in rows.values():
        count = 4 if "bert" in row["name"].lower() else figures["settings"]["sentences"]
        assert row["sentences"] == count and len(row["seconds"]["model"]) == 2
        assert row["times_as_fast"]["model"]["low"] <= row["times_as_fast"]["model"]["value"]
    assert rows["BERT 2×32×2"]["times_as_fast"]["model"]["value"] == 1
    own = rows["BiLSTM 150/200"]
    assert own["parameters"] - own["embeddings"] == 2 * 600 * (300 + 150 + 2) + 300 * 200 + 200 + 2 * 200 + 2
    assert "as in the paper" in capsys.readouterr().out


def test_efficiency_needs_no_pretrained_weights(bench: Any, tmp_path: Path) -> None:
    efficiency = importlib.import_module("efficiency")
    tokenizer = efficiency.pieces_of(str(tmp_path / "nowhere"), ["the film was good", "the film was long"])
    assert tokenizer.convert_ids_to_tokens(tokenizer("the film")["input_ids"]) == ["[CLS]", "the", "film", "[SEP]"]
    assert efficiency.bert((2, 32, 2), 100).encoder.width == 32


def test_the_report_of_a_large_dev_set_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("report")
    benchmark.report(benchmark.make_run(tmp_path, None, 400))
    reported = capsys.readouterr().out
    assert "of one core), " in reported and "peak memory: " in reported


@pytest.mark.slow
def test_the_server_is_pressed_and_every_answer_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette", reason="needs starlette")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    out = tmp_path / "figures.json"
    importlib.import_module("load").main(["--small", "--parts", "load,end,peers", "--out", str(out)])
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert set(figures) == KEYS
    load, kept, anew, ours = figures["rows"]
    assert load["requests"] == load["answers_checked"] > 20 and load["statuses"] == {"200": load["requests"]}
    assert (load["answers_apart"], load["labels_apart"], load["errors"]) == (0, 0, {})
    assert len(load["memory_mib"]) > 5 and load["milliseconds"]["p50"] <= load["milliseconds"]["p99"]
    for end in (kept, anew):
        assert (end["lost"], end["errors"], end["exit_codes"]) == (0, {}, {"0": 1})
        assert sum(end["answered"]) > 20
    assert (ours["server"], ours["times_ours"], ours["answers_apart"]) == ("understill", [1.0], 0)
    assert ours["refusals"]["good_among_bad"] == {"200": 56} and ours["refusals"]["eight_mib"] == "413"
    printed = capsys.readouterr().out
    assert "SIGTERM under load" in printed and "litserve is left out" in printed and "mosec is left out" in printed


@pytest.mark.slow
def test_a_bystander_is_answered_while_others_attack_and_workers_die(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette", reason="needs starlette")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    out, attacks = tmp_path / "figures.json", "requests,connections,rebinding"
    options = ["--small", "--parts", "hostile,faults", "--attacks", attacks, "--out", str(out)]
    importlib.import_module("load").main(options)
    *hostile, faults = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["attack"] for row in hostile] == attacks.split(",")
    for row in hostile:
        assert set(row["bystander"]) == {"200"} and row["answers_apart"] == 0 and row["attackers"]
    assert faults["answers_apart"] == 0 and set(faults["lost"]) <= {"SIGKILL", "SIGSTOP"}
    assert faults["seconds_to_end_with_a_stopped_worker"] < 1 + 30 + 5 and faults["exit_code"] == 0
    assert "attacked" in capsys.readouterr().out


def test_busy_sets_threads_that_sleep_beside_those_that_spin(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench("busy", "--seconds", 0.1, "--layers", 1)["rows"]
    assert [row["variant"] for row in rows] == ["spin", "soon sleep", "sleep at once", "one thread"]
    for row in rows:
        assert len(row["rounds"]) == 2 and all(rate > 0 for pair in row["rounds"] for rate in pair)
    assert "beside 1 busy" in capsys.readouterr().out


@pytest.mark.slow
def test_llm_compares_prompts_and_distils_a_stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    importlib.import_module("llm").main(["--small", "--threads", "1", "--out", str(tmp_path / "llm.json")])
    figures = json.loads((tmp_path / "llm.json").read_text(encoding="utf-8"))
    ways = {(row["prompt"], row["calibrated"]) for row in figures["prompts"]}
    assert ways == {("labels", False), ("labels", True), ("letters", False), ("letters", True)}
    assert [row["student"] for row in figures["students"]] == ["minilm", "static"]
    assert figures["students"][0]["cost"][0][:2] == ["task", "model"]


def test_choose_rows_counts_labels_for_every_rule_and_seed(bench: Any) -> None:
    rows = bench("choose_rows", "--seeds", 2)["rows"]
    assert [row["rule"] for row in rows] == ["random", "uncertainty", "diverse"]
    assert all(len(row["labels"]) == 2 and row["pool"] == 80 for row in rows)
    assert all(count is None or (count % 20 == 0 and count <= 80) for row in rows for count in row["labels"])
