"""How long distillation takes: soft targets written once, against teachers that answer at every step, in one run.

    python3 benchmarks/distil_speed.py --out distil_speed.json

A teacher of the whole encoder teaches a student of its bottom layers on one task of the demo data, by T²·KL at T = 2
alone. Ours includes the teacher's labelling, the writing, checking and reading back of its answers, and, on the fast
path, compiling and recording. The others:

- a live teacher: a plain loop over the very same batches, in which the teacher answers in each step;
- Trainer, live teacher: Hugging Face Trainer with a `compute_loss` that asks the teacher, as its guide shows;
- TextBrewer, and TextBrewer with cached logits: optional, `pip install --no-deps textbrewer` (0.2.1.post1 works with
  transformers 5). Its mixed precision needs apex, so its models' forward passes run under autocast here instead. Its
  cache keeps each batch together for good: the rows of a batch meet again in every epoch.

Each round measures one labelling and one epoch of each. The seconds for more epochs are worked out from the medians:
an epoch takes as long as any other.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, Trainer

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
    now,
    our_model,
    quiet,
    show,
    some,
    take_turns,
    their_model,
    trainer_arguments,
    write,
)
from understill.atomic import replacing
from understill.data.batch import Stream, sizes_on
from understill.data.batches import Batches
from understill.evaluate.predict import predict_all
from understill.losses.fused import FusedObjective
from understill.models.encoder import load_tokenizer
from understill.recipe.schema import Distil, Machine, Training
from understill.targets.ensemble import join
from understill.targets.store import TeacherFacts, read_targets, write_targets
from understill.train.device import make_accelerator
from understill.train.optim import make_optimizer

TASK = "queue"
TEMPERATURE = 2.0
RATE = 1e-4
EPOCHS = (1, 3, 6)

Round = Callable[[], tuple[int, float]]


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return T²·KL(teacher ‖ student), the mean over rows."""
    log_p, log_q = (logits.float().div(TEMPERATURE).log_softmax(dim=1) for logits in (student, teacher))
    return TEMPERATURE**2 * functional.kl_div(log_p, log_q, reduction="batchmean", log_target=True)


class Bench:
    """The rows, and a round of each way to distil them."""

    def __init__(self, rows: Rows, options: argparse.Namespace, folder: Path) -> None:
        self.rows, self.options, self.folder, self.device = rows, options, folder, options.device
        self.training = Training(steps=ENDLESS, batch=options.batch, lr=RATE)
        self.accelerator = make_accelerator(Machine(device=self.device), self.training.precision)
        self.teacher = our_model(options.encoder, [rows.task], None, options.max_length).to(self.device).eval()
        self.answers = np.zeros((0, 0), np.float32)
        self.label()

    def student(self) -> nn.Module:
        """Return a fresh student."""
        return our_model(self.options.encoder, [self.rows.task], self.options.layers, self.options.max_length)

    def label(self) -> tuple[int, float]:
        """Let the teacher answer every row, and keep, check and read its answers as a run does."""
        data, start = self.rows.data, now(self.device)
        output = predict_all(self.teacher, self.rows.tokens, [data.task], self.options.label_batch)[data.task.name]
        with tempfile.TemporaryDirectory(dir=self.folder) as fresh:
            place = Path(fresh) / "targets"
            with replacing(place) as part:
                one = [TeacherFacts("t", "d", None)]
                write_targets(part, data, one, {"logits": [output.logits]}, dtype="float16", rule={})
            result = read_targets(place, data, {"t": "d"})
        one: dict[str, Any] = {"combine": "mean_probabilities", "weights": np.ones(1)}
        self.answers = join(result.logits, False, form="log_probabilities", temperature=TEMPERATURE, **one)
        return data.rows, now(self.device) - start

    def batches(self, answers: Any = None) -> Batches:
        """Return the batches, with the teacher's answers or without."""
        sizes = sizes_on(self.options.device, self.options.max_length)
        streams = [Stream(0, [self.rows.tokens], columns={} if answers is None else {"logits": answers})]
        return Batches(streams, batch=self.options.batch, seed=0, sizes=sizes)

    def ours(self, *, fast: bool) -> Ours:
        """Train on the answers."""
        objective = FusedObjective([self.rows.task], "sigmoid", Distil(hard=0.0, temperature=TEMPERATURE, anneal=None))
        model, batches = self.student(), self.batches(self.answers)
        return Ours(model, objective, batches, self.training, self.accelerator, fast=fast)

    def live(self) -> Round:
        """Train on the same batches with a teacher that answers in each step."""
        student = self.student().to(self.device).train()
        optimizer = make_optimizer(student, self.training)
        batches = self.batches()

        def run() -> tuple[int, float]:
            start = now(self.device)
            for number in range(batches.steps_per_epoch):
                batch = batches[number].to(self.device)
                with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                    with torch.no_grad():
                        wanted = self.teacher(batch)
                    loss = divergence(student(batch), wanted)
                loss.backward()
                nn.utils.clip_grad_norm_(student.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            return batches.steps_per_epoch * batches.batch, now(self.device) - start

        return run

    def theirs(self) -> tuple[list[dict[str, Any]], Any, Any, Any]:
        """Return what Hugging Face's side works with: rows, collator, teacher and student."""
        data = features(self.rows, some(self.rows, len(self.rows.tokens)))
        collator = DataCollatorWithPadding(load_tokenizer(self.options.encoder))
        teacher = their_model(self.options.encoder, self.rows.task, None).to(self.device).eval()
        return data, collator, teacher, their_model(self.options.encoder, self.rows.task, self.options.layers)

    def trainer(self) -> Round:
        """Train with Hugging Face Trainer and a live teacher."""
        data, collator, teacher, student = self.theirs()

        class Distiller(Trainer):
            def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
                inputs.pop("labels")
                with torch.no_grad():
                    wanted = teacher(**inputs).logits
                outputs = model(**inputs)
                loss = divergence(outputs.logits, wanted)
                return (loss, outputs) if return_outputs else loss

        def run() -> tuple[int, float]:
            clock = StepClock(self.device)
            arguments = trainer_arguments(self.folder, self.device, self.options.batch, RATE)
            with quiet():
                Distiller(student, arguments, data_collator=collator, train_dataset=data, callbacks=[clock]).train()
            return len(data), clock.seconds

        return run

    def textbrewer(self, *, cached: bool) -> tuple[Round, list[float]]:
        """Train with TextBrewer; the seconds that filling its cache took go to a list of their own."""
        import textbrewer

        data, collator, teacher, student = self.theirs()
        loader = _Counted(data, self.options.batch, collator, self.device)
        config = textbrewer.TrainingConfig(ckpt_frequency=0, output_dir=str(self.folder), device=self.device)
        distil = textbrewer.DistillationConfig(
            temperature=TEMPERATURE,
            kd_loss_type="ce",
            kd_loss_weight=TEMPERATURE**2,
            hard_label_weight=0,
            is_caching_logits=cached,
        )
        student, teacher = (_Autocast(model.to(self.device), self.device) for model in (student, teacher))
        optimizer = torch.optim.AdamW(student.parameters(), lr=RATE, weight_decay=0.01, fused=True)
        filling: list[float] = []

        def adaptor(batch: Any, outputs: Any) -> dict[str, Any]:
            return {"logits": (outputs.logits,)}

        def run() -> tuple[int, float]:
            distiller = textbrewer.BasicDistiller(config, distil, teacher, student, adaptor, adaptor)
            start = now(self.device)
            with quiet(), distiller:
                distiller.train(optimizer, loader, num_epochs=1, max_grad_norm=1.0)
            end = now(self.device)
            if cached:
                filling.append(loader.read - start)
                start = loader.read
            return len(data), end - start

        return run, filling


class _Counted:
    """A data loader of plain dictionaries that notes when it was read to its end."""

    def __init__(self, data: list[dict[str, Any]], batch: int, collator: Any, device: str) -> None:
        self.device, self.read = device, 0.0
        self.loader = DataLoader(data, batch, shuffle=True, collate_fn=collator, pin_memory=device == "cuda")

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Any:
        for batch in self.loader:
            yield {key: value for key, value in batch.items() if key != "labels"}
        self.read = now(self.device)


class _Autocast(nn.Module):
    """A model that runs forward in the precision of the others."""

    def __init__(self, model: nn.Module, device: str) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, **inputs: Any) -> Any:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            outputs = self.model(**inputs)
        outputs.logits = outputs.logits.float()
        return outputs


def measure(bench: Bench, rounds: int) -> tuple[dict[str, tuple[float, float]], dict[str, Measured], str]:
    """Return by variant the seconds spent once and those of an epoch, the raw rounds, and what could not be run."""
    rows, note = bench.rows.data.rows, ""
    variants = [Variant("labelling", bench.label), bench.ours(fast=False).variant("ours, plain")]
    if bench.device == "cuda":
        variants.append(bench.ours(fast=True).variant("ours, fast"))
    variants += [Variant("a live teacher", bench.live()), Variant("Trainer, live teacher", bench.trainer())]
    filling: list[float] = []
    try:
        variants.append(Variant("TextBrewer", bench.textbrewer(cached=False)[0]))
        run, filling = bench.textbrewer(cached=True)
        variants.append(Variant("TextBrewer, cached", run))
    except ImportError as error:
        note = f"TextBrewer is not part of this: {error}. pip install --no-deps textbrewer"
    measured = take_turns(variants, rounds)
    once = {name: measured["labelling"].median for name in ("ours, plain", "ours, fast")}
    if "ours, fast" in measured:
        once["ours, fast"] += measured["ours, fast"].preparation
    if filling:
        once["TextBrewer, cached"] = float(np.median(filling[1:]))  # the first was the warm-up
    return (
        {name: (once.get(name, 0.0), rows / each.rate) for name, each in measured.items() if name != "labelling"},
        measured,
        note,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--rows", type=int, help="rows of the task; 9,600 or, with --small, 128")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--label-batch", type=int, default=64, help="rows that the teacher labels at once on a CPU")
    parser.add_argument("--layers", type=int, default=3, help="layers of the student")
    parser.add_argument("--max-length", type=int, default=64)
    options = parser.parse_args(arguments)
    options.device = chosen_device(options)
    options.encoder = options.encoder or "minilm"
    options.rows = options.rows or (128 if options.small else 9_600)
    with tempfile.TemporaryDirectory() as folder:
        source = {"demo": {"rows": options.rows}}
        rows = load_rows([TASK], options.encoder, options.max_length, Path(folder), **source)[TASK]
        spent, measured, note = measure(Bench(rows, options, Path(folder)), options.rounds)
    result, lines = [], []
    live = spent["a live teacher"]
    for name, (once, epoch) in spent.items():
        totals = {epochs: once + epochs * epoch for epochs in EPOCHS}
        ratios = {epochs: (live[0] + epochs * live[1]) / total for epochs, total in totals.items()}
        lines.append([name, f"{once:.2f}", f"{epoch:.2f}", *(f"{totals[n]:.2f} ({ratios[n]:.2f}×)" for n in EPOCHS)])
        each = {"variant": name, "seconds_once": once, "seconds_epoch": epoch, "rounds": measured[name].seconds}
        result.append({**each, "seconds": totals, "ratio": ratios})
    columns = ["variant", "once, s", "epoch, s", *(f"{n} epoch{'s' if n > 1 else ''}, s" for n in EPOCHS)]
    show(
        f"Distillation of {options.rows:,} rows; in brackets, times as fast as a live teacher", 1, columns, lines, note
    )
    chosen = {key: getattr(options, key) for key in ("encoder", "layers", "rows", "batch", "label_batch", "max_length")}
    write(options.out, options.device, {**chosen, "task": TASK, "rounds": options.rounds, "note": note}, result)


if __name__ == "__main__":
    main()
