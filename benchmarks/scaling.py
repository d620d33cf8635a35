"""How time and memory grow with rows, sequence length, tasks and teachers; each point in a process of its own.

    python3 benchmarks/scaling.py --out scaling.json

A point tokenises the rows of the demo data, plans an epoch, lets each teacher label all rows, and takes some training
steps on what they said. What is done once for each row should take time in line with rows and teachers, so µs/row
should stay the same; the exponent is the slope of log time against log rows, and 1 is linear. A training step should
take as long however many rows there are. For the axis "length" messages are joined until rows are as long as that.
Memory is what the process took at its most, pages of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig

from _side_by_side import ENDLESS, Ours, chosen_device, common_options, now, our_model, quiet, show, write
from tokenise import memory
from understill.atomic import fingerprint
from understill.data import demo
from understill.data.batch import Stream
from understill.data.batches import Batches
from understill.data.check import row_id
from understill.data.taskdata import TaskData, Writer
from understill.data.tokens import encode, tokenise
from understill.evaluate.predict import predict_all
from understill.losses.fused import FusedObjective
from understill.models.encoder import load_tokenizer, resolve
from understill.recipe.schema import Distil, Machine, Training
from understill.targets.ensemble import join
from understill.train.device import make_accelerator

TASKS = ("queue", "mood", "follows", "similar")
#: Fewer tokens than nearly every message of "queue" has.
MESSAGE = 20
MAX_LENGTH = 64
#: The stages whose work is done once for each row.
STAGES = ("tokenise", "plan", "label")
AXES = {"rows": (), "length": (32, 128), "tasks": (1, 4), "teachers": (1, 4)}


# Rows ----------------------------------------------------------------------------------------------------------------


def shape(point: dict[str, Any]) -> tuple[tuple[str, ...], int, int]:
    """Return the tasks of a point, the rows of each, and how many messages are joined in a text."""
    names = TASKS[: point["tasks"]]
    return names, point["rows"] // len(names), -(-point["length"] // MESSAGE) if point["length"] else 1


def generate(point: dict[str, Any], folder: Path) -> None:
    """Write the demo rows of a point to Arrow files; the process that is measured does not make them."""
    names, rows, joined = shape(point)
    for name in names:
        writer = Writer(folder / f"{name}.arrow", task := demo.TASKS[name])
        for batch in demo.batches(name, "train", rows, 0):
            first, *more = (batch.column(column).to_pylist() for column in task.text)
            twice = first + first
            around = [twice[row : row + joined] for row in range(len(first))]
            texts = [[" ".join(messages) for messages in around], *more]
            ids = [row_id(name, row) for row in zip(*texts, strict=True)]
            keys = ["id", *(f"text{number}" for number in range(1, len(texts) + 1)), "label"]
            columns = [pa.array(ids), *map(pa.array, texts), batch.column("label")]
            writer.add_batch(pa.RecordBatch.from_arrays(columns, names=keys))
        writer.close()


def rows_of(point: dict[str, Any], folder: Path) -> list[TaskData]:
    """Return what `generate` wrote."""
    names, rows, joined = shape(point)
    digests = [fingerprint(["scaling", name, rows, joined]) for name in names]
    return [
        TaskData(demo.TASKS[name], "train", folder / f"{name}.arrow", digest, rows)
        for name, digest in zip(names, digests, strict=True)
    ]


# One point, in a process of its own ----------------------------------------------------------------------------------


def measure(point: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Take one point and return its seconds and memory."""
    device, length = point["device"], point["length"] or MAX_LENGTH
    data = rows_of(point, folder)
    tasks = [each.task for each in data]
    tokenizer = load_tokenizer(point["encoder"])
    teachers = [our_model(point["encoder"], tasks, None, length).to(device).eval() for _ in range(point["teachers"])]
    predict_all(teachers[0], encode(["Warming up."] * 256, tokenizer, length), tasks, 64)
    clock, peaks = [now(device)], {"start": memory()["VmHWM"]}
    tokens = [tokenise(each, tokenizer, length, folder) for each in data]
    clock.append(now(device))
    peaks["tokenise"] = memory()["VmHWM"]
    training = Training(steps=ENDLESS, batch=point["batch"])
    Batches([Stream(at, [each]) for at, each in enumerate(tokens)], batch=training.batch, seed=0).rows(0)
    clock.append(now(device))
    peaks["plan"] = memory()["VmHWM"]
    output = [
        join(
            np.stack([predict_all(teacher, own, [task], 64)[task.name].logits for teacher in teachers]),
            task.kind.name == "regression",
            combine="mean_probabilities",
            weights=np.full(len(teachers), 1 / len(teachers)),
            form="log_probabilities",
            temperature=1.0,
        )
        for task, own in zip(tasks, tokens, strict=True)
    ]
    clock.append(now(device))
    peaks["label"] = memory()["VmHWM"]
    streams = [
        Stream(at, [own], columns={"logits": each}) for at, (own, each) in enumerate(zip(tokens, output, strict=True))
    ]
    batches = Batches(streams, batch=training.batch, seed=0)
    student = our_model(point["encoder"], tasks, None, length)
    accelerator = make_accelerator(Machine(device=device), training.precision)
    objective = FusedObjective(tasks, student.spec.regression, Distil())
    loop = Ours(student, objective, batches, training, accelerator, fast=device == "cuda", limit=point["steps"])
    for _ in range(loop.variant("").warm_ups):
        loop()
    rows, seconds = loop()
    peaks["train"] = memory()["VmHWM"]
    stages = dict(zip(STAGES, np.diff(clock).tolist(), strict=True))
    return {
        **stages, "seconds": sum(stages.values()), "step": seconds * training.batch / rows,
        "tokens": int(sum(len(each.ids) for each in tokens)), "peak_mib": peaks["train"], "peaks_mib": peaks,
        "cuda_peak_mib": torch.cuda.max_memory_allocated() / (1 << 20) if device == "cuda" else None,
    }  # fmt: skip


# All points ----------------------------------------------------------------------------------------------------------


def points(options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield axis, value and point; the middle number of rows is where the other axes begin."""
    base = {"rows": options.rows // 10, "length": None, "tasks": 1, "teachers": 1}
    for axis in options.axes:
        for value in AXES[axis] or (options.rows // 100, options.rows // 10, options.rows):
            yield axis, value, {**base, axis: value}


def take(point: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Measure a point in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        generate(point, Path(folder))
        command = [sys.executable, __file__, "--point", json.dumps({**point, **settings, "folder": folder})]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{point}: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def tiny(folder: Path) -> str:
    """Write a small encoder of random weights, with the tokeniser of minilm, and return its place."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm"))
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    with quiet():
        AutoModel.from_config(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def slope(rows: list[dict[str, Any]], key: str) -> float:
    """Return the exponent with which seconds grow with rows."""
    return float(np.polyfit(np.log([row["value"] for row in rows]), np.log([row[key] for row in rows]), 1)[0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--rows", type=int, help="the most rows; a tenth and a hundredth are taken too")
    parser.add_argument("--steps", type=int, default=20, help="training steps to time")
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        point = json.loads(options.point)
        print(json.dumps(measure(point, Path(point["folder"]))))
        return
    device = chosen_device(options)
    options.rows = options.rows or (100_000 if options.small else 300_000)
    with tempfile.TemporaryDirectory() as folder:
        encoder = options.encoder or (tiny(Path(folder)) if options.small else "minilm")
        settings = {"encoder": encoder, "device": device, "steps": options.steps, "batch": 32 if options.small else 128}
        known: dict[str, dict[str, Any]] = {}
        result = []
        for axis, value, point in points(options):
            place = json.dumps(point)
            if place not in known:
                known[place] = take(point, settings)
            result.append({"axis": axis, "value": value, **point, **known[place]})
    settings["encoder"] = options.encoder or ("tiny" if options.small else "minilm")
    lines = [
        [
            row["axis"], f"{row['value']:,}", *(f"{row[stage]:.2f}" for stage in STAGES),
            f"{1e6 * row['seconds'] / row['rows']:,.1f}", f"{1000 * row['step']:.2f}", f"{row['peak_mib']:,.0f}",
            f"{row['cuda_peak_mib']:,.0f}" if row["cuda_peak_mib"] else "",
        ]
        for row in result
    ]  # fmt: skip
    by_rows = [row for row in result if row["axis"] == "rows"]
    note = ""
    if by_rows:
        settings["exponents"] = {key: slope(by_rows, key) for key in ("seconds", *STAGES, "step")}
        # Buffers of a fixed size are full by the middle point; what is added later is there for every row.
        middle, last = by_rows[-2:]
        grown = (last["peak_mib"] - middle["peak_mib"]) * (1 << 20)
        settings["bytes_per_row"] = grown / (last["value"] - middle["value"])
        figures = ", ".join(f"{key} {value:.2f}" for key, value in settings["exponents"].items())
        note = f"Exponents of time against rows: {figures}. Memory: {settings['bytes_per_row']:,.0f} bytes a row."
    columns = ["axis", "value", *(f"{stage}, s" for stage in STAGES), "µs/row", "ms/step", "peak MiB", "CUDA MiB"]
    show("Growth", 1, columns, lines, note)
    write(options.out, device, settings, result)


if __name__ == "__main__":
    main()
