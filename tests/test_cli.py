"""The program as a user meets it: help, exit codes, and the way from three CSV files to answers."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from understill import cli, pipeline
from understill.events import Teaching, Waiting
from understill.tasks import GLUE

VERBS = (
    "init",
    "check",
    "run",
    "teach",
    "evaluate",
    "compare",
    "report",
    "submit",
    "export",
    "serve",
    "bench",
    "predict",
    "data",
    "runs",
    "clean",
    "assets",
)
HEAVY = {"torch", "transformers", "pyarrow", "numpy", "pydantic", "sklearn", "scipy", "accelerate", "datasets"}


class Told(NamedTuple):
    """What the program answered."""

    code: int
    out: str
    err: str


def understill(*arguments: str | Path) -> Told:
    """Run the program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return Told(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def done(*arguments: str | Path) -> Told:
    """Run the program, which must succeed."""
    told = understill(*arguments)
    assert told.code == 0, told.err
    return told


def start(*arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """Run Python in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, text=True, **pipes)


def finish(process: subprocess.Popen[str]) -> Told:
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    return Told(process.returncode, out, err)


# Help and exit codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_ends_with_an_example(verb: str) -> None:
    text = done(verb, "--help").out
    assert "Examples" in text
    assert f"understill {verb}" in text[text.index("Examples") :]


def test_the_readme_has_a_line_for_every_verb() -> None:
    text = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    table = text.partition("\n## Verbs\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(VERBS)


@pytest.mark.parametrize(("columns", "width"), [("90", 90), ("", 120), ("wide", 120)])
def test_tables_in_a_file_are_as_wide_as_columns_says(columns: str, width: int) -> None:
    code = "from understill import terminal; print(terminal.console.out.width)"
    env = {**os.environ, "COLUMNS": columns}
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == str(width)


def test_the_help_names_every_verb_and_the_first_steps() -> None:
    text = done("--help").out
    assert set(re.findall(r"^│ ([a-z]+) ", text, flags=re.MULTILINE)) == set(VERBS)
    assert "understill run recipes/quickstart.yaml" in text


def test_help_imports_nothing_heavy() -> None:
    told = finish(start("-X", "importtime", "-m", "understill", "--help"))
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in told.err.splitlines() if "|" in line}
    assert told.code == 0
    assert "understill" in imported and "typer" in imported
    assert not imported & HEAVY


def test_a_slip_in_a_recipe_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("taks: [mood]\n", encoding="utf-8")
    told = finish(start("-X", "importtime", "-m", "understill", "run", "recipe.yaml", folder=tmp_path))
    assert told.code == 2
    assert 'did you mean "tasks"?' in told.err
    assert not re.search(r"\| +(torch|transformers|pyarrow)$", told.err, flags=re.MULTILINE)


def test_the_version_is_that_of_the_package() -> None:
    assert done("--version").out == f"{version('understill')}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["chekc"], ["check"], ["check", "a", "--what"], ["data", "--examples", "-1"]]
)
def test_what_cannot_be_parsed_is_the_users_mistake(arguments: list[str]) -> None:
    told = understill(*arguments)
    assert told.code == 2
    assert "Usage" in told.out + told.err
    assert "Traceback" not in told.err


def test_a_users_mistake_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    told = understill("check", tmp_path / "none.yaml")
    assert told == (2, "", f"error: {tmp_path / 'none.yaml'}: no such file\n")


FAILING = """
import understill.recipe
from understill.cli import main

def fail(*_):
    raise {error}

understill.recipe.load_recipe = fail
main(["check", "recipe.yaml"])
"""


def test_a_bug_exits_with_1_and_keeps_its_traceback() -> None:
    told = finish(start("-c", FAILING.format(error="ZeroDivisionError('a bug')")))
    assert told.code == 1
    assert "Traceback" in told.err
    assert told.err.endswith("ZeroDivisionError: a bug\n")
    assert "error:" not in told.err


def test_an_interruption_exits_with_130_and_says_how_to_go_on() -> None:
    told = finish(start("-c", FAILING.format(error="KeyboardInterrupt")))
    assert told == (
        130,
        "",
        "\nstopped; the same command goes on from the last checkpoint, or starts again if there is none yet\n",
    )


# From three CSV files to answers -------------------------------------------------------------------------------------


def write(path: Path, header: list[str], rows: list[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Desk(NamedTuple):
    """A user's folder, what they add to each command, and what the first ones told them."""

    folder: Path
    sets: list[str]
    init: Told
    check: Told
    run: Told


@pytest.fixture(scope="module")
def desk(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A user with three CSV files types init, check and run."""
    folder = tmp_path_factory.mktemp("desk")
    tickets = [(f"The parcel of order {n} never came, please!" if n % 2 else f"I was charged {n} times for one order",
                "delivery" if n % 2 else "billing") for n in range(60)]  # fmt: skip
    films = [(f"{n}: the film was {'good' if n % 3 else 'far too long'}", "yes" if n % 3 else "no") for n in range(60)]
    pairs = [(f"The password of account {n}", f"Reset password {n}, {n % 4} times", str(n % 2)) for n in range(60)]
    write(folder / "tickets.csv", ["message", "queue"], tickets)
    write(folder / "films.csv", ["review", "liked"], films)
    write(folder / "pairs.csv", ["question", "candidate", "same"], pairs)
    changes = {"encoder.name": tiny, "encoder.max_length": 32, "training.steps": 6, "training.batch": 8,
               "machine.device": "cpu", "machine.threads": 1}  # fmt: skip
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    with inside(folder):
        init = done("init", "tickets.csv", "films.csv", "pairs.csv")
        check = done("check", "recipe.yaml", *sets)
        run = done("run", "recipe.yaml", *sets)
    return Desk(folder, sets, init, check, run)


@pytest.fixture
def at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The user's desk, with the user at it."""
    monkeypatch.chdir(desk.folder)
    return desk


def model_folder() -> Path:
    (folder,) = Path("runs/artifacts").glob("model-multi-*/model")
    return folder


def test_init_writes_a_recipe_and_says_what_is_next(at: Desk) -> None:
    assert at.init.out.splitlines() == [
        "wrote recipe.yaml; look it over, then:",
        "  understill check recipe.yaml",
        "  understill run recipe.yaml",
    ]
    text = Path("recipe.yaml").read_text(encoding="utf-8")
    assert "text: [question, candidate]" in text


def test_init_writes_a_recipe_that_distils(at: Desk, deep: Path) -> None:
    done("init", "tickets.csv", "films.csv", "--distil", "--teacher", str(deep), "--out", "small.yaml")
    check = done("check", "small.yaml", "--set", "machine.device=cpu").out
    for model in ("teacher", "baseline", "student"):
        assert re.search(rf"│ {model} +│ tickets, films", check)
    assert "recipe and data are fine" in check
    assert "add --distil" in understill("init", "tickets.csv", "--teacher", "minilm", "--out", "no.yaml").err


def test_predict_looks_at_its_file_before_it_loads_the_model(at: Desk, tmp_path: Path) -> None:
    # A model without weights cannot be loaded; so whatever is said of the file was said before.
    shutil.copy(model_folder() / "understill.json", tmp_path)
    Path("odd.csv").write_text("subject,body\nlate,The parcel never came\n", encoding="utf-8")
    asked = ("predict", str(tmp_path), "--file", "odd.csv", "--out", "odd-out.csv")
    assert "the file has none of the text columns the model's tasks read" in understill(*asked).err
    assert 'the model has no task "ticket"' in understill(*asked, "--task", "ticket").err
    assert "config.json is missing" in understill(*asked, "--columns", "body").err


def test_init_does_not_overwrite_unless_it_is_told_to(at: Desk) -> None:
    assert understill("init", "tickets.csv").code == 2
    done("init", "tickets.csv", "--out", "other.yaml")
    assert "already" in understill("init", "tickets.csv", "--out", "other.yaml").err
    done("init", "films.csv", "--out", "other.yaml", "--force")
    assert "films" in Path("other.yaml").read_text(encoding="utf-8")
    assert "there is no folder" in understill("init", "tickets.csv", "--out", "none/a.yaml").err


def test_check_shows_tasks_models_and_a_time(at: Desk) -> None:
    assert re.search(r"tickets +│ classification │ message +│ billing, delivery +│ train \d+, dev \d+", at.check.out)
    assert re.search(r"pairs +│ classification │ question, candidate", at.check.out)
    assert re.search(r"train +│ multi +│ tickets, films, pairs +│ to be trained +│ 6 +│ \d+ (s|min)", at.check.out)
    assert "recipe and data are fine; training would take about" in at.check.out
    assert at.check.err == ""


def test_check_prints_the_whole_recipe_when_asked(at: Desk) -> None:
    told = done("check", "recipe.yaml", *at.sets, "--full")
    assert "  layer_decay: 1.0\n" in told.out
    assert "nothing is left to train" in told.out


def test_run_ends_with_scores_and_where_the_files_are(at: Desk) -> None:
    for task in ("tickets", "films", "pairs", "mean"):
        assert re.search(rf"│ {task} +│ [a-z ]+ +│ +[\d.]+ │ +[\d.]+ │", at.run.out), task
    assert at.run.out.splitlines()[-2:] == ["run folder: runs/my-tasks", "report: runs/my-tasks/report.html"]
    assert f"model multi: {model_folder()}" in at.run.out
    assert "training multi" in at.run.err
    assert "step 6: dev mean" in at.run.err
    told = json.loads(Path("runs/my-tasks/run.json").read_text(encoding="utf-8"))
    assert Path("runs/my-tasks", told["models"]["multi"]["folder"]).resolve() == model_folder().resolve()


def test_the_same_run_again_trains_nothing(at: Desk) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path("runs/artifacts").rglob("*") if path.is_file()}
    told = done("run", "recipe.yaml", *at.sets)
    assert told.err == "already trained: multi\n"
    assert told.out == at.run.out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_recipe_of_a_run_is_enough_to_run_it_again(at: Desk) -> None:
    told = done("run", "runs/my-tasks/recipe.yaml")
    assert told.err == "already trained: multi\n"


@pytest.mark.parametrize("place", ["run folder", "model folder"])
def test_evaluate_gives_the_scores_of_the_run(at: Desk, tmp_path: Path, place: str) -> None:
    model = Path("runs/my-tasks") if place == "run folder" else model_folder()
    told = done("evaluate", model, "--out", tmp_path / "kept")
    of_run = re.findall(r"│ (\w+) +│ (\w+) +│ +[\d.]+ │ +[\d.]+ │ +([\d.]+)(?: ↓)? +│", at.run.out)
    assert len(of_run) == 3
    assert re.findall(r"│ (\w+) +│ (\w+) +│ +([\d.]+) │", told.out) == of_run
    assert f"predictions: {tmp_path / 'kept'}" in told.out
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        f"{task}.dev.parquet" for task in ("tickets", "films", "pairs")
    }


def test_evaluate_takes_another_recipe(at: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "tasks: {films: {train: films.csv, dev: films.csv, text: review, label: liked}}\n"
        f"output: {{folder: {tmp_path / 'runs'}}}\n",
        encoding="utf-8",
    )
    told = done("evaluate", "runs/my-tasks", "--recipe", other, "--set", "machine.device=cpu")
    assert re.search(r"│ films +│ accuracy", told.out)
    assert "tickets" not in told.out and "mean" not in told.out
    wrong = understill("evaluate", "runs/my-tasks", "--recipe", other, "--set", "tasks=[sst2]", "--set", "data.glue=.")
    assert wrong.code == 2


def test_teach_trains_only_the_named_model(at: Desk, tmp_path: Path) -> None:
    elsewhere = ["--set", f"output.folder={tmp_path / 'out'}", "--set", "models=each"]
    told = done("teach", "recipe.yaml", "--model", "films", *at.sets, *elsewhere)
    (trained,) = (tmp_path / "out" / "artifacts").glob("model-*/model")
    assert trained.parent.name.startswith("model-films-")
    assert told.out.endswith(f"model: {trained}\n")
    assert re.search(r"│ films +│ accuracy +│", told.out)
    assert "mean" not in told.out
    record = json.loads((tmp_path / "out" / "my-tasks" / "run.json").read_text())
    assert record["state"] == "running" and trained.parent.name in record["uses"], "so that it is not cleaned away"
    again = done("teach", "recipe.yaml", "--model", "films", *at.sets, *elsewhere)
    assert again.err == "already trained: films\n"


# Predict -------------------------------------------------------------------------------------------------------------


def test_predict_answers_texts_for_every_task_that_reads_one(at: Desk) -> None:
    lines = done("predict", "runs/my-tasks", "--text", "The parcel never came", "--text", "[good]").out.splitlines()
    assert lines[0] == "The parcel never came"
    assert lines[3] == "[good]"
    assert re.fullmatch(r"  tickets: (billing|delivery) \(\d+%\), (billing|delivery) \d+%", lines[1])
    assert re.fullmatch(r"  films: (yes|no) \(\d+%\), (yes|no) \d+%", lines[2])
    assert len(lines) == 6


def test_predict_answers_pairs(at: Desk) -> None:
    told = done("predict", model_folder(), "--text", "The password", "--second", "A password")
    assert re.fullmatch(r"The password \| A password\n  pairs: [01] \(\d+%\), [01] \d+%\n", told.out)


def test_predict_takes_several_second_texts_for_one_first(at: Desk) -> None:
    told = done("predict", model_folder(), "--text", "The password", "--second", "A password", "--second", "A parcel")
    lines = told.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "The password | A password",
        "The password | A parcel",
    ]


def test_predict_answers_only_the_task_asked_for(at: Desk) -> None:
    assert len(done("predict", "runs/my-tasks", "--text", "good", "--task", "films").out.splitlines()) == 2
    assert 'did you mean "films"?' in understill("predict", "runs/my-tasks", "--text", "a", "--task", "film").err
    assert "task pairs reads two texts" in understill("predict", "runs/my-tasks", "--text", "a", "--task", "pairs").err


TEXTS = ["The film was good", "far too long, not bad", "My account"]


def read_answers(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, object]] = pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        rows = pacsv.read_csv(path).to_pylist()
    else:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return rows


def write_texts(path: Path) -> Path:
    if path.suffix == ".parquet":
        import pyarrow as pa

        pq.write_table(pa.table({"review": TEXTS}), path)
    elif path.suffix == ".csv":
        write(path, ["review"], [(text,) for text in TEXTS])
    else:
        path.write_text("".join(json.dumps({"review": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.mark.parametrize("source", ["in.csv", "in.parquet", "in.jsonl"])
@pytest.mark.parametrize("target", ["out.csv", "out.parquet", "out.jsonl"])
def test_predict_reads_and_writes_every_format(at: Desk, tmp_path: Path, source: str, target: str) -> None:
    file = write_texts(tmp_path / source)
    told = done("predict", "runs/my-tasks", "--file", file, "--out", tmp_path / target, "--device", "cpu")
    assert told.out == f"3 rows answered for films: {tmp_path / target}\n"
    rows = read_answers(tmp_path / target)
    assert [row["review"] for row in rows] == TEXTS
    shown = done("predict", "runs/my-tasks", "--task", "films", *(w for text in TEXTS for w in ("--text", text))).out
    assert [row["films_predicted"] for row in rows] == re.findall(r"films: (\w+)", shown)
    assert all(0.5 <= float(str(row["films_probability"])) <= 1 for row in rows)


def test_predict_says_which_rows_had_no_answer(at: Desk, tmp_path: Path) -> None:
    write(tmp_path / "in.csv", ["body"], [("The film was good",), ("  ",)])
    arguments = ("--file", tmp_path / "in.csv", "--out", tmp_path / "out.jsonl", "--columns", "body")
    told = done("predict", "runs/my-tasks", *arguments)
    assert "1 of 2 rows answered for tickets, films" in told.out
    assert (
        f'1 row without an answer of every task, cells kept:\n  {tmp_path}/in.csv:3: no text in column "body"'
        in told.out
    )
    assert read_answers(tmp_path / "out.jsonl")[1]["films_predicted"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a", "--file", "in.csv"], "give either --text or --file"),
        (["--file", "in.csv"], "--file needs --out"),
        (["--file", "in.csv", "--out", "out.csv", "--second", "b"], "--second goes with --text"),
        (["--text", "a", "--out", "out.csv"], "--out, --columns and --encoding go with --file"),
        (["--text", "a", "--text", "b", "--second", "c"], "2 texts and 1 second texts do not make pairs"),
        (["--text", "a", "--device", "gpu"], 'device "gpu": write auto, cpu, cuda or mps'),
        (["--file", "none.csv", "--out", "out.csv"], "none.csv: no such file"),
        (["--file", "films.csv", "--out", "out.docx"], "--out out.docx: the name must end in"),
        (["--file", "films.csv", "--out", "out.csv", "--columns", "a,b,c"], "--columns takes one text column, or two"),
        (["--file", "films.csv", "--out", "out.csv", "--columns", "reviews"], 'did you mean "review"?'),
    ],
)
def test_predict_refuses_what_makes_no_sense(at: Desk, arguments: list[str], message: str) -> None:
    told = understill("predict", "runs/my-tasks", *arguments)
    assert told.code == 2
    assert message in told.err
    assert not Path("out.csv").exists()


# Data and assets -----------------------------------------------------------------------------------------------------


def test_data_lists_the_tasks_that_need_no_files() -> None:
    text = done("data").out
    for name in ("mood", "queue", "follows", "similar", "answer", *GLUE):
        assert re.search(rf"│ {name} +│", text), name


def test_data_shows_a_recipes_tasks_and_some_rows_without_an_encoder(at: Desk) -> None:
    told = done("data", "recipe.yaml", "--examples", "2", "--set", "encoder=./not-there")
    assert re.search(r"│ films +│ classification │ review +│ no, yes", told.out)
    assert "tickets (train):\n  " in told.out
    assert re.search(
        r"pairs \(train\):\n  [01]: The password of account \d+ \| Reset password \d+, \d times\n", told.out
    )
    assert len(re.findall(r"^  (?:yes|no): ", told.out, flags=re.MULTILINE)) == 2


def test_data_compares_a_glue_folder_with_the_official_counts(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    lines = ["index\tsentence1\tsentence2\tlabel", "0\tIt rains.\tIt is wet.\tentailment"]
    lines.append("1\tIt snows.\tIt is hot.\tnot_entailment")
    (tmp_path / "RTE" / "dev.tsv").write_text("\n".join(lines), encoding="utf-8")
    told = done("data", "--glue", tmp_path)
    assert re.search(r"│ rte +│ dev +│ +2 │ +277 │ differs", told.out)
    assert re.search(r"│ rte +│ train +│ +0 │ +2,490 │ missing", told.out)
    assert len(re.findall("missing|differs", told.out)) == sum(len(entry.counts) for entry in GLUE.values())


def test_assets_are_listed_with_how_to_get_them() -> None:
    text = done("assets").out
    assert re.search(r"^minilm: .* \(83 MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)
    assert re.search(r"^bge: .* \(23 MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)
    assert re.search(r"^mpnet: .* \(404 MB\)\n  (installed|not installed: pip install)", text, flags=re.MULTILINE)


# Distillation --------------------------------------------------------------------------------------------------------


class School(NamedTuple):
    """A folder with a distillation recipe, and what the user was told before and after the run."""

    folder: Path
    before: Told
    run: Told


@pytest.fixture(scope="module")
def school(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> School:
    """A user shows what a small distillation recipe would do, and runs it."""
    folder = tmp_path_factory.mktemp("school")
    (folder / "small.yaml").write_text(
        f"""
name: small
data: {{demo: {{rows: 40}}}}
tasks: [mood, similar]
encoder: {{name: {tiny}, max_length: 32}}
training: {{steps: 4, batch: 8, lr: 1e-3, evaluate: never}}
teachers: [{{name: large, tasks: each}}]
targets: {{weak: keep}}
student: {{encoder: {{layers: 1}}}}
machine: {{device: cpu, threads: 1}}
""",
        encoding="utf-8",
    )
    with inside(folder):
        before = done("run", "small.yaml", "--dry-run")
        assert sorted(path.name for path in Path("runs").iterdir()) == ["cache"], "data are read, and nothing is begun"
        run = done("run", "small.yaml")
    return School(folder, before, run)


@pytest.fixture
def pupil(school: School, monkeypatch: pytest.MonkeyPatch) -> School:
    """The school, with the user in it."""
    monkeypatch.chdir(school.folder)
    return school


MODELS = {"large-mood": "mood", "large-similar": "similar", "baseline": "mood, similar", "student": "mood, similar"}


def states(text: str) -> dict[str, str]:
    """Read the stages of a plan: the state of each model, and of each task's soft targets."""
    trained = "(?:train|distil)"
    models = {
        name: rf"│ {trained} +│ {name} +│ {tasks} +│ (done|to be trained) +│ model-" for name, tasks in MODELS.items()
    }
    tables = {
        task: rf"│ label +│ {task}/train by large +│ +│ (done|to be written) +│ targets-"
        for task in ("mood", "similar")
    }
    found = {name: re.findall(pattern, text) for name, pattern in {**models, **tables}.items()}
    assert all(len(each) == 1 for each in found.values()), text
    return {name: state for name, (state,) in found.items()}


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(pupil: School) -> None:
    written = {"mood": "to be written", "similar": "to be written"}
    assert states(pupil.before.out) == {**dict.fromkeys(MODELS, "to be trained"), **written}
    assert pupil.before.out.endswith("nothing was run; 4 of 4 models are to be trained\n")
    assert "training" not in pupil.before.err


def test_after_a_run_a_dry_run_says_what_is_there(pupil: School) -> None:
    told = done("run", "small.yaml", "--dry-run")
    assert set(states(told.out).values()) == {"done"}
    assert told.out.endswith("nothing was run; 0 of 4 models are to be trained\n")
    warmer = states(done("run", "small.yaml", "--dry-run", "--set", "student.distil.temperature=2").out)
    assert [name for name, state in warmer.items() if state != "done"] == ["student"]


def test_a_run_shows_the_student_beside_its_teachers_and_baseline(pupil: School) -> None:
    columns = ("majority", "linear probe", "teachers", "baseline", "student")
    head = rf"│ task +│ metric +│ {' +│ '.join(columns)} +│"
    assert re.search(head, pupil.run.out.replace("┃", "│"))
    assert re.search(r"^student against the same student without teachers: [+-][\d.]+", pupil.run.out, re.MULTILINE)
    assert "teachers: 2 models in runs/small/models" in pupil.run.out
    assert "understill predict runs/small " in pupil.run.out


def test_runs_lists_a_run_with_the_dev_means_of_student_and_baseline(pupil: School) -> None:
    (means,) = re.findall(r"│ mean +│ first of each +(?:│ +[\d.]+ +){3}│ +([\d.]+) +│ +([\d.]+) +│", pupil.run.out)
    told = " ".join(done("runs").out.replace("│", " ").split())  # a narrow table breaks its lines
    size = sum(path.stat().st_size for path in Path("runs/artifacts").rglob("*") if path.is_file()) / 1e6
    assert re.search(r"small \d{4}-\d\d-\d\d .*done", told)
    assert f"baseline {means[0]}" in told and f"student {means[1]}" in told
    assert f"{size:.1f} MB" in told


def test_evaluate_and_predict_take_the_student_of_a_run(pupil: School, tmp_path: Path) -> None:
    scores = json.loads(Path("runs/small/run.json").read_text())["models"]["student"]["scores"]
    told = done("evaluate", "runs/small", "--out", tmp_path)
    (shown,) = re.findall(r"│ mood +│ accuracy +│ +([\d.]+) │", told.out)
    assert shown == f"{100 * scores['mood/dev']['accuracy']:.1f}"
    rows = {
        name: pq.read_table(Path("runs/small/models", name).resolve().parent / "predictions" / "mood.dev.parquet")
        for name in ("student", "baseline")
    }
    assert pq.read_table(tmp_path / "mood.dev.parquet").equals(rows["student"])
    assert not rows["student"].equals(rows["baseline"])
    file = write_texts(tmp_path / "in.csv")
    asked = {}
    for name, model in {"run": "runs/small", **{name: f"runs/small/models/{name}" for name in rows}}.items():
        place = tmp_path / f"{name}.jsonl"
        done("predict", model, "--file", file, "--columns", "review", "--task", "mood", "--out", place)
        asked[name] = read_answers(place)
    assert asked["run"] == asked["student"] != asked["baseline"]
    told = done("predict", "runs/small", "--text", "The parcel never came")
    assert re.fullmatch(r"The parcel never came\n  mood: (calm|upset) \(\d+%\), (calm|upset) \d+%\n", told.out)


def test_teach_trains_a_student_with_all_that_it_needs_and_nothing_else(pupil: School, tmp_path: Path) -> None:
    elsewhere = ("--set", f"output.folder={tmp_path / 'out'}")
    told = done("teach", "small.yaml", "--model", "student", *elsewhere)
    begun = [line.removeprefix("training ") for line in told.err.splitlines() if line.startswith("training ")]
    assert begun == ["large-mood", "large-similar", "student"]
    plan = states(done("run", "small.yaml", "--dry-run", *elsewhere).out)
    assert [name for name, state in plan.items() if state != "done"] == ["baseline"]
    (folder,) = re.findall(r"^model: (.*)$", told.out, re.MULTILINE)
    mine, theirs = (Path(place, "model.safetensors").read_bytes() for place in (folder, "runs/small/models/student"))
    assert mine == theirs, "the same student as the run's"
    assert "to clean: every artefact belongs to a run" in done("clean", tmp_path / "out").out


def test_teach_begins_a_record_that_cannot_be_read_anew(pupil: School, tmp_path: Path) -> None:
    elsewhere = ("--set", f"output.folder={tmp_path / 'out'}", "--set", "tasks=[mood]")
    (tmp_path / "out" / "small").mkdir(parents=True)
    record = tmp_path / "out" / "small" / "run.json"
    record.write_text('{"state": "run', encoding="utf-8")
    done("teach", "small.yaml", "--model", "large-mood", *elsewhere)
    assert json.loads(record.read_text())["state"] == "running"


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


def test_check_opens_teachers_that_were_made_elsewhere(pupil: School, tmp_path: Path) -> None:
    from understill.data import demo

    (batch,) = demo.batches("mood", "train", 40, 0)
    rows = list(zip(batch.column("message").to_pylist(), batch.column("label").to_pylist(), strict=True))
    said = tmp_path / "said.csv"
    sets = ("--set", "tasks=[mood]", "--set", f"teachers=[{{name: llm, predictions: {said}}}]")
    write(said, ["message", "label"], rows)
    assert "recipe and data are fine" in done("check", "small.yaml", *sets).out
    write(said, ["message", "label"], [*rows[:5], (rows[5][0], "angry"), *rows[6:]])
    told = understill("check", "small.yaml", *sets)
    assert told.code == 2
    assert f'{said}:7: unknown label "angry" → known: calm, upset' in told.err


# Two at once ---------------------------------------------------------------------------------------------------------


def test_two_processes_with_the_same_recipe_give_one_model(at: Desk, tmp_path: Path) -> None:
    command = ["-m", "understill", "run", "recipe.yaml", *at.sets, "--set", f"output.folder={tmp_path / 'out'}"]
    both = [finish(process) for process in [start(*command), start(*command)]]
    assert [told.code for told in both] == [0, 0], [told.err for told in both]
    lines = [line for told in both for line in told.err.splitlines()]
    assert lines.count("training multi") == 1
    assert lines.count("already trained: multi") == 1
    (model,) = (tmp_path / "out" / "artifacts").glob("model-*/done.json")
    folder = tmp_path / "out" / "my-tasks"
    ends = [f"run folder: {folder}", f"report: {folder / 'report.html'}"]
    assert [told.out.splitlines()[-2:] for told in both] == [ends, ends]
    first, second = (told.out for told in both)
    assert first == second
    assert not list(model.parent.glob("work")) and not list((tmp_path / "out" / "cache").glob(".*"))


def test_a_run_and_its_report_warn_of_the_data_once(at: Desk, tmp_path: Path) -> None:
    rows = "".join(f"a parcel of number {number},{'yes' if number % 2 else 'no'}\n" for number in range(60))
    (tmp_path / "rows.csv").write_text("text,late\n" + rows + "a row without a label,\n", encoding="utf-8")
    lines = ["tasks: {late: {train: rows.csv, text: text, label: late}}", "data: {on_bad_row: skip}"]
    (tmp_path / "recipe.yaml").write_text("\n".join(lines), encoding="utf-8")
    told = finish(start("-m", "understill", "run", "recipe.yaml", *at.sets, folder=tmp_path))
    assert told.code == 0, told.err
    assert "report: " in told.out
    assert told.err.count("bad rows left out") == 1


def test_one_process_waits_while_another_trains(at: Desk, tmp_path: Path, make_tiny: Callable[..., object]) -> None:
    import threading
    import time

    from filelock import FileLock

    plan = pipeline.make_plan(make_tiny())  # type: ignore[arg-type]
    (model,) = plan.models
    model.folder.parent.mkdir(parents=True)
    events: list[object] = []
    with FileLock(f"{model.folder}.lock"):
        thread = threading.Thread(target=pipeline.teach, args=(plan, [model], events.append))
        thread.start()
        while Waiting(model.name) not in events:
            time.sleep(0.01)
        assert not any(isinstance(event, Teaching) for event in events), "its tokens are made by then, and no more"
        assert not model.done
    thread.join(60)
    assert model.done


def test_a_place_that_cannot_be_written_to_is_one_sentence(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    told = understill("evaluate", "runs/my-tasks", "--out", str(tmp_path / "taken"))
    assert told.code == 2
    assert re.fullmatch(r"error: .*taken.*\n", told.err.splitlines(keepends=True)[-1])
    assert "Traceback" not in told.err
