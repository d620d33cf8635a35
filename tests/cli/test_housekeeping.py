"""Data, assets, runs and clean show what is there, and remove only what no run refers to."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli_cases import Desk, School, done

from understill.tasks import GLUE


def test_data_lists_the_tasks_that_need_no_files() -> None:
    text = done("data").out
    for name in ("mood", "queue", "follows", "similar", "answer", *GLUE):
        assert re.search(rf"│ {name} +│", text), name


def test_data_shows_a_recipes_tasks_and_some_rows_without_an_encoder(at: Desk) -> None:
    output = done("data", "recipe.yaml", "--examples", "2", "--set", "encoder=./not-there")
    assert re.search(r"│ films +│ classification │ review +│ no, yes", output.out)
    assert "tickets (train):\n  " in output.out
    assert re.search(
        r"pairs \(train\):\n  [01]: The password of account \d+ \| Reset password \d+, \d times\n", output.out
    )
    assert len(re.findall(r"^  (?:yes|no): ", output.out, flags=re.MULTILINE)) == 2


def test_data_compares_a_glue_folder_with_the_official_counts(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    lines = ["index\tsentence1\tsentence2\tlabel", "0\tIt rains.\tIt is wet.\tentailment"]
    lines.append("1\tIt snows.\tIt is hot.\tnot_entailment")
    (tmp_path / "RTE" / "dev.tsv").write_text("\n".join(lines), encoding="utf-8")
    output = done("data", "--glue", tmp_path)
    assert re.search(r"│ rte +│ dev +│ +2 │ +277 │ differs", output.out)
    assert re.search(r"│ rte +│ train +│ +0 │ +2,490 │ missing", output.out)
    assert len(re.findall("missing|differs", output.out)) == sum(len(entry.counts) for entry in GLUE.values())


def test_assets_are_listed_with_how_to_get_them() -> None:
    text = done("assets").out
    assert re.search(r"^minilm: .* \(83\.\d MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)
    assert re.search(r"^bge: .* \(2\d\.\d MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)
    assert re.search(r"^mpnet: .* \(40\d\.\d MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)


def test_runs_lists_a_run_with_the_dev_means_of_student_and_baseline(pupil: School) -> None:
    (means,) = re.findall(r"│ mean +│ primary metrics +(?:│ +[\d.]+ +){3}│ +([\d.]+) +│ +([\d.]+) +│", pupil.run.out)
    output = " ".join(done("runs").out.replace("│", " ").split())  # a narrow table breaks its lines
    size = sum(path.stat().st_size for path in Path("runs/artifacts").rglob("*") if path.is_file()) / 1e6
    assert re.search(r"small \d{4}-\d\d-\d\d .*done", output)
    assert f"baseline {means[0]}" in output and f"student {means[1]}" in output
    assert f"{size:.1f} MB" in output


def test_clean_shows_what_no_run_refers_to_and_removes_it_when_told_to(pupil: School, tmp_path: Path) -> None:
    elsewhere = ("--set", f"output.folder={tmp_path}", "--set", "tasks=[mood]", "--set", "student.baseline=false")
    done("run", "small.yaml", *elsewhere)
    record = json.loads((tmp_path / "small" / "run.json").read_text())
    old = tmp_path / "artifacts" / Path(record["models"]["student"]["folder"]).parent.name
    done("run", "small.yaml", *elsewhere, "--set", "student.training={lr: 1e-4}")
    kept = {path for path in (tmp_path / "artifacts").iterdir() if path.is_dir()} - {old}
    shown = done("clean", tmp_path)
    assert old.is_dir()
    assert re.fullmatch(rf"would remove {old}  \([\d.]+ MB\)\n[\d.]+ MB could be freed; do it with --yes\n", shown.out)
    assert re.fullmatch(rf"removed {old}  \([\d.]+ MB\)\n[\d.]+ MB freed\n", done("clean", tmp_path, "--yes").out)
    assert {path for path in (tmp_path / "artifacts").iterdir() if path.is_dir()} == kept
    assert done("clean", tmp_path, "--yes").out == "nothing to clean: every artefact belongs to a run\n"
    assert "would remove" in done("clean", tmp_path, "--cache").out and (tmp_path / "cache").is_dir()
    assert f"removed {tmp_path / 'cache'}" in done("clean", tmp_path, "--cache", "--yes").out
    assert not list((tmp_path / "cache").iterdir())
    again = done("run", "small.yaml", *elsewhere, "--set", "student.training={lr: 1e-4}")
    assert "training" not in again.err, "the cache is made again, and nothing else"
