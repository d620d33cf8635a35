"""The program as a user meets it: help, version and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_cases import Desk, done, finish, start, understill

VERBS = (
    "init",
    "check",
    "run",
    "train",
    "evaluate",
    "compare",
    "report",
    "submit",
    "export",
    "serve",
    "bench",
    "label",
    "predict",
    "data",
    "runs",
    "verify",
    "clean",
    "assets",
)


HEAVY = {"torch", "transformers", "pyarrow", "numpy", "pydantic", "sklearn", "scipy", "accelerate", "datasets"}


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_ends_with_an_example(verb: str) -> None:
    text = done(verb, "--help").out
    assert "Examples" in text
    assert f"understill {verb}" in text[text.index("Examples") :]


def test_the_reference_has_a_line_for_every_verb() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
    listed = re.findall(r"^\| \[`(\w+)`\]", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(VERBS)


@pytest.mark.parametrize(("columns", "width"), [("90", 90), ("", 120), ("wide", 120)])
def test_tables_in_a_file_are_as_wide_as_columns_says(columns: str, width: int) -> None:
    code = "from understill.terminal import console; print(console.out.width)"
    env = {**os.environ, "COLUMNS": columns}
    output = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert output.stdout.strip() == str(width)


def test_the_help_names_every_verb_and_the_first_steps() -> None:
    text = done("--help").out
    assert set(re.findall(r"^│ ([a-z]+) ", text, flags=re.MULTILINE)) == set(VERBS)
    assert "understill run recipes/quickstart.yaml" in text


def test_help_imports_nothing_heavy() -> None:
    output = finish(start("-X", "importtime", "-m", "understill", "--help"))
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in output.err.splitlines() if "|" in line}
    assert output.code == 0
    assert "understill" in imported and "typer" in imported
    assert not imported & HEAVY


def test_a_run_waits_for_no_package_that_it_can_do_without() -> None:
    code = "import sys, understill.engines.study, understill.report.build; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    imported = set(output.stdout.split())
    assert "torch" in imported and not imported & {"sklearn", "pandas", "scipy.stats"}


def test_a_slip_in_a_recipe_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("taks: [mood]\n", encoding="utf-8")
    output = finish(start("-X", "importtime", "-m", "understill", "run", "recipe.yaml", folder=tmp_path))
    assert output.code == 2
    assert 'did you mean "tasks"?' in output.err
    assert not re.search(r"\| +(torch|transformers|pyarrow)$", output.err, flags=re.MULTILINE)


def test_the_version_is_that_of_the_package() -> None:
    assert done("--version").out == f"{version('understill')}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["chekc"], ["check"], ["check", "a", "--what"], ["data", "--examples", "-1"]]
)
def test_what_cannot_be_parsed_is_the_users_mistake(arguments: list[str]) -> None:
    output = understill(*arguments)
    assert output.code == 2
    assert "Usage" in output.out + output.err
    assert "Traceback" not in output.err


def test_a_users_mistake_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    output = understill("check", tmp_path / "none.yaml")
    assert output == (2, "", f"error: {tmp_path / 'none.yaml'}: no such file\n")


FAILING = """
import understill.recipe
from understill.cli import main

def fail(*_):
    raise {error}

understill.recipe.load_recipe = fail
main(["check", "recipe.yaml"])
"""


def test_a_bug_exits_with_1_and_keeps_its_traceback() -> None:
    output = finish(start("-c", FAILING.format(error="ZeroDivisionError('a bug')")))
    assert output.code == 1
    assert "Traceback" in output.err
    assert output.err.endswith("ZeroDivisionError: a bug\n")
    assert "error:" not in output.err


def test_an_interruption_exits_with_130_and_says_how_to_go_on() -> None:
    output = finish(start("-c", FAILING.format(error="KeyboardInterrupt")))
    assert output == (
        130,
        "",
        "\nstopped; the same command resumes from the last checkpoint, or starts again if there is none yet\n",
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("OSError(28, 'No space', 'runs/x')", "runs/x: No space left on device → make room"),
        ("OSError(27, 'Too large')", "File too large → make room"),
        ("OSError(5, 'Input/output error', 'runs/x')", "runs/x: Input/output error → look after the disk"),
        ("OSError(24, '', 'runs/x')", "runs/x: Too many open files → allow more open files, such as by ulimit -n"),
        ("OSError(36, '', 'a' * 300)", "File name too long → choose a shorter name"),
        (
            "FileNotFoundError(2, '', 'runs/x')",
            "runs/x: No such file or directory → was it moved or removed meanwhile?",
        ),
        ("PermissionError(13, '', 'runs/x')", "runs/x: Permission denied → name another place"),
        ("OSError('5 requested and 3 written')", "5 requested and 3 written → understill -v shows where"),
        (
            "OSError(2, \"Failed to open local file '/runs/x'. Detail: [errno 2]\")",
            "/runs/x: No such file or directory →",
        ),
        ("MemoryError()", "Cannot allocate memory → close other programs"),
        (
            'RuntimeError("DefaultCPUAllocator: can\'t allocate memory: 9 bytes")',
            "Cannot allocate memory → close other",
        ),
        (
            "__import__('safetensors').SafetensorError('Error while serializing: No space left (os error 28)')",
            "No space left on device → make room",
        ),
    ],
)
def test_what_the_system_refuses_is_one_sentence_with_what_to_do(error: str, message: str) -> None:
    output = finish(start("-c", FAILING.format(error=error)))
    assert output.code == 2
    assert message in output.err and output.err.startswith("error: ")
    assert output.err.count("\n") == 1


def test_whoever_stops_reading_gets_no_error() -> None:
    output = finish(start("-c", FAILING.format(error="BrokenPipeError(32, 'Broken pipe')")))
    assert output == (1, "", "")


def test_a_place_that_cannot_be_written_to_is_one_sentence(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    output = understill("evaluate", "runs/my-tasks", "--out", str(tmp_path / "taken"))
    assert output.code == 2
    assert re.fullmatch(r"error: .*taken.*\n", output.err.splitlines(keepends=True)[-1])
    assert "Traceback" not in output.err
