"""Every broken input gives exit 2 and one clear message, which is kept beside it in expected.txt.

A case is a folder of tests/broken with what the user has, and in command.txt what they type after `understill`
(`check recipe.yaml` where there is none). `UPDATE_SNAPSHOTS=1 pytest tests/test_broken.py` writes the messages anew.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = Path(__file__).parent / "broken"
CASES = sorted(path.name for path in BROKEN.iterdir() if path.is_dir())
#: These go through the program as it is installed; the others through the same function, for speed.
IN_A_PROCESS = ("yaml-tabs", "recipe-unknown-keys", "init-no-label", "encoder-nowhere")


def command(case: str, tiny: Path) -> list[str]:
    """What the user types."""
    file = BROKEN / case / "command.txt"
    line = file.read_text(encoding="utf-8") if file.exists() else "check recipe.yaml"
    return [word.replace("{tiny}", str(tiny)) for word in shlex.split(line)]


def copied(case: str, folder: Path) -> Path:
    """What the user has, in a folder that may be written to."""
    there = folder / "here"
    shutil.copytree(BROKEN / case, there, ignore=shutil.ignore_patterns("command.txt", "expected.txt"))
    return there


def run_here(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the program in this process."""
    from understill.cli import main

    with pytest.raises(SystemExit) as stop:
        main(arguments)
    shown = capfd.readouterr()
    return int(stop.value.code or 0), shown.out, shown.err


def run_alone(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Run the program in a process of its own."""
    reported = subprocess.run(
        [sys.executable, "-m", "understill", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return reported.returncode, reported.stdout, reported.stderr


def check_message(case: str, message: str, folder: Path, tiny: Path) -> None:
    """Compare with the message that was read and found good, without this machine's paths."""
    for path in sorted({str(folder.resolve()), str(folder)}, key=len, reverse=True):
        message = message.replace(path, "<here>")
    message = message.replace(str(tiny), "<tiny>")
    expected = BROKEN / case / "expected.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        expected.write_text(message, encoding="utf-8")
    assert message == expected.read_text(encoding="utf-8")


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 90
    about = {case.split("-")[0] for case in CASES}
    assert about >= {"yaml", "recipe", "set", "task", "glue", "encoder", "file", "csv", "jsonl", "gzip", "parquet"}
    assert set(IN_A_PROCESS) <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_broken_input_gives_exit_2_and_one_clear_message(
    case: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(case, tmp_path)
    monkeypatch.chdir(folder)
    # The same message on a machine with a GPU as on one without.
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, out, err = run_here(command(case, tiny), capfd)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("error:") == 1
    assert "Traceback" not in err
    check_message(case, err, folder, tiny)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("case", IN_A_PROCESS)
def test_the_installed_program_says_the_same(case: str, tiny: Path, tmp_path: Path) -> None:
    folder = copied(case, tmp_path)
    code, out, err = run_alone(command(case, tiny), folder)
    assert (code, out) == (2, "")
    check_message(case, err, folder, tiny)
