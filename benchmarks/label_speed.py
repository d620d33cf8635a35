"""How many sentences a second a model labels: ours, and `pipeline()` of Hugging Face, in one run.

    python3 benchmarks/label_speed.py --glue path/to/glue --out label_speed.json

The sentences are those of SST-2, or of the demo task `mood`. A pipeline begins with text, so ours is measured from text
too, beside its two halves: tokenising alone, and the forward pass alone over rows that are tokenised already, which is
what a second teacher costs. Pipelines are there twice: as people call them, and as fast as they go here (half precision
on a GPU, a large batch, sentences sorted by length). They are slower by so much that they get a share of the sentences,
drawn at random.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import pipeline

from _side_by_side import (
    Rows,
    Variant,
    chosen_device,
    common_options,
    load_rows,
    now,
    our_model,
    show,
    some,
    take_turns,
    their_model,
    write,
)
from understill.data.tokens import TextEncoder
from understill.evaluate.predict import predict_all
from understill.inference.torch_model import NetworkPredictor
from understill.models.encoder import load_tokenizer

Round = Callable[[], tuple[int, float]]


class Labeller(NetworkPredictor):
    """Our model as `understill.load` gives it."""

    def __init__(self, rows: Rows, options: argparse.Namespace) -> None:
        model = our_model(options.encoder, [rows.task], options.layers, options.max_length)
        self.model, self.tasks = model.to(options.device).eval(), model.tasks
        self.max_lengths = {rows.task.name: options.max_length}
        self.encode = TextEncoder(load_tokenizer(options.encoder))


def ours(texts: list[str], labeller: Labeller, options: argparse.Namespace, part: str) -> Round:
    """Label from text, or take one half of the work alone: tokenising, or the forward pass."""
    ready = labeller.encode(texts, options.max_length)

    def run() -> tuple[int, float]:
        start = now(options.device)
        if part == "tokenise":
            labeller.encode(texts, options.max_length)
        elif part == "forward":
            predict_all(labeller.model, ready, labeller.tasks, options.batch)
        else:
            labeller.logits(texts, None, labeller.tasks)
        return len(texts), now(options.device) - start

    return run


def theirs(texts: list[str], rows: Rows, options: argparse.Namespace, *, best: bool) -> Round:
    """Label with a pipeline of Hugging Face."""
    half = best and options.device == "cuda"
    model = their_model(options.encoder, rows.task, options.layers).to(torch.bfloat16 if half else torch.float32)
    tokenizer = load_tokenizer(options.encoder)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device=options.device)
    settings = {"top_k": None, "truncation": True, "max_length": options.max_length}
    batch = options.best_batch if best else options.pipeline_batch

    def run() -> tuple[int, float]:
        start = now(options.device)
        ordered = sorted(texts, key=len, reverse=True) if best else texts
        classify(ordered, batch_size=batch, **settings)
        return len(texts), now(options.device) - start

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--glue", help="folder with GLUE as Parquet or TSV, instead of the demo data")
    parser.add_argument("--rows", type=int, help="sentences; 65,536 or, with --small, 512")
    parser.add_argument("--layers", type=int, help="keep only so many layers of the encoder")
    parser.add_argument("--batch", type=int, default=64, help="rows at once on a CPU; a GPU takes as many as fill it")
    parser.add_argument("--pipeline-batch", type=int, default=64, help="rows at once in a pipeline")
    parser.add_argument("--best-batch", type=int, help="the same for the fastest one; 512 or, on a CPU, 16")
    parser.add_argument("--max-length", type=int, default=128)
    options = parser.parse_args(arguments)
    options.device = chosen_device(options)
    options.encoder = options.encoder or "minilm"
    options.rows = options.rows or (512 if options.small else 65_536)
    options.best_batch = options.best_batch or (512 if options.device == "cuda" else 16)
    name = "sst2" if options.glue else "mood"
    source = {"glue": options.glue} if options.glue else {"demo": {"rows": max(20, options.rows)}}
    with tempfile.TemporaryDirectory() as folder:
        rows = load_rows([name], options.encoder, options.max_length, Path(folder), **source)[name]
        column = rows.data.table().column("text1")
        texts = column.take(some(rows, options.rows)).to_pylist()
        few = column.take(some(rows, max(1, options.rows // (16 if options.device == "cuda" else 2)))).to_pylist()
        labeller = Labeller(rows, options)
        variants = [
            Variant("ours, forward alone", ours(texts, labeller, options, "forward")),
            Variant("ours, tokenising alone", ours(texts, labeller, options, "tokenise")),
            Variant("ours, from text", ours(texts, labeller, options, "all")),
            Variant("pipeline", theirs(few, rows, options, best=False)),
            Variant("pipeline, best", theirs(few, rows, options, best=True)),
        ]
        measured = take_turns(variants, options.rounds)
        length = float(rows.tokens.lengths.mean())
    basis = measured["pipeline"].rate
    result = [
        {
            "variant": each.name, "rows": each.rows, "rows_per_second": each.rate, "seconds": each.seconds,
            "ratio": each.rate / basis,
        }
        for each in measured.values()
    ]  # fmt: skip
    lines = [
        [each.name, f"{each.rows:,}", f"{each.rate:,.0f}", f"{each.rate / basis:.2f}"] for each in measured.values()
    ]
    title = f"Labelling sentences of {length:.1f} tokens on average"
    show(title, 1, ["variant", "sentences", "sentences/s", "× pipeline"], lines)
    keys = ("encoder", "layers", "batch", "pipeline_batch", "best_batch", "max_length", "rounds")
    chosen = {key: getattr(options, key) for key in keys}
    write(options.out, options.device, {**chosen, "task": name, "tokens_per_row": length}, result)


if __name__ == "__main__":
    main()
