"""How many rows a second are trained on: our loop, its fast path, and Hugging Face Trainer, in one run.

    python3 benchmarks/train_speed.py --glue path/to/glue --out train_speed.json

With --glue: MNLI at batch 128, SST-2 at batch 32, and eight tasks mixed at batch 128 (ours alone: Trainer knows one
task). Without: tasks of the demo data. All train the same encoder on the same rows, tokenised in advance, in the same
precision, with fused AdamW and clipping. Trainer is there twice: as people use it (batches padded to their longest
row, logging, saving and evaluation off), and with every flag that makes it faster here (rows grouped by length,
worker processes, no look at each loss). Its clock runs from its first step to its last, without its preparations. What
the fast path spends once, on compiling and recording, has a column of its own.
"""

from __future__ import annotations

import argparse
import inspect
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from _side_by_side import (
    ENDLESS,
    Measured,
    Ours,
    Rows,
    StepClock,
    Variant,
    chosen_device,
    common_options,
    features,
    load_rows,
    our_model,
    quiet,
    show,
    some,
    take_turns,
    their_model,
    trainer_arguments,
    write,
)
from understill.data.batch import Stream, sizes_on
from understill.data.batches import Batches
from understill.losses.fused import FusedObjective
from understill.models.encoder import load_tokenizer
from understill.recipe.schema import Machine, Sampling, Training
from understill.train.device import make_accelerator

RATE = 1e-4


@dataclass(frozen=True)
class Setting:
    """What is trained."""

    name: str
    tasks: tuple[str, ...]
    batch: int
    steps: int  # in a round


GLUE = (
    Setting("MNLI", ("mnli",), 128, 100),
    Setting("SST-2", ("sst2",), 32, 150),
    Setting("eight tasks", ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"), 128, 100),
)
DEMO = (
    Setting("follows", ("follows",), 128, 100),
    Setting("mood", ("mood",), 32, 150),
    Setting("four tasks", ("mood", "queue", "follows", "similar"), 128, 100),
)
SMALL = (
    Setting("follows", ("follows",), 32, 8),
    Setting("mood", ("mood",), 32, 8),
    Setting("four tasks", ("mood", "queue", "follows", "similar"), 32, 8),
)


def ours(setting: Setting, rows: Sequence[Rows], options: argparse.Namespace, *, fast: bool) -> Ours:
    """Set up our loop; mixed tasks are drawn and layers taught as in recipes/bam.yaml."""
    tasks = [each.task for each in rows]
    mixed = len(rows) > 1
    training = Training(steps=ENDLESS, batch=setting.batch, lr=RATE, layer_decay=0.9 if mixed else 1.0)
    chosen = None if mixed else some(rows[0], setting.batch * setting.steps)
    streams = [Stream(number, [each.tokens], chosen) for number, each in enumerate(rows)]
    batches = Batches(
        streams,
        batch=setting.batch,
        seed=0,
        sampling=Sampling(power=0.75 if mixed else 1.0),
        sizes=sizes_on(options.device, options.max_length),
    )
    accelerator = make_accelerator(Machine(device=options.device), training.precision)
    model = our_model(options.encoder, tasks, options.layers, options.max_length)
    objective = FusedObjective(tasks, model.spec.regression)
    return Ours(model, objective, batches, training, accelerator, fast=fast, limit=setting.steps)


def trainer(setting: Setting, rows: Rows, options: argparse.Namespace, folder: Path, **flags: Any) -> Any:
    """Return a round of Hugging Face Trainer: one epoch over the rows."""
    chosen = some(rows, setting.batch * setting.steps)
    data = features(rows, chosen)
    model = their_model(options.encoder, rows.task, options.layers)
    collator = DataCollatorWithPadding(load_tokenizer(options.encoder))

    def run() -> tuple[int, float]:
        clock = StepClock(options.device)
        arguments = trainer_arguments(folder, options.device, setting.batch, RATE, **flags)
        with quiet():
            Trainer(model, arguments, data_collator=collator, train_dataset=data, callbacks=[clock]).train()
        return len(data), clock.seconds

    return run


def best_flags(device: str) -> dict[str, Any]:
    """Return the flags of the installed Trainer that make it faster on these batches."""
    known = inspect.signature(TrainingArguments).parameters
    grouped = {"train_sampling_strategy": "group_by_length"}
    if "train_sampling_strategy" not in known:
        grouped = {"group_by_length": True}
    # On a CPU a worker takes a core away from the model. The filter waits for the device at every step.
    workers = {"dataloader_num_workers": min(4, os.cpu_count() or 1), "dataloader_prefetch_factor": 8}
    return {**grouped, **(workers if device == "cuda" else {}), "logging_nan_inf_filter": False}


def measure(setting: Setting, rows: dict[str, Rows], options: argparse.Namespace, folder: Path) -> list[Measured]:
    """Let all variants that can do it train one setting."""
    own = [rows[name] for name in setting.tasks]
    variants = [ours(setting, own, options, fast=False).variant("ours, plain")]
    if options.device == "cuda":
        variants.append(ours(setting, own, options, fast=True).variant("ours, fast"))
    if len(own) == 1:
        variants.append(Variant("Trainer", trainer(setting, own[0], options, folder)))
        best = best_flags(options.device)
        variants.append(Variant("Trainer, best flags", trainer(setting, own[0], options, folder, **best)))
    return list(take_turns(variants, options.rounds).values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--glue", help="folder with GLUE as Parquet or TSV, instead of the demo data")
    parser.add_argument("--steps", type=int, help="steps in a round")
    parser.add_argument("--only", nargs="+", metavar="SETTING", help="some of the settings, such as MNLI or SST-2")
    parser.add_argument("--layers", type=int, help="keep only so many layers of the encoder; 2 with --small")
    parser.add_argument("--max-length", type=int, default=128)
    options = parser.parse_args(arguments)
    options.device = chosen_device(options)
    options.encoder = options.encoder or "minilm"
    options.layers = options.layers or (2 if options.small else None)
    settings = SMALL if options.small else GLUE if options.glue else DEMO
    settings = tuple(
        replace(setting, steps=options.steps or setting.steps)
        for setting in settings
        if not options.only or setting.name in options.only
    )
    if not settings:
        parser.error("--only names no setting that there is here")
    names = list(dict.fromkeys(name for setting in settings for name in setting.tasks))
    demo = {"rows": max(20, *(setting.batch * setting.steps for setting in settings))}
    source = {"demo": demo} if options.small or not options.glue else {"glue": options.glue}
    chosen = {"encoder": options.encoder, "layers": options.layers, "max_length": options.max_length}
    flags = {"precision": "bf16" if options.device == "cuda" else "fp32", "best_flags": best_flags(options.device)}
    columns = ["variant", "rows/s", "ms/step", "preparing, s", "× Trainer"]
    result = []
    with tempfile.TemporaryDirectory() as folder:
        rows = load_rows(names, options.encoder, options.max_length, Path(folder), **source)
        for setting in settings:
            lines = []
            measured = measure(setting, rows, options, Path(folder))
            theirs = next((each.rate for each in measured if each.name == "Trainer"), None)
            for each in measured:
                ratio = theirs and each.rate / theirs
                lines.append([
                    each.name, f"{each.rate:,.0f}", f"{1000 * setting.batch / each.rate:,.2f}",
                    f"{each.preparation:.1f}", f"{ratio:.2f}" if ratio else "",
                ])  # fmt: skip
                result.append({
                    "setting": setting.name, "batch": setting.batch, "variant": each.name,
                    "rows_per_second": each.rate, "rows": each.rows, "seconds": each.seconds,
                    "preparation": each.preparation, "ratio": ratio,
                })  # fmt: skip
            # At once, so that a run that is cut short has shown what it found.
            show(f"{setting.name}, batch {setting.batch}: medians of rounds that took turns", 1, columns, lines)
            write(options.out, options.device, {**chosen, **flags, "data": source, "rounds": options.rounds}, result)


if __name__ == "__main__":
    main()
