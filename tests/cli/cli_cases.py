"""What the tests of the command line share: ways to run the program, and a user's files."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from understill import cli


class Output(NamedTuple):
    """What the program answered."""

    code: int
    out: str
    err: str


def understill(*arguments: str | Path) -> Output:
    """Run the program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return Output(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def done(*arguments: str | Path) -> Output:
    """Run the program, which must succeed."""
    output = understill(*arguments)
    assert output.code == 0, output.err
    return output


def start(*arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """Run Python in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, text=True, **pipes)


def finish(process: subprocess.Popen[str]) -> Output:
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    return Output(process.returncode, out, err)


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
    """A user's folder, what they add to each command, and what the first commands printed."""

    folder: Path
    sets: list[str]
    init: Output
    check: Output
    run: Output


class School(NamedTuple):
    """A folder with a distillation recipe, and what was printed before and after the run."""

    folder: Path
    before: Output
    run: Output


def model_folder() -> Path:
    (folder,) = Path("runs/artifacts").glob("model-multi-*/model")
    return folder


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
