"""The benchmark of first models: fair draws, a test set apart, results kept, means over the same tasks."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MODULES = ("first_run", "_battery", "_learners", "_first_tables")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, its battery and its methods."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return argparse.Namespace(**{name.strip("_"): importlib.import_module(name) for name in MODULES})


def task(modules: Any, kind: str = "classes", metric: str = "accuracy", pair: bool = False, **counts: int) -> Any:
    rows = [(f"{label} {number}", label) for label, count in counts.items() for number in range(count)]
    meta = {"kind": kind, "pair": pair, "metric": metric}
    return modules.battery.Task("t", meta, rows, rows[:5])


def test_a_draw_keeps_the_shares_of_the_classes(modules: Any) -> None:
    rows = modules.learners.rows_of(task(modules, a=600, b=300, c=100), "100", 0)
    counts = Counter(row[-1] for row in rows)
    assert len(rows) == 100 and abs(counts["a"] - 60) <= 1 and abs(counts["b"] - 30) <= 1 and abs(counts["c"] - 10) <= 1


def test_draws_differ_and_come_again(modules: Any) -> None:
    pool = task(modules, a=300, b=300)
    first, again, other = (modules.learners.rows_of(pool, "100", draw) for draw in (0, 0, 1))
    assert first == again and set(first) != set(other)


def test_small_sizes_are_rows_a_class(modules: Any) -> None:
    rows = modules.learners.rows_of(task(modules, a=50, b=20, c=3), "8", 0)
    assert Counter(row[-1] for row in rows) == {"a": 8, "b": 8, "c": 3}
    assert len(modules.learners.rows_of(task(modules, kind="score", a=100), "8", 0)) == 48


def test_a_size_that_the_pool_does_not_have_is_left_out(modules: Any) -> None:
    assert modules.learners.rows_of(task(modules, a=60, b=60), "500", 0) is None
    assert len(modules.learners.rows_of(task(modules, a=60, b=60), "all", 0)) == 120


@pytest.mark.parametrize(
    "metric, answers, gold, expected",
    [
        ("accuracy", ["a", "b", "b", "b"], ["a", "b", "b", "a"], 75),
        ("matthews", ["a", "a", "b", "b"], ["a", "a", "b", "b"], 100),
        ("correlation", [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -100),
        ("correlation", [1.0, 1.0, 1.0], [3.0, 2.0, 1.0], 0),
    ],
)
def test_scores_are_percent(modules: Any, metric: str, answers: Any, gold: Any, expected: float) -> None:
    assert modules.learners.score(metric, answers, gold) == pytest.approx(expected)


def test_no_test_text_is_in_the_pool(modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pool = [(f"Text {number}", "ab"[number % 2]) for number in range(40)]
    test = [("text 7", "b"), ("new", "a"), ("new ", "a"), ("other", "unknown")]
    source = modules.battery.Source(lambda _: (pool, test), "glue", "made up")
    monkeypatch.setitem(modules.battery.SOURCES, "made", source)
    modules.battery.prepare("made", tmp_path, tmp_path)
    made = modules.battery.load("made", tmp_path)
    assert {text for text, _ in made.pool} == {text for text, _ in pool} - {"Text 7"}
    assert sorted(made.test) == [("new", "a"), ("text 7", "b")]


def test_sections_of_packages_are_read_without_repeats(modules: Any, tmp_path: Path) -> None:
    entries = [f"Package: p{n}\nDescription: Game {n // 2}\nSection: contrib/games" for n in range(160)]
    entries += [f"Package: q{n}\nDescription: Shell {n}\nSection: shells" for n in range(59)]
    (tmp_path / "packages.txt").write_text("\n\n".join(entries), encoding="utf-8")
    pool, test = modules.battery.debian(tmp_path)
    assert (len(pool), len(test)) == (60, 20) and {label for _, label in pool} == {"games"}


def test_setfit_is_stopped_only_where_it_would_draw_too_many_pairs(modules: Any) -> None:
    def limit(most: int, **counts: int) -> int | None:
        made = task(modules, **counts)
        return modules.learners.setfit_limit(modules.learners.Trial(made, made.pool, 0, "", "", "cpu", most, 60))

    assert limit(5000, a=8, b=8) is None  # 72 pairs of like rows and as many of others, of at most 20 × 16 each
    assert limit(5000, a=400, b=400) == 2 * 20 * 800 // 16
    assert limit(100, a=400, b=400) == 100


def test_setfit_has_no_pairs_and_no_scores(modules: Any) -> None:
    cases = [("classes", False), ("classes", True), ("score", False)]
    fits = [modules.learners.applies("setfit", {"kind": kind, "pair": pair}) for kind, pair in cases]
    assert fits == [True, False, False]
    assert modules.learners.applies("default", {"kind": "score", "pair": True})


def test_means_are_of_the_tasks_that_all_methods_have(modules: Any) -> None:
    job = modules.first_run.Job
    values = {("one", "default"): (80, 90), ("one", "setfit"): (70, 70), ("two", "default"): (45, 55)}
    jobs = [job(method, name, "8", draw) for name, method in values for draw in (0, 1)]
    results = [
        {"method": method, "task": name, "size": "8", "draw": draw, "score": value, "seconds": 3}
        for (name, method), both in values.items()
        for draw, value in enumerate(both)
    ]
    lines = modules.first_run.table("8", jobs, ["default", "setfit"], results).splitlines()
    assert lines[2].split() == ["one", "85.0", "±", "7.1", "3", "s", "70.0", "±", "0.0", "3", "s"]
    assert lines[3].split() == ["two", "50.0", "±", "7.1", "3", "s", "–"]
    assert lines[4].split() == ["mean", "of", "1", "that", "all", "have", "85.0", "3", "s", "70.0", "3", "s"]
    assert lines[5].split() == ["mean", "of", "all", "2", "67.5", "3", "s", "–"]


def test_differences_are_between_the_same_draws_and_all_rows_have_one_linear_model(modules: Any) -> None:
    cells = {("t", "8", "default"): {0: 5.0, 1: 7.0, 3: 90.0}, ("t", "8", "frozen"): {0: 4.0, 1: 4.0, 2: 50.0}}
    cells |= {("t", "all", "default"): {0: 5.0, 1: 7.0}, ("t", "all", "frozen"): {0: 4.0}}
    tables = modules.first_tables
    assert tables.differences(cells, "t", "8") == tables.differences(cells, "t", "all") == [1.0, 3.0]
    # The mean of 1 and 3, and 12.706 (t of one degree of freedom) times √2 / √2.
    assert tables.in_words([1.0, 3.0]) == "+2.0 ± 12.7"
    assert (tables.in_words([-0.24]), tables.in_words([])) == ("−0.2", "–")


def test_the_tables_of_the_page_are_those_of_the_scores(modules: Any) -> None:
    tables = modules.first_tables
    assert tables.tables() in tables.PAGE.read_text(encoding="utf-8")


def test_results_are_kept_and_failures_tried_again(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def run_in_process(job: Any, _: Any) -> dict[str, Any]:
        asked.append(job.method)
        outcome = {"error": "no"} if len(asked) == 2 else {"score": 1.0, "seconds": 1.0}
        return {"method": job.method, "task": job.task, "size": job.size, "draw": job.draw, **outcome}

    monkeypatch.setattr(modules.first_run, "run_in_process", run_in_process)
    options = modules.first_run.parse(["--out", str(tmp_path / "out.json")])
    jobs = [modules.first_run.Job(method, "t", "8", 0) for method in ("default", "pinned", "frozen")]
    modules.first_run.run_all(jobs, options)
    results = modules.first_run.run_all(jobs, options)
    assert asked == ["default", "pinned", "frozen", "pinned"]
    assert len(results) == 3 and not any("error" in result for result in results)
    asked.clear()
    options.fresh = ["default"]
    assert len(modules.first_run.run_all(jobs, options)) == 3 and asked == ["default"]


def test_what_is_missing_is_left_out_and_said(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*command: Any, **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 100, "", "E: no lists\n")

    monkeypatch.setattr(subprocess, "run", refused)
    options = modules.first_run.parse(["--data", str(tmp_path), "--tasks", "sst2,debian", "--peer-python", "python"])
    assert modules.first_run.available_tasks(options) == []
    assert "setfit" not in modules.first_run.available_methods(options)
    out = capsys.readouterr().out
    assert "sst2 is left out: GLUE is not given; add --glue DIR" in out
    assert "debian is left out: apt-cache failed: E: no lists → apt-get update" in out
    assert "setfit is left out: E: no lists → name an interpreter" in out


def test_the_program_fetches_nothing(modules: Any) -> None:
    programs = [path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("*.py") if path.stem in MODULES]
    assert len(programs) == len(MODULES)
    assert not any(word in text for text in programs for word in ("http", "clone", "download"))
    assert {source.origin for source in modules.battery.SOURCES.values()} == {"glue", "apt"}


def test_tasks_of_ones_own_are_read_as_the_help_describes_them(
    modules: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grades = {"label": [1, 2] * 10, "text": [f"text {number}" for number in range(20)]}
    metas = {"stars": {"metric": "accuracy"}, "odd": {"metric": "f1"}, "torn": {"metric": "accuracy", "pair": True}}
    for name, meta in metas.items():
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "test"):
            pq.write_table(pa.table(grades), folder / f"{split}.parquet")
        (folder / "meta.json").write_text(json.dumps({"kind": "classes", "pair": False, **meta}), encoding="utf-8")
    options = modules.first_run.parse(["--data", str(tmp_path), "--tasks", "stars,odd,torn"])
    assert modules.first_run.available_tasks(options) == ["stars"]
    out = capsys.readouterr().out
    assert 'odd is left out: metric "f1" → write accuracy, matthews, correlation' in out
    assert "torn is left out" in out and "text1" in out
    assert modules.battery.load("stars", tmp_path).test[0] == ("text 0", "1"), "by name of the column, classes as text"
    assert modules.first_run.parse(["--data", str(tmp_path)]).tasks[-3:] == ["odd", "stars", "torn"]
    with pytest.raises(SystemExit):
        modules.first_run.parse(["--data", str(tmp_path), "--tasks", "star"])
    assert "star → choose from sst2" in capsys.readouterr().err


@pytest.mark.slow
def test_every_method_of_ours_answers_the_same_rows(
    modules: Any, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    modules.first_run.main(["--small", "--device", "cpu", "--encoder", str(tiny), "--out", str(out)])
    results = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert [result["method"] for result in results] == ["default", "pinned", "frozen"]
    assert all((result["rows"], result["test_rows"]) == (16, 100) for result in results)
    assert all(0 < result["train_seconds"] <= result["seconds"] for result in results)
    assert "8 rows a class" in capsys.readouterr().out
