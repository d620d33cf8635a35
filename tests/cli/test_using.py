"""Predict answers texts and files, by a run, a model folder or a student."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cli_cases import TEXTS, Desk, done, model_folder, read_answers, understill, write, write_texts
from safetensors.torch import load_file, save_file

from understill.atomic import seal


def test_predict_looks_at_its_file_before_it_loads_the_model(at: Desk, tmp_path: Path) -> None:
    # A model without weights cannot be loaded; so whatever is said of the file was said before.
    shutil.copy(model_folder() / "understill.json", tmp_path)
    Path("odd.csv").write_text("subject,body\nlate,The parcel never came\n", encoding="utf-8")
    asked = ("predict", str(tmp_path), "--file", "odd.csv", "--out", "odd-out.csv")
    assert "the file has none of the text columns the model's tasks read" in understill(*asked).err
    assert 'the model has no task "ticket"' in understill(*asked, "--task", "ticket").err
    assert "config.json is missing" in understill(*asked, "--columns", "body").err


def test_predict_answers_texts_for_every_task_that_reads_one(at: Desk) -> None:
    lines = done("predict", "runs/my-tasks", "--text", "The parcel never came", "--text", "[good]").out.splitlines()
    assert lines[0] == "The parcel never came"
    assert lines[3] == "[good]"
    assert re.fullmatch(r"  tickets: (billing|delivery) \([\d.]+ %\), (billing|delivery) [\d.]+ %", lines[1])
    assert re.fullmatch(r"  films: (yes|no) \([\d.]+ %\), (yes|no) [\d.]+ %", lines[2])
    assert len(lines) == 6


def test_predict_answers_pairs(at: Desk) -> None:
    output = done("predict", model_folder(), "--text", "The password", "--second", "A password")
    assert re.fullmatch(r"The password \| A password\n  pairs: [01] \([\d.]+ %\), [01] [\d.]+ %\n", output.out)


def test_predict_says_that_pairs_need_a_second_text(at: Desk) -> None:
    asked = ("predict", "runs/my-tasks", "--text", "a", "--task", "pairs")
    assert "task pairs reads two texts → add --second, the other text of each pair" in understill(*asked).err


def test_predict_takes_several_second_texts_for_one_first(at: Desk) -> None:
    output = done("predict", model_folder(), "--text", "The password", "--second", "A password", "--second", "A parcel")
    lines = output.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "The password | A password",
        "The password | A parcel",
    ]


def test_predict_answers_only_the_task_asked_for(at: Desk) -> None:
    assert len(done("predict", "runs/my-tasks", "--text", "good", "--task", "films").out.splitlines()) == 2
    assert 'did you mean "films"?' in understill("predict", "runs/my-tasks", "--text", "a", "--task", "film").err
    assert "task pairs reads two texts" in understill("predict", "runs/my-tasks", "--text", "a", "--task", "pairs").err


@pytest.mark.parametrize("source", ["in.csv", "in.parquet", "in.jsonl"])
@pytest.mark.parametrize("target", ["out.csv", "out.parquet", "out.jsonl"])
def test_predict_reads_and_writes_every_format(at: Desk, tmp_path: Path, source: str, target: str) -> None:
    file = write_texts(tmp_path / source)
    output = done("predict", "runs/my-tasks", "--file", file, "--out", tmp_path / target, "--device", "cpu")
    assert output.out == f"3 rows answered for films: {tmp_path / target}\n"
    rows = read_answers(tmp_path / target)
    assert [row["review"] for row in rows] == TEXTS
    shown = done("predict", "runs/my-tasks", "--task", "films", *(w for text in TEXTS for w in ("--text", text))).out
    assert [row["films_predicted"] for row in rows] == re.findall(r"films: (\w+)", shown)
    assert all(0.5 <= float(str(row["films_probability"])) <= 1 for row in rows)


def test_predict_says_which_rows_had_no_answer(at: Desk, tmp_path: Path) -> None:
    write(tmp_path / "in.csv", ["body"], [("The film was good",), ("  ",)])
    arguments = ("--file", tmp_path / "in.csv", "--out", tmp_path / "out.jsonl", "--columns", "body")
    output = done("predict", "runs/my-tasks", *arguments)
    assert "1 of 2 rows answered for tickets, films" in output.out
    assert (
        f'1 row without an answer of every task, cells kept:\n  {tmp_path}/in.csv:3: no text in column "body"'
        in output.out
    )
    assert read_answers(tmp_path / "out.jsonl")[1]["films_predicted"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a", "--file", "in.csv"], "give either --text or --file"),
        (["--file", "in.csv"], "--file needs --out"),
        (["--file", "in.csv", "--out", "out.csv", "--second", "b"], "--second goes with --text"),
        (["--text", "a", "--out", "out.csv"], "--out, --columns, --encoding and --quote-formulas go with --file"),
        (["--text", "a", "--text", "b", "--second", "c"], "2 texts and 1 second texts do not make pairs"),
        (["--text", "a", "--device", "gpu"], 'device "gpu": write auto, cpu, cuda or mps'),
        (["--file", "none.csv", "--out", "out.csv"], "none.csv: no such file"),
        (["--file", "films.csv", "--out", "out.docx"], "--out out.docx: the name must end in"),
        (["--file", "films.csv", "--out", "out.csv", "--columns", "a,b,c"], "--columns takes one text column, or two"),
        (["--file", "films.csv", "--out", "out.csv", "--columns", "reviews"], 'did you mean "review"?'),
    ],
)
def test_predict_refuses_what_makes_no_sense(at: Desk, arguments: list[str], message: str) -> None:
    output = understill("predict", "runs/my-tasks", *arguments)
    assert output.code == 2
    assert message in output.err
    assert not Path("out.csv").exists()


def broken_copy(folder: Path) -> Path:
    """Copy the model with one weight of its encoder that is no number, sealed as if it were meant so."""
    shutil.copytree(model_folder(), folder)
    weights = load_file(folder / "model.safetensors")
    next(value for name, value in weights.items() if name.endswith("query.weight"))[0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors")
    seal(folder)
    return folder


@pytest.mark.parametrize(
    "verb",
    [
        ("predict", "--text", "The parcel never came"),
        ("predict", "--file", "films.csv", "--out", "nan.csv"),
        ("evaluate",),
        ("export", "--to", "onnx", "--out", "nan-export"),
        ("export", "--to", "huggingface", "--task", "films", "--out", "nan-export"),
        ("serve", "--port", "0"),
    ],
)
def test_a_model_whose_weights_are_no_numbers_is_refused_in_one_sentence(
    at: Desk, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    name, *options = verb
    output = understill(name, broken_copy(tmp_path / "model"), *options)
    assert output.code == 2
    assert re.search(
        r"^error: .*some weights are no numbers .*query.weight.* → train it again, or copy", output.err, re.M
    )
    assert "nan" not in output.out and "Traceback" not in output.err
    assert not Path("nan.csv").exists() and not Path("nan-export").exists()


def test_label_writes_a_file_for_each_shard_and_goes_on_where_it_stopped(at: Desk, tmp_path: Path) -> None:
    shards, out = tmp_path / "shards", tmp_path / "labelled"
    shards.mkdir()
    write_texts(shards / "a.parquet")
    write_texts(shards / "b.jsonl")
    asked = ("label", "runs/my-tasks", "--in", shards, "--out", out, "--device", "cpu")
    assert done(*asked).out.startswith(f"2 shards labelled: {out}\n6 rows in ")
    assert sorted(path.name for path in out.iterdir()) == [".done", "a.parquet", "b.jsonl"]
    assert done(*asked).out == f"2 shards labelled, 2 of them before: {out}\n"
    (shards / "c.parquet").write_bytes(b"broken")
    failed = understill(*asked, "--retries", "0")
    assert failed.code == 2 and "2 of 3 shards labelled" in failed.err and "c.parquet: not a readable" in failed.err


def test_label_refuses_what_does_not_go_together(at: Desk, tmp_path: Path) -> None:
    asked = ("label", "runs/my-tasks", "--in", tmp_path, "--out", tmp_path / "out")
    assert "--engine spark: there is no such engine → known: local, ray" in understill(*asked, "--engine", "spark").err
    assert "--address goes with --engine ray" in understill(*asked, "--address", "localhost:6379").err
    assert "there are no files" in understill(*asked).err
