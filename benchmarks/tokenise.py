"""How fast rows are tokenised and put into batches, and how much memory that takes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understill.atomic import fingerprint
from understill.data import demo
from understill.data.batch import Stream, in_order
from understill.data.batches import Batches
from understill.data.check import row_id
from understill.data.taskdata import TaskData, Writer
from understill.data.tokens import BLOCK_ROWS, TextEncoder, tokenise
from understill.models.encoder import load_tokenizer

MIB = 1 << 20


def memory() -> dict[str, float]:
    """Return peak resident, resident and anonymous memory of this process in MiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"VmHWM": peak / (MIB if platform.system() == "Darwin" else 1024)}
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "RssAnon") if name in lines}


class Stages:
    """What each part took; anonymous memory is sampled, the resident peak is the kernel's own."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        self.anonymous = 0.0

    def sample(self, _: int = 0) -> None:
        """Look at the anonymous memory now."""
        self.anonymous = max(self.anonymous, memory().get("RssAnon", 0.0))

    @contextmanager
    def stage(self, name: str, rows: int) -> Iterator[None]:
        """Measure one part, with a peak of its own where the kernel lets us reset it."""
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.anonymous = 0.0
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.sample()
        result = {
            "stage": name, "rows": rows, "seconds": round(seconds, 2), "rows_per_second": round(rows / seconds),
            "peak_resident_mib": round(memory()["VmHWM"]), "peak_anonymous_mib": round(self.anonymous),
        }  # fmt: skip
        self.results.append(result)
        print(
            f"{name:<22} {rows:>12,} rows {seconds:>8.1f} s {result['rows_per_second']:>10,} rows/s"
            f"   peak resident {result['peak_resident_mib']:>6,} MiB, anonymous {result['peak_anonymous_mib']:>6,} MiB",
            flush=True,
        )


def generate(folder: Path, name: str, rows: int, seed: int, sample: Callable[[int], None]) -> TaskData:
    """Stream demo rows to an Arrow file."""
    task = demo.TASKS[name]
    path = folder / "data.arrow"
    writer = Writer(path, task)
    for batch in demo.batches(name, "train", rows, seed, 8192):
        texts = [batch.column(column) for column in task.text]
        ids = [row_id(name, row) for row in zip(*(text.to_pylist() for text in texts), strict=True)]
        names = ["id", *(f"text{number}" for number in range(1, len(texts) + 1)), "label"]
        writer.add_batch(pa.RecordBatch.from_arrays([pa.array(ids), *texts, batch.column("label")], names=names))
        sample(batch.num_rows)
    writer.close()
    return TaskData(task, "train", path, fingerprint(["benchmark", name, rows, seed]), rows)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run every part once."""
    tokenizer = load_tokenizer("minilm")
    stages, rows = Stages(), options.rows
    with stages.stage("generate", rows):
        data = generate(folder, options.task, rows, options.seed, stages.sample)
    with stages.stage("tokenise", rows):
        tokens = tokenise(data, tokenizer, options.max_length, folder, progress=stages.sample)
    with stages.stage("open and check", rows):
        tokens = tokenise(data, tokenizer, options.max_length, folder)
    batches = Batches([Stream(0, [tokens])], batch=128, seed=options.seed)
    with stages.stage("plan an epoch", rows):
        batches.rows(0)
    steps = min(batches.steps_per_epoch, options.steps)
    with stages.stage("make batches", steps * 128):
        for step in range(steps):
            batches[step]
    with stages.stage("read in order", min(rows, options.steps * 128)):
        for _, piece in zip(range(options.steps), in_order(tokens, 0, 128), strict=False):
            len(piece)
    return {
        "task": options.task, "rows": rows, "tokens": len(tokens.ids), "cpus": os.cpu_count(),
        "text_file_mib": round(data.path.stat().st_size / MIB),
        "token_files_mib": round(sum(path.stat().st_size for path in tokens.folder.iterdir()) / MIB),
        "padding_share": round(batches.padding_share(0, batches.steps_per_epoch), 4), "stages": stages.results,
    }  # fmt: skip


def look_up(path: Path, max_length: int, rounds: int) -> list[dict[str, Any]]:
    """Let the tokeniser, and looking its words up, take turns at the texts of a file: seconds of one core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    table = pq.read_table(path)
    columns = [table[name].to_pylist() for name in ("sentence1", "sentence2") if name in table.column_names]
    rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    tokenizer = TextEncoder(load_tokenizer("minilm")).row_tokenizer
    blocks = [rows[start : start + BLOCK_ROWS] for start in range(0, len(rows), BLOCK_ROWS)]
    ways = {"asked": tokenizer._ask, "looked up": tokenizer}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        made = []
        for name, way in ways.items():
            start = time.process_time()
            made.append([way(block, max_length) for block in blocks])
            seconds[name].append(time.process_time() - start)
        for one, other in zip(*made, strict=True):
            assert all(map(np.array_equal, one, other))
    actual = [
        {"way": name, "rows": len(rows), "seconds": taken, "rows_per_second": round(len(rows) / median(taken))}
        for name, taken in seconds.items()
    ]
    for each in actual:
        print(f"{path.parent.name:<12} {each['way']:<10} {each['rows_per_second']:>10,} rows/s of one core")
    return actual


def main() -> None:
    """Read the options, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--small", action="store_true", help="20,000 rows, for a quick look")
    parser.add_argument("--task", default="mood", choices=list(demo.TASKS), help="which demo task's rows")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=2000, help="batches of 128 rows to make")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=Path, nargs="+", help="only look words up, in Parquet files of GLUE")
    parser.add_argument("--rounds", type=int, default=5, help="turns with --texts; the first one learns the words")
    parser.add_argument("--folder", type=Path, help="where to write the rows and tokens, instead of a temporary folder")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    if options.small:
        options.rows = 20_000
    if options.texts:
        figures = {path.parent.name: look_up(path, options.max_length, options.rounds) for path in options.texts}
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            figures = measure(options, Path(folder))
        print({key: value for key, value in figures.items() if key != "stages"})
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
