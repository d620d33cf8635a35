"""The efficiency table of Tang et al. 2019: how large and how fast students are beside large encoders, in one run.

    python3 benchmarks/efficiency.py --sentences path/to/SST-2/train.parquet --out efficiency.json

The reference has the shape of BERT-large, with random weights, which are as fast as trained ones. Beside it
stand a small encoder, two BiLSTMs (hidden 150 and dense 200, and twice that) and the static network. Everything goes
through `predict_all`, as all predictions here do: sorted by length, on a GPU in half precision and with more rows at
once than the batch says. On a GPU reference and BiLSTM are measured in fp32 too.

Encoders that would take hours get a share of the sentences: runs of equal lengths, spread over all lengths, at batch
16, so that they are padded as little as all sentences are. Their seconds are scaled up, and marked.
Where the encoder's tokeniser is not there, one of as many pieces is trained on the sentences; sentences then come to
fewer pieces than in life.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import BertProcessing
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel, PreTrainedTokenizerFast

from _side_by_side import chosen_device, common_options, our_model, show, write
from understill.bench.clock import BoundedValue
from understill.bench.efficiency import PARTS, Efficiency, TimedModel, measure
from understill.data import demo
from understill.data.tokens import TextEncoder
from understill.data.word_tokenizer import word_tokenizer
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.multitask import MultiTaskModel
from understill.models.transformer import Encoder
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import HeadsSpec, WordsSpec
from understill.tasks import Task

#: As in the paper: SST-2.
SST2 = Path("../shared/glue/SST-2/train.parquet")
TASK = Task("sst2", "classification", ("sentence",), "label", labels=("negative", "positive"))
#: Pieces that BERT knows.
PIECES = 30_522
#: Layers, width and heads.
Shape = tuple[int, int, int]
MINILM: Shape = (6, 384, 12)
#: Hidden and dense units of the two BiLSTMs.
BILSTMS = ((150, 200), (300, 400))


def read_sentences(path: Path | None, rows: int | None) -> list[str]:
    """Return the first column of text of a Parquet file; where none is named, SST-2's or those of the demo."""
    path = path or (SST2 if SST2.exists() else None)
    if path is None:
        batches = list(demo.batches("mood", "train", rows or 4096, 0))
        return [text for batch in batches for text in batch.column("message").to_pylist()]
    table = pq.read_table(path)
    columns = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
    if not columns:
        raise SystemExit(f"{path} has no column of text")
    return table[columns[0]].to_pylist()[:rows]


def pieces_of(encoder: str, sentences: list[str]) -> PreTrainedTokenizerFast:
    """Return an encoder's tokeniser, or one like it."""
    try:
        return load_tokenizer(encoder)
    except UserError:
        backend = BertWordPieceTokenizer()
        backend.train_from_iterator(sentences, vocab_size=PIECES, show_progress=False)
        ends = [(token, backend.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
        backend._tokenizer.post_processor = BertProcessing(*ends)
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        return PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer, **names)


def bert(shape: Shape, vocabulary: int) -> MultiTaskModel:
    """Return a BERT of a shape, with random weights."""
    layers, width, heads = shape
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    config = BertConfig(vocab_size=vocabulary, intermediate_size=4 * width, **sizes)
    return MultiTaskModel(Encoder(BertModel(config)), [TASK], HeadsSpec())


def over_words(kind: str, vocabulary: int, hidden: int = 150, dense: int = 200) -> MultiTaskModel:
    """Return a network over words, with random weights."""
    config = WordsConfig(kind, vocab_size=vocabulary, size=300, hidden=hidden, dense=dense)
    return MultiTaskModel(WordEncoder(config), [TASK], HeadsSpec())


def line_up(options: argparse.Namespace, sentences: list[str]) -> list[TimedModel]:
    """Return the models, the reference first."""
    torch.manual_seed(0)
    pieces, words = pieces_of(options.encoder, sentences), word_tokenizer(sentences, WordsSpec().vocabulary)
    room, read_pieces, read_words = max(PIECES, len(pieces)), TextEncoder(pieces), TextEncoder(words)

    def encoder(name: str, model: MultiTaskModel) -> TimedModel:
        return TimedModel(name, model, read_pieces, options.max_length, sentences=options.count)

    layers, width, heads = options.shape
    small = bert(MINILM, room) if options.random else our_model(options.encoder, [TASK], None, options.max_length)
    actual = [encoder(f"BERT {layers}×{width}×{heads}", bert(options.shape, room))]
    actual.append(encoder("minilm shape" if options.random else Path(options.encoder).name, small))
    if options.mpnet:
        mpnet = Encoder(MPNetModel(MPNetConfig(vocab_size=room)))
        actual.append(encoder("mpnet shape", MultiTaskModel(mpnet, [TASK], HeadsSpec())))
    for hidden, dense in BILSTMS:
        model = over_words("bilstm", len(words), hidden, dense)
        actual.append(TimedModel(f"BiLSTM {hidden}/{dense}", model, read_words, options.max_length))
    actual.append(TimedModel("static", over_words("static", len(words)), read_words, options.max_length))
    if options.device == "cuda":
        actual += [replace(each, exact=True) for each in actual if each.name.startswith(("BERT", "BiLSTM"))]
    return actual


def scaled(result: Efficiency, part: str, total: int) -> float:
    """Return the seconds that all sentences take."""
    return total / result.rate(part).value


def shown(ratio: BoundedValue) -> str:
    """Write a ratio with its interval."""
    digits = 1 if ratio.value < 100 else 0
    return f"{ratio.value:,.{digits}f} ({ratio.low:,.{digits}f}–{ratio.high:,.{digits}f})"


def size_lines(results: Sequence[Efficiency]) -> list[list[str]]:
    """Return the table of sizes; models in two precisions are there once."""
    first, lines = results[0], {}
    for each in results:
        own = each.parameters - each.embeddings
        lines[each.name] = [
            each.name,
            f"{each.parameters / 1e6:,.2f} M",
            f"{own / 1e6:,.3f} M",
            f"{first.parameters / each.parameters:,.1f}",
            f"{(first.parameters - first.embeddings) / own:,.1f}",
            f"{first.parameters / own:,.1f}",
            f"{each.file_bytes / 1e6:,.1f} MB",
            f"{each.flops / 1e6:,.2f} M",
        ]
    return list(lines.values())


def speed_lines(results: Sequence[Efficiency], total: int) -> list[list[str]]:
    """Return the table of speeds, beside the reference."""
    lines = []
    for each in results:
        sign = "~" if each.texts < total else ""
        cells = [each.name, each.precision]
        for part in PARTS:
            seconds = scaled(each, part, total)
            cells += [f"{sign}{seconds:,.{4 if seconds < 1 else 1}f}", shown(each.times_as_fast(results[0], part))]
        lines.append(cells)
    return lines


def latency_lines(results: Sequence[Efficiency]) -> list[list[str]]:
    """Return the table of single sentences, and of memory."""
    lines = []
    for each in results:
        cells = [each.name, each.precision]
        for part in PARTS:
            latency = each.latency[part]
            cells += [f"{1000 * value:,.2f}" for value in (latency.median, latency.p95, latency.p99)]
        lines.append([*cells, "" if each.peak_bytes is None else f"{each.peak_bytes / 1e6:,.0f}"])
    return lines


def shape_of(text: str) -> Shape:
    """Read LAYERSxWIDTHxHEADS."""
    layers, width, heads = map(int, text.split("x"))
    return layers, width, heads


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all models in turns and print the tables."""
    parser = common_options(__doc__)
    parser.add_argument("--sentences", type=Path, help="a Parquet file; SST-2 of ../shared/glue, or the demo's mood")
    parser.add_argument("--rows", type=int, help="so many of the sentences; all unless told otherwise")
    parser.add_argument("--count", type=int, help="sentences for the encoders; on a CPU 256, on a GPU all")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--singles", type=int, help="sentences by themselves, for the latency; 100, on a GPU 500")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--shape", type=shape_of, default=(24, 1024, 16), help="of the reference: LAYERSxWIDTHxHEADS")
    parser.add_argument("--random", action="store_true", help="random weights for the small encoder too")
    parser.add_argument("--mpnet", action="store_true", help="an encoder of the shape of mpnet as well")
    options = parser.parse_args(arguments)
    options.encoder, options.device = options.encoder or "minilm", chosen_device(options)
    on_gpu = options.device == "cuda"
    if options.small:
        options.rows, options.count = options.rows or 512, options.count or 16
    options.count = options.count or (None if on_gpu else 256)
    options.singles = options.singles or (500 if on_gpu else 20 if options.small else 100)
    sentences = read_sentences(options.sentences, options.rows)
    candidates = line_up(options, sentences)
    results = measure(
        candidates, sentences, options.device, batch=options.batch, rounds=options.rounds, singles=options.singles
    )
    report(results, len(sentences), options)


def report(results: Sequence[Efficiency], total: int, options: argparse.Namespace) -> None:
    """Print the tables and write the figures."""
    fewer = ["times fewer", "without", "as in the paper"]
    note = "without: without embeddings. As in the paper: all of the reference's over those without embeddings."
    columns = ["model", "parameters", "without", *fewer, "file", "FLOPs a sentence"]
    show("Size", 1, columns, size_lines(results), note)
    note = "~: scaled from fewer sentences. In brackets: 95 % intervals of paired rounds."
    columns = ["model", "precision", "model, s", "times as fast", "from text, s", "times as fast"]
    title = f"{total:,} sentences at batch {options.batch}, {options.device}"
    show(title, 2, columns, speed_lines(results, total), note)
    three = ["median", "95 %", "99 %"]
    columns = ["model", "precision", *three, *(f"{name}, text" for name in three), "peak MB"]
    show("One sentence, milliseconds", 2, columns, latency_lines(results))
    rows: list[dict[str, Any]] = [
        {
            **asdict(each),
            "sentences": each.texts,
            "scaled_seconds": {part: scaled(each, part, total) for part in PARTS},
            "times_as_fast": {part: asdict(each.times_as_fast(results[0], part)) for part in PARTS},
        }
        for each in results
    ]
    settings = {
        name: getattr(options, name) for name in ("batch", "rounds", "count", "singles", "max_length", "random")
    }
    write(options.out, options.device, {**settings, "sentences": total, "shape": list(options.shape)}, rows)


if __name__ == "__main__":
    main()
