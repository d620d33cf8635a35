"""One model trained by one process and by several, on the same batches: how far weights and scores are apart.

    python3 benchmarks/processes.py --out processes.json

Every line is a training of its own by `understill train --processes N`, without dropout: by the plain loop in float32
and, on a GPU, on the fast path in bfloat16. Processes that outnumber the GPUs share them; then gradients are summed by
gloo through the CPU, which shows that it works and says nothing about speed. The last line was stopped by SIGTERM with
several processes and resumed with one. Fails where weights are apart by more than a hundredth of the way they went,
or in bfloat16, whose rounding alone leads apart, by more than a half.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import load_file

import understill
from _side_by_side import chosen_device, common_options, show, write

#: Shares of the way that weights went, beyond which several processes do not do what one does.
APART = {"float32": 0.01, "bfloat16": 0.5}


class Variant(NamedTuple):
    """How a model is trained."""

    name: str
    processes: int
    changes: dict[str, Any]
    stopped: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare and print."""
    parser = common_options(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, help="60, or 24 with --small")
    options = parser.parse_args(arguments)
    device = chosen_device(options)
    steps = options.steps or (24 if options.small else 60)
    plain, fast = {"training.precision": "fp32", "machine.fast": "off"}, {"training.precision": "bf16"}
    count = options.processes
    variants = [Variant("plain, float32", 1, plain), Variant("plain, float32", count, plain)]
    if device == "cuda":
        variants += [Variant("fast, bfloat16", 1, fast), Variant("fast, bfloat16", count, fast)]
    variants.append(Variant("plain, float32, resumed", count, plain, stopped=True))
    with tempfile.TemporaryDirectory() as folder:
        recipe = _recipe(Path(folder), options.encoder or "minilm", device, steps, 16 if options.small else 128)
        rows = [_train(Path(folder) / str(number), recipe, variant) for number, variant in enumerate(variants)]
        first = _first_weights(recipe, Path(folder) / "first")
    ones = {row["variant"]: row for row in reversed(rows) if row["processes"] == 1}
    lines, bad = [], []
    for row in rows:
        one = ones.get(row["variant"], rows[0])
        row["apart"] = _apart(first, one["weights"], row["weights"])
        row["scores_apart"] = max(abs(one["scores"][place] - row["scores"][place]) for place in one["scores"])
        figures = (f"{row['apart']:.1e}", f"{100 * row['scores_apart']:.2f}", f"{row['seconds']:.1f}")
        lines.append((row["variant"], str(row["processes"]), *figures))
        bad += [row["variant"]] if row["apart"] > APART[row["variant"].split(", ")[1]] else []
    for row in rows:
        del row["weights"]
    columns = ("how", "processes", "weights apart", "scores apart", "seconds")
    show(f"{steps} steps, against one process", 1, columns, lines, "weights: as a share of the way they went")
    write(options.out, device, {"steps": steps, "gpus": torch.cuda.device_count()}, rows)
    if bad:
        sys.exit(f"too far apart: {', '.join(bad)}")


def _recipe(folder: Path, encoder: str, device: str, steps: int, batch: int) -> Path:
    values = {
        "name": "processes",
        "data": {"demo": True},
        "tasks": ["mood", "follows", "similar"],
        "encoder": {"name": encoder, "dropout": 0.0},
        "heads": {"dropout": 0.0},
        "training": {"steps": steps, "batch": batch, "lr": 1e-4, "evaluate": "never", "checkpoint": "4 steps"},
        "machine": {"device": device},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def _train(folder: Path, recipe: Path, variant: Variant) -> dict[str, Any]:
    """Train a model in processes of its own; return its weights, losses and seconds."""
    sets = [f"output.folder={folder}", *(f"{key}={value}" for key, value in variant.changes.items())]
    command = [sys.executable, "-m", "understill", "train", str(recipe)]
    command += [part for each in sets for part in ("--set", each)]
    paths = os.pathsep.join([str(Path(understill.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    several = ["--processes", str(variant.processes)]
    if variant.stopped:
        process = subprocess.Popen([*command, *several], env=environment)
        while process.poll() is None and not list(folder.glob("artifacts/model-*/work/checkpoint-*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM, "it ended before it could be stopped: take more --steps"
    subprocess.run(command if variant.stopped else [*command, *several], env=environment, check=True)
    (model,) = folder.glob("artifacts/model-*/model")
    scores = json.loads((model.parent / "scores.json").read_text())["scores"]
    return {
        "variant": variant.name,
        "processes": variant.processes,
        "seconds": json.loads((model.parent / "done.json").read_text())["seconds"],
        "weights": load_file(model / "model.safetensors"),
        "scores": {place: next(iter(values.values())) for place, values in scores.items()},
    }


def _first_weights(recipe: Path, folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights before the first step: those after one step of a rate of next to nothing."""
    row = _train(folder, recipe, Variant("", 1, {"training.steps": 1, "training.lr": 1e-30, "machine.device": "cpu"}))
    return row["weights"]  # type: ignore[no-any-return]


def _apart(first: dict[str, Any], one: dict[str, Any], two: dict[str, Any]) -> float:
    """Return how far weights are apart, as a share of the way they went."""
    apart = sum(float((one[name] - two[name]).double().square().sum()) for name in one)
    went = sum(float((one[name] - first[name]).double().square().sum()) for name in one)
    return math.sqrt(apart / went)


if __name__ == "__main__":
    main()
