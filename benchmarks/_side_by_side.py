"""What the speed benchmarks share: variants that take turns, the clock, the rows, and the table and JSON of ratios.

The name begins with a line so that `make bench` does not take it for a benchmark.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Nothing is fetched; Hugging Face reads this when it is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from accelerate import Accelerator
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForSequenceClassification, TrainerCallback, TrainingArguments
from transformers.utils import logging

from understill.data.batches import Batches
from understill.data.load import load_tasks
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens, tokenise
from understill.losses.fused import FusedObjective
from understill.models.encoder import load_tokenizer, resolve
from understill.models.multitask import MultiTaskModel, new_model
from understill.recipe import make_recipe
from understill.recipe.schema import EncoderSpec, HeadsSpec, Machine, Training
from understill.tasks import Task
from understill.train.cuda_graph import why_not
from understill.train.device import pick_device
from understill.train.loop import Step, steps
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer

#: Far more steps than are taken, so that training never ends while it is measured.
ENDLESS = 20_000
#: The versions that a figure depends on.
PACKAGES = ("understill", "torch", "transformers", "accelerate", "tokenizers", "textbrewer", "numpy")

logging.set_verbosity_error()


@dataclass(frozen=True)
class Variant:
    """One way to do the work; `run` does a round of it and returns rows and seconds."""

    name: str
    run: Callable[[], tuple[int, float]]
    warm_ups: int = 1  # rounds before those that count


@dataclass(frozen=True)
class Measured:
    """The rounds of one variant."""

    name: str
    rows: int  # in a round
    seconds: list[float]  # of each round, for so many rows
    warm_up: tuple[int, float]  # rows and seconds before the first of them

    @property
    def median(self) -> float:
        """The seconds of the middle round."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Rows per second in the middle round."""
        return self.rows / self.median

    @property
    def preparation(self) -> float:
        """How much longer the warm-up took than so many rows take later: compiling, recording, allocating."""
        rows, seconds = self.warm_up
        return max(0.0, seconds - rows / self.rate)


def take_turns(variants: Sequence[Variant], rounds: int) -> dict[str, Measured]:
    """Warm every variant up, then let all of them take turns, round by round."""
    warm_ups = {}
    for variant in variants:
        rows, seconds = zip(*(variant.run() for _ in range(variant.warm_ups)), strict=True)
        warm_ups[variant.name] = sum(rows), sum(seconds)
    taken: dict[str, list[tuple[int, float]]] = {variant.name: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            taken[variant.name].append(variant.run())
    # A variant may take more rows in one round than in another; seconds are given for those of its first.
    return {
        name: Measured(name, result[0][0], [seconds * result[0][0] / rows for rows, seconds in result], warm_ups[name])
        for name, result in taken.items()
    }


def now(device: str) -> float:
    """Read the clock once the device has done all it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# Rows and models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The training rows of one task."""

    data: TaskData
    tokens: Tokens

    @property
    def task(self) -> Task:
        """The task, its labels known."""
        return self.data.task


def load_rows(names: Sequence[str], encoder: str, length: int, folder: Path, **source: Any) -> dict[str, Rows]:
    """Return the tokenised training rows of tasks; `source` is glue=FOLDER or demo={rows: N}, as in a recipe."""
    recipe = make_recipe({"name": "benchmark", "data": source, "tasks": list(names), "encoder": encoder})
    tokenizer = load_tokenizer(encoder)
    train = {name: loaded.splits["train"] for name, loaded in load_tasks(recipe, folder).items()}
    return {name: Rows(data, tokenise(data, tokenizer, length, folder)) for name, data in train.items()}


def some(rows: Rows, count: int) -> np.ndarray[Any, Any]:
    """Choose so many rows, the same ones every time."""
    count = min(count, len(rows.tokens))
    return np.sort(np.random.default_rng(0).choice(len(rows.tokens), count, replace=False))


def our_model(encoder: str, tasks: Sequence[Task], layers: int | None, length: int) -> MultiTaskModel:
    """Return an understill model, its bottom layers kept, as Hugging Face's `num_hidden_layers` does."""
    spec = EncoderSpec(name=encoder, pooling="default", layers=layers, pick="first", max_length=length)
    return new_model(spec, HeadsSpec(), tasks, seed=0)


def their_model(encoder: str, task: Task, layers: int | None) -> Any:
    """Return the same network as Hugging Face's own classifier."""
    size = {"num_hidden_layers": layers} if layers else {}
    return AutoModelForSequenceClassification.from_pretrained(resolve(encoder), num_labels=task.outputs, **size)


def features(rows: Rows, chosen: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return rows as Hugging Face's collator takes them: plain lists, which are quicker to read than a `Dataset`."""
    tokens, result = rows.tokens, []
    for row in chosen:
        ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
        second = int(tokens.second[row])
        types = [0] * second + [1] * (len(ids) - second)
        label = int(tokens.gold[row])
        result.append({"input_ids": ids, "token_type_ids": types, "attention_mask": [1] * len(ids), "label": label})
    return result


# Training ------------------------------------------------------------------------------------------------------------


class Ours:
    """Our loop, kept going from round to round; a round is an epoch, or `limit` steps, until half a second is up."""

    def __init__(
        self,
        model: MultiTaskModel,
        objective: FusedObjective,
        batches: Batches,
        training: Training,
        accelerator: Accelerator,
        *,
        fast: bool = False,
        limit: int | None = None,
    ) -> None:
        self.device, self.training = accelerator.device.type, training
        self.names = [task.name for task in model.tasks]
        self.count = min(batches.steps_per_epoch, limit or batches.steps_per_epoch)
        optimizer = make_optimizer(model.to(accelerator.device), training)
        prepared, optimizer = accelerator.prepare(model.train(), optimizer)
        self.guard = NanGuard(len(model.tasks), accelerator.device)
        settings: dict[str, Any] = {"seed": 0, "start": 0, "guard": self.guard, "fast": fast}
        self.fast = fast
        if fast and (reason := why_not(model, accelerator, training)):
            raise SystemExit(f"the fast path cannot be measured here: {reason}")
        self.steps: Iterator[Step] = steps(
            prepared, objective.to(accelerator.device), batches, optimizer, accelerator, training, **settings
        )

    def __call__(self) -> tuple[int, float]:
        """Train for a round."""
        rows, start = 0, now(self.device)
        while True:
            for _ in range(self.count):
                rows += next(self.steps).rows
            seconds = now(self.device) - start
            if seconds > 0.5:
                self.guard.check(self.names, self.training)
                return rows, seconds

    def variant(self, name: str) -> Variant:
        """Return this loop as a variant; the fast path records each size of a batch on its second appearance."""
        return Variant(name, self, warm_ups=6 if self.fast else 1)


def trainer_arguments(folder: Path, device: str, batch: int, rate: float, **flags: Any) -> TrainingArguments:
    """Return what a Trainer is told: one epoch, nothing logged, saved or scored."""
    return TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=batch,
        num_train_epochs=1,
        learning_rate=rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        optim="adamw_torch_fused",
        bf16=device == "cuda",
        use_cpu=device == "cpu",
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **flags,
    )


class StepClock(TrainerCallback):
    """Times a Trainer from its first step to its last, without its preparations."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.start: float | None = None
        self.end = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start at the first step."""
        if self.start is None:
            self.start = now(self.device)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop after the last."""
        self.end = now(self.device)

    @property
    def seconds(self) -> float:
        """How long the steps took."""
        assert self.start is not None
        return self.end - self.start


# What comes out ------------------------------------------------------------------------------------------------------


def common_options(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all of them have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a size for two CPU cores")
    parser.add_argument("--encoder", help="short name, folder or hub id; minilm unless told otherwise")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=3, help="how often the variants take turns")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    return parser


def chosen_device(options: argparse.Namespace) -> str:
    """Return cuda or cpu."""
    if options.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return pick_device(Machine(device=options.device))


def show(title: str, names: int, columns: Sequence[str], lines: Sequence[Sequence[str]], note: str = "") -> None:
    """Print a table whose first `names` columns are text, and the others numbers."""
    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def write(path: Path | None, device: str, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write the figures with all that is needed to read them."""
    if path is None:
        return
    facts = {
        "command": " ".join(["python3", f"benchmarks/{Path(sys.argv[0]).name}", *map(shlex.quote, sys.argv[1:])]),
        "device": describe(device),
        "versions": {"python": platform.python_version(), **dict(versions())},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "rows": rows,
    }
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def describe(device: str) -> str:
    """Say what the figures were taken on."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def versions() -> Iterator[tuple[str, str]]:
    """Yield the packages that are there, with their versions."""
    for name in PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what other libraries print and draw off the screen."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
