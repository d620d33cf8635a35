"""How `understill label` does on millions of rows: killed on the way, its memory, and its speed beside a plain loop.

    python3 benchmarks/label_shards.py --out label_shards.json

Rows of the demo task `mood` are written into shards, and a static student is trained on other rows of it. First the
whole is labelled while the processes are killed at random moments by SIGKILL, all of them at once, and the same command
is called again; then every row is looked for in the output. Some of the shards are then labelled by a loop as one would
write it, by one process, by two and, with `--ray`, by Ray on two nodes of this machine, one after the other.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _side_by_side import show, write
from understill import pipeline
from understill.data import demo
from understill.inference.loading import load
from understill.recipe import make_recipe

MIB = 1 << 20


def make_shards(folder: Path, shards: int, rows: int) -> None:
    """Write demo rows, numbered from 0, in shards."""
    folder.mkdir()
    batches, waiting = demo.batches("mood", "train", shards * rows, 7), pa.table({"message": pa.array([], pa.string())})
    for number in range(shards):
        while waiting.num_rows < rows:
            more = next(batches).column("message")
            waiting = pa.concat_tables([waiting, pa.table({"message": more})])
        numbers = pa.array(range(number * rows, (number + 1) * rows))
        pq.write_table(waiting.slice(0, rows).add_column(0, "nr", numbers), folder / f"part-{number:03}.parquet")
        waiting = waiting.slice(rows)


def train_student(folder: Path, rows: int) -> Path:
    """Train a static student, which answers as fast as a tokeniser gives it words."""
    values = {
        "name": "student", "data": {"demo": {"rows": rows}}, "tasks": ["mood"], "encoder": "static",
        "training": {"epochs": 3, "lr": 2e-3}, "output": {"folder": str(folder)}, "machine": {"device": "cpu"},
    }  # fmt: skip
    return pipeline.run(make_recipe(values)).folder


def plain_loop(model: Path, source: Path, target: Path) -> None:
    """Label as one would by hand: a shard is read, asked about and written."""
    predictor = load(model)
    target.mkdir()
    for path in sorted(source.glob("*.parquet")):
        table = pq.read_table(path)
        answers = predictor.predict(table.column("message").to_pylist())["mood"]
        table = table.append_column("mood", pa.array([answer.label for answer in answers]))
        for label in predictor.tasks[0].labels:
            shares = [(answer.probabilities or {})[label] for answer in answers]
            table = table.append_column(label, pa.array(shares, pa.float32()))
        pq.write_table(table, target / path.name)


# Processes ------------------------------------------------------------------------------------------------------------


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from tree(int(child))


def resident(pid: int) -> float:
    """Return the resident memory of a process and of those that it has started, in MiB; shared pages count twice."""
    total = 0
    for each in tree(pid):
        try:
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # it has just ended
            continue
    return total / MIB


def call(arguments: Sequence[object], kill_after: float | None = None) -> tuple[bool, float, float]:
    """Run understill; return whether it ended by itself, its seconds and its peak memory."""
    program = [sys.executable, "-m", "understill", *map(str, arguments)]
    begun, peak = time.monotonic(), 0.0
    with subprocess.Popen(program, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            if kill_after is not None and time.monotonic() - begun > kill_after:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.05)
        status = process.wait()
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"understill label ended with {status}")
    return status == 0, time.monotonic() - begun, peak


def label_killed(model: Path, source: Path, target: Path, processes: int, kills: int, seconds: float) -> dict[str, Any]:
    """Label shards while the processes are killed so many times, each within so many seconds."""
    chance, peak, spent, killed, calls = random.Random(0), 0.0, 0.0, 0, 0
    done = False
    while not done:
        wait = chance.uniform(0.2, 1) * seconds if killed < kills else None
        arguments = ("label", model, "--in", source, "--out", target, "--processes", processes)
        done, took, high = call(arguments, wait)
        calls, killed, peak, spent = calls + 1, killed + (not done), max(peak, high), spent + took
    return {"processes": processes, "calls": calls, "kills": killed, "seconds": spent, "peak_mib": peak}


def check(source: Path, target: Path) -> dict[str, Any]:
    """Make sure that every row is in the output of its shard exactly once, with a label, and nothing else is there."""
    names = sorted(path.name for path in source.iterdir())
    there = sorted(path.name for path in target.iterdir())
    if there != [".done", *names]:
        raise SystemExit(f"the output holds {len(there)} names for {len(names)} shards")
    rows = 0
    for name in names:
        before, after = (pq.ParquetFile(folder / name) for folder in (source, target))
        columns = after.read(["nr", "mood_predicted", "mood_logit_calm"])
        numbers = before.read(["nr"]).column("nr").to_numpy()
        if not np.array_equal(numbers, columns.column("nr").to_numpy()) or columns.column("mood_logit_calm").null_count:
            raise SystemExit(f"{name} does not hold every row once, with its label")
        rows += len(numbers)
    return {"rows": rows, "shards": len(names)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a size for two CPU cores and a minute")
    parser.add_argument("--shards", type=int, help="50 or, with --small, 4")
    parser.add_argument("--rows", type=int, help="of a shard; 100,000 or, with --small, 2,000")
    parser.add_argument("--kills", type=int, help="3 or, with --small, 1")
    parser.add_argument("--some", type=int, help="shards that every variant labels; 8 or, with --small, 2")
    parser.add_argument("--ray", action="store_true", help="also by Ray, on two nodes of this machine")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder if not given")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args(arguments)
    for name, usual, small in (("shards", 50, 4), ("rows", 100_000, 2000), ("kills", 3, 1), ("some", 8, 2)):
        setattr(options, name, getattr(options, name) or (small if options.small else usual))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        model = train_student(folder / "runs", 500 if options.small else 4000)
        make_shards(folder / "shards", options.shards, options.rows)
        result = [killed_run(folder, model, options), *side_by_side(folder, model, options)]
    lines = [
        [
            each["variant"], f"{each['rows']:,}", f"{each['seconds']:,.0f}", f"{each['rows_per_second']:,.0f}",
            f"{each['rows'] / each['cpu_seconds']:,.0f}" if each["cpu_seconds"] else "",
            f"{each['peak_mib']:,.0f}" if each["peak_mib"] else "",
        ]
        for each in result
    ]  # fmt: skip
    show("Labelling shards", 1, ["variant", "rows", "seconds", "rows/s", "rows/s of a core", "peak MiB"], lines)
    settings = {key: getattr(options, key) for key in ("shards", "rows", "kills", "some")}
    write(options.out, "cpu", {**settings, "cores": os.cpu_count(), "load": os.getloadavg()}, result)


def killed_run(folder: Path, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Label everything by two processes that are killed on the way, and look for every row."""
    seconds = 12 if options.small else 60
    killed = label_killed(model, folder / "shards", folder / "labelled", 2, options.kills, seconds)
    facts = check(folder / "shards", folder / "labelled")
    return {
        "variant": f"two processes, killed {killed['kills']} times", **facts, **killed,
        "rows_per_second": facts["rows"] / killed["seconds"], "cpu_seconds": None,
    }  # fmt: skip


def side_by_side(folder: Path, model: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Label some shards in every way, with the start of the program and the loading of the model."""
    some = folder / "some"
    some.mkdir()
    for path in sorted((folder / "shards").iterdir())[: options.some]:
        (some / path.name).hardlink_to(path)
    begun, cpu = time.monotonic(), time.process_time()
    plain_loop(model, some, folder / "plain")
    rows = options.some * options.rows
    result = [("a plain loop", time.monotonic() - begun, time.process_time() - cpu, None)]
    ways = {"one process": (), "two processes": ("--processes", 2)}
    if options.ray:
        ways["Ray, two nodes"] = ("--engine", "ray", "--processes", 2)
    for name, more in ways.items():
        target = folder / name.replace(" ", "-")
        cpu = spent()
        _, seconds, peak = call(("label", model, "--in", some, "--out", target, *more))
        check(some, target)
        result.append((name, seconds, spent() - cpu, peak))
    for name, seconds, cpu, peak in result:
        yield {
            "variant": name, "rows": rows, "seconds": seconds, "rows_per_second": rows / seconds,
            "cpu_seconds": cpu, "peak_mib": peak,
        }  # fmt: skip


def spent() -> float:
    """Return the processor time of all processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
