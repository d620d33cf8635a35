"""Submissions of real runs, in miniature, read back by a reader that knows nothing of how they were made."""

from __future__ import annotations

import csv
import io
import logging
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from transformers import AutoModel

from helpers import liven
from understill import pipeline
from understill.errors import UserError
from understill.inference.loading import load
from understill.models.encoder import load_tokenizer
from understill.models.folder import save_model
from understill.models.multitask import new_model
from understill.pipeline.glue_submission import Submission
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import GLUE, Task

SHARED = Path(__file__).parents[2].parent / "shared" / "glue"

NLI = ("entailment", "neutral", "contradiction")
#: Folder, labels of the files, whether rows are pairs, test sets with their rows; rows are few here.
SMALL: dict[str, tuple[str, tuple[str, ...], bool, dict[str, int]]] = {
    "cola": ("CoLA", ("0", "1", "1"), False, {"test": 7}),
    "sst2": ("SST-2", ("0", "1"), False, {"test": 6}),
    "mrpc": ("MRPC", ("0", "1"), True, {"test": 5}),
    "stsb": ("STS-B", ("0.5", "2.5", "4.5"), True, {"test": 8}),
    "qqp": ("QQP", ("0", "0", "1"), True, {"test": 9}),
    "mnli": ("MNLI", NLI, True, {"test_matched": 6, "test_mismatched": 4}),
    "qnli": ("QNLI", ("entailment", "not_entailment"), True, {"test": 11}),
    "rte": ("RTE", ("entailment", "not_entailment"), True, {"test": 5}),
    "wnli": ("WNLI", ("0", "1", "0"), True, {"test": 3}),
}
AX = 5
FILES = {
    "CoLA.tsv": ("cola", 7), "SST-2.tsv": ("sst2", 6), "MRPC.tsv": ("mrpc", 5), "STS-B.tsv": ("stsb", 8),
    "QQP.tsv": ("qqp", 9), "MNLI-m.tsv": ("mnli", 6), "MNLI-mm.tsv": ("mnli", 4), "QNLI.tsv": ("qnli", 11),
    "RTE.tsv": ("rte", 5), "WNLI.tsv": ("wnli", 3), "AX.tsv": ("mnli", AX),
}  # fmt: skip
WORDS = ["parcel", "account", "order", "password", "guitar", "film", "man", "nobody", "charged", "locked"]


def texts(seed: int, count: int, pair: bool) -> list[list[str]]:
    """Make up texts; in pairs, some have the first one in common."""
    output = [f"the {WORDS[(seed + n) % 10]} was {WORDS[(seed + 3 * n) % 7]} {n}" for n in range(count)]
    return [[f"{output[n // 2]} ?", output[n]] if pair else [output[n]] for n in range(count)]


def write_table(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def write_glue(folder: Path) -> Path:
    """Write all of GLUE in small; no test file has labels."""
    for seed, (place, labels, pair, tests) in enumerate(SMALL.values()):
        columns = ["sentence1", "sentence2"] if pair else ["sentence"]
        devs = ["dev_matched", "dev_mismatched"] if place == "MNLI" else ["dev"]
        for split in ["train", *devs]:
            rows = [[str(n), *row, labels[n % len(labels)]] for n, row in enumerate(texts(seed, 12, pair))]
            write_table(folder / place / f"{split}.tsv", ["index", *columns, "label"], rows)
        for split, count in tests.items():
            rows = [[str(n), *row] for n, row in enumerate(texts(seed + len(split), count, pair))]
            write_table(folder / place / f"{split}.tsv", ["index", *columns], rows)
    rows = [[str(n), *row] for n, row in enumerate(texts(5, AX, True))]
    write_table(folder / "AX" / "diagnostic.tsv", ["index", "sentence1", "sentence2"], rows)
    return folder


class World(NamedTuple):
    glue: Path
    runs: Path
    recipe: Recipe  # of the run "all": every task but WNLI, QNLI as a ranking, then fine-tuned on each


@pytest.fixture(scope="module")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    """GLUE in small, and two finished runs."""
    root = tmp_path_factory.mktemp("world")
    glue, runs = write_glue(root / "glue"), root / "runs"
    lively = shutil.copytree(tiny, root / "lively")
    encoder = AutoModel.from_pretrained(tiny)
    liven(encoder)
    encoder.save_pretrained(lively)
    values: dict[str, Any] = {
        "data": {"glue": str(glue)},
        "encoder": {"name": str(lively), "max_length": 32},
        "training": {"steps": 2, "batch": 8, "lr": 1e-4, "evaluate": "never"},
        "output": {"folder": str(runs)},
        "machine": {"device": "cpu", "threads": 1},
    }
    tasks = {name: {"kind": "ranking"} if name == "qnli" else {} for name in SMALL if name != "wnli"}
    everything = make_recipe({**values, "name": "all", "tasks": tasks, "student": {"finetune": {"steps": 2}}})
    pipeline.run(everything)
    taught = {"teachers": [{"tasks": "each", "seeds": [0, 1]}], "targets": {"weak": "keep"}}
    pipeline.run(make_recipe({**values, "name": "taught", "tasks": ["rte", "cola"], **taught}))
    return World(glue, runs, everything)


@pytest.fixture
def world(finished: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same, and a benchmark that wants as many rows as the files here have."""
    for name, (*_, tests) in SMALL.items():
        counts = {split.removesuffix("_matched"): count for split, count in tests.items()}
        monkeypatch.setitem(GLUE, name, replace(GLUE[name], counts=counts))
    monkeypatch.setitem(GLUE, "ax", replace(GLUE["ax"], counts={"dev": AX}))
    return finished


def read_sheet(content: bytes) -> list[str]:
    """Read a file of a submission by the rules that the benchmark states."""
    rows = list(csv.DictReader(io.StringIO(content.decode("ascii"), newline=""), delimiter="\t", strict=True))
    assert all(list(row) == ["index", "prediction"] for row in rows)
    assert [row["index"] for row in rows] == [str(number) for number in range(len(rows))]
    return [row["prediction"] for row in rows]


def read_zip(path: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(path) as result:
        assert result.testzip() is None
        return {name: read_sheet(result.read(name)) for name in result.namelist()}


def texts_of(glue: Path, name: str) -> list[list[str]]:
    place = {"MNLI-m": "MNLI/test_matched", "MNLI-mm": "MNLI/test_mismatched", "AX": "AX/diagnostic"}
    path = glue / f"{place.get(name.removesuffix('.tsv'), name.removesuffix('.tsv') + '/test')}.tsv"
    return [line.split("\t")[1:] for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def expected(model: Path, glue: Path, name: str) -> list[str]:
    """Ask a model for the texts of a test file, and put its answers into words by hand."""
    task, rows = FILES[name][0], texts_of(glue, name)
    seconds = [row[1] for row in rows] if len(rows[0]) == 2 else None
    answers = load(model).predict([row[0] for row in rows], seconds, [task])[task]
    if task == "stsb":
        return [f"{min(5, max(0, float(answer.score or 0))):.3f}" for answer in answers]
    if task == "qnli":
        best: dict[str, int] = {}
        for number, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            if row[0] not in best or float(answer.score or 0) > float(answers[best[row[0]]].score or 0):
                best[row[0]] = number
        return ["entailment" if n in best.values() else "not_entailment" for n in range(len(rows))]
    numbers = {"unacceptable": "0", "acceptable": "1", "negative": "0", "positive": "1"}
    numbers |= {"not_paraphrase": "0", "paraphrase": "1"}
    return [numbers.get(str(answer.label), str(answer.label)) for answer in answers]


def by_model(written: Submission) -> dict[str, str]:
    return {filed.name: filed.model for filed in written.files}


def test_the_zip_holds_what_the_model_says_of_every_test_set(world: World, caplog: pytest.LogCaptureFixture) -> None:
    run = world.runs / "all"
    with caplog.at_level(logging.WARNING):
        written = pipeline.submit(run, world.recipe)
    assert written.folder == run / "submission" and written.zip == run / "submission" / "submission.zip"
    result = read_zip(written.zip)
    assert {name: len(answers) for name, answers in result.items()} == {
        name: count for name, (_, count) in FILES.items()
    }
    for name in FILES:
        assert (written.folder / name).read_bytes() == zipfile.ZipFile(written.zip).read(name)
        if name == "STS-B.tsv":
            near = [float(score) for score in expected(run / "models" / "multi", world.glue, name)]
            assert [float(score) for score in result[name]] == pytest.approx(near, abs=0.0011)
        elif name != "WNLI.tsv":
            assert result[name] == expected(run / "models" / "multi", world.glue, name), name
    varied = [name for name, answers in result.items() if len(set(answers)) > 1]
    assert len(varied) >= 3, "a model that always says the same would hide a wrong order"
    assert result["WNLI.tsv"] == ["0"] * 3  # two thirds of its training rows
    assert by_model(written) == {name: "" if name == "WNLI.tsv" else "multi" for name in FILES}
    assert [filed.guess for filed in written.files if not filed.model] == ["0"]
    assert 'QNLI.tsv: 1 of 6 queries have one candidate, which a ranking always calls "entailment"' in caplog.text


def test_fine_tuned_models_answer_each_its_own_task(world: World, tmp_path: Path) -> None:
    written = pipeline.submit(world.runs / "all", world.recipe, parts=["finetuned"], out=tmp_path / "up")
    assert by_model(written) == {
        name: "" if name == "WNLI.tsv" else f"finetuned-{task}" for name, (task, _) in FILES.items()
    }
    assert written.zip == tmp_path / "up" / "submission.zip"
    result = read_zip(written.zip)
    for name in ("RTE.tsv", "AX.tsv"):
        assert result[name] == expected(world.runs / "all" / "models" / by_model(written)[name], world.glue, name)


def test_the_first_part_that_has_a_task_answers_it(world: World, tmp_path: Path) -> None:
    written = pipeline.submit(world.runs / "all", world.recipe, parts=["finetuned-rte", "multi"], out=tmp_path)
    assert by_model(written)["RTE.tsv"] == "finetuned-rte"
    assert by_model(written)["CoLA.tsv"] == "multi"


def test_the_student_answers_and_what_it_was_not_taught_is_said(world: World) -> None:
    run = world.runs / "taught"
    recipe = load_recipe(run / "recipe.yaml")
    written = pipeline.submit(run, recipe)
    assert {name: model for name, model in by_model(written).items() if model} == {
        "CoLA.tsv": "student",
        "RTE.tsv": "student",
    }
    assert written.zip is None
    assert sorted(path.name for path in written.folder.iterdir()) == ["CoLA.tsv", "RTE.tsv", "WNLI.tsv"]
    assert set(written.missing) == set(FILES) - {"CoLA.tsv", "RTE.tsv", "WNLI.tsv"}
    assert {filed.name: filed.lack for filed in written.files}["AX.tsv"] == "no model answers mnli"

    filled = pipeline.submit(run, recipe, fill=True)
    assert filled.zip and filled.missing == ()
    result = read_zip(filled.zip)
    assert {name: len(answers) for name, answers in result.items()} == {
        name: count for name, (_, count) in FILES.items()
    }
    assert set(result["QQP.tsv"]) == {"0"} and set(result["AX.tsv"]) <= set(NLI)
    assert set(result["STS-B.tsv"]) == {"2.500"}
    assert result["RTE.tsv"] == expected(run / "models" / "student", world.glue, "RTE.tsv")

    again = pipeline.submit(run, recipe)
    assert again.zip is None
    assert not filled.zip.exists(), "an old zip does not stand beside files it does not hold"
    assert not (filled.folder / "QQP.tsv").exists()


def test_a_folder_without_some_rows_is_said_and_filled_only_when_asked(world: World, tmp_path: Path) -> None:
    glue = shutil.copytree(world.glue, tmp_path / "glue")
    (glue / "QQP" / "test.tsv").unlink()
    shutil.rmtree(glue / "WNLI")
    reported = {"folder": glue, "out": tmp_path / "up"}
    written = pipeline.submit(world.runs / "all", world.recipe, **reported)
    assert written.missing == ("QQP.tsv", "WNLI.tsv") and written.zip is None
    lacks = {filed.name: filed.lack for filed in written.files if filed.lack}
    assert lacks["QQP.tsv"] == f"{glue} has no test rows of it"
    filled = pipeline.submit(world.runs / "all", world.recipe, fill=True, **reported)
    assert filled.missing == ("WNLI.tsv",) and filled.zip is None
    assert read_sheet((tmp_path / "up" / "QQP.tsv").read_bytes()) == ["0"] * 9
    lack = {filed.name: filed.lack for filed in filled.files}["WNLI.tsv"]
    assert lack == f"no model answers wnli, and {glue} has no training rows to guess by"


def test_rows_that_are_not_the_official_ones_are_refused_all_at_once_and_nothing_is_written(
    world: World, tmp_path: Path
) -> None:
    glue = shutil.copytree(world.glue, tmp_path / "glue")
    short, mixed = glue / "RTE" / "test.tsv", glue / "CoLA" / "test.tsv"
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:-1]))
    header, *lines = mixed.read_text().splitlines(keepends=True)
    mixed.write_text("".join([header, *reversed(lines)]))
    with pytest.raises(UserError) as error:
        pipeline.submit(world.runs / "all", world.recipe, folder=glue, out=tmp_path / "up")
    assert f"{short}: 4 rows where the benchmark has 5 → fetch the official file" in str(error.value)
    assert f"{mixed}: the rows are not in the order of their index → sort them by it" in str(error.value)
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        (
            "taught",
            {"parts": ["teacher"]},
            r"teacher-seed0-rte and teacher-seed1-rte all answer rte → name one of them",
        ),
        ("all", {"parts": ["studnet"]}, "--models studnet: .* has none"),
        ("all", {"parts": ["finetund"]}, 'did you mean "finetuned"'),
        ("all", {"folder": Path("/nowhere/glue")}, "there is no such folder → name the folder of CoLA"),
        ("all/models/multi", {}, "is a model folder, which stays as it is → say where to write with --out"),
        ("none", {}, "so this is no run → name the folder that a run printed"),
    ],
)
def test_what_cannot_be_meant_is_said(world: World, run: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pipeline.submit(world.runs / run, world.recipe, **changes)


def test_a_run_without_a_task_of_glue_has_nothing_to_submit(make_tiny: Any, world: World) -> None:
    recipe = make_tiny(tasks=["mood"])
    run = pipeline.run(recipe).folder
    with pytest.raises(UserError, match=r"has no data\.glue → name the GLUE folder with --glue"):
        pipeline.submit(run, recipe)
    with pytest.raises(UserError, match="answer no task of GLUE"):
        pipeline.submit(run, recipe, folder=world.glue)


def test_the_verb_says_who_answers_what_and_which_files_are_samples(
    world: World, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from understill.cli import main

    def reported(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["submit", str(world.runs / "taught"), "--out", str(tmp_path), *words])
        assert not stop.value.code
        return capfd.readouterr().out

    shown = reported()
    assert "no zip: SST-2.tsv, " in shown and "--fill" in shown
    assert "samples, which no model has answered: WNLI.tsv\n" in shown
    shown = reported("--fill", "--models", "student", "--glue", str(world.glue))
    assert "no model answers qqp; every row says 0, the majority guess" in shown
    assert f"upload: {tmp_path / 'submission.zip'}" in shown
    assert "samples, which no model has answered: SST-2.tsv, MRPC.tsv, " in shown


def write_model(folder: Path, tiny: Path, recipe: Recipe, *tasks: Task) -> Path:
    """Save a model that was never trained; its answers differ from text to text."""
    model = new_model(EncoderSpec(name=str(tiny), max_length=16), HeadsSpec(), tasks, seed=0)
    liven(model)
    lengths = {task.name: 16 for task in tasks}
    save_model(folder, model, load_tokenizer(str(tiny)), lengths, recipe.to_yaml(), {})
    return folder


def test_labels_are_joined_by_name_whatever_order_the_model_has_them_in(
    world: World, tiny: Path, tmp_path: Path
) -> None:
    names = {"cola": "CoLA.tsv", "rte": "RTE.tsv", "mnli": "AX.tsv"}
    turned = [replace(GLUE[name].task, labels=GLUE[name].task.labels[::-1]) for name in names]
    model = write_model(tmp_path / "model", tiny, world.recipe, *turned)
    pipeline.submit(model, world.recipe, out=tmp_path / "up")
    for name in names.values():
        assert read_sheet((tmp_path / "up" / name).read_bytes()) == expected(model, world.glue, name)


def test_a_label_that_the_benchmark_does_not_know_is_refused(world: World, tiny: Path, tmp_path: Path) -> None:
    task = replace(GLUE["mnli"].task, labels=(*NLI, "unclear"))
    model = write_model(tmp_path / "model", tiny, world.recipe, task)
    with pytest.raises(UserError, match="task mnli of the model has labels the benchmark does not know: unclear"):
        pipeline.submit(model, world.recipe, out=tmp_path / "up")


@pytest.mark.skipif(not SHARED.is_dir(), reason="there is no ../shared/glue")
def test_real_test_sets_are_answered_in_full(tiny: Path, tmp_path: Path) -> None:
    names = ("cola", "stsb", "wnli")
    recipe = make_recipe({"data": {"glue": str(SHARED)}, "tasks": list(names), "output": {"folder": str(tmp_path)}})
    model = write_model(tmp_path / "model", tiny, recipe, *(GLUE[name].task for name in names))
    written = pipeline.submit(model, recipe, out=tmp_path / "up")
    files = {"CoLA.tsv": 1063, "STS-B.tsv": 1379, "WNLI.tsv": 146}
    assert {filed.name: filed.rows for filed in written.files if filed.rows} == files
    result = {name: read_sheet((tmp_path / "up" / name).read_bytes()) for name in files}
    assert {name: len(answers) for name, answers in result.items()} == files
    assert set(result["CoLA.tsv"]) | set(result["WNLI.tsv"]) <= {"0", "1"}
    assert all(0 <= float(score) <= 5 for score in result["STS-B.tsv"])
