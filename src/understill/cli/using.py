"""Verbs that put a model to use: predict, label, export, serve, bench."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understill.cli.arguments import (
    Address,
    EngineName,
    Model,
    Sets,
    Tasks,
    examples_of,
    load,
    refuse_engine,
    refuse_no_folder,
    text_columns,
    tidy,
)
from understill.cli.program import app
from understill.errors import UserError
from understill.serve.settings import ServerSettings, read_keys

if TYPE_CHECKING:
    from understill.tasks import Task


@app.command(
    epilog=examples_of(
        'understill predict runs/quickstart --text "The parcel never came."',
        'understill predict runs/quickstart --text "I paid twice." --second "The customer was charged two times."',
        "understill predict runs/quickstart --file in.csv --out out.parquet",
        "understill predict runs/quickstart --file logs.jsonl --columns body --task mood --out out.csv",
    )
)
def predict(
    model: Model,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text; may be given several times.")] = None,
    second: Annotated[
        list[str] | None, typer.Option("--second", help="The second text of a pair; several go with one --text.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A file of texts: CSV, TSV, JSONL, Parquet or Excel, of any size.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the answers: .parquet, .csv or .jsonl.")] = None,
    task: Tasks = None,
    columns: Annotated[str | None, typer.Option(help="The text column(s) of the file, comma between two.")] = None,
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoding of the file if it is not UTF-8, such as cp949 or cp1252."),
    ] = None,
    quote_formulas: Annotated[
        bool,
        typer.Option("--quote-formulas", help="Put ' before cells of a .csv that a spreadsheet would run as formulas."),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Ask a model: for texts on the command line, or for a whole file."""
    from understill.inference.loading import load, tasks_of
    from understill.terminal import outputs, progress

    if bool(text) == bool(file):
        raise UserError("give either --text or --file")
    if file and not out:
        raise UserError("--file needs --out, the file to write the answers to")
    if file and second:
        raise UserError("--second goes with --text; for pairs in a file, name two columns with --columns")
    if text and (out or columns or encoding or quote_formulas):
        options = "--out, --columns, --encoding and --quote-formulas"
        raise UserError(f"{options} go with --file; answers to --text are printed")
    if text:
        if not all(map(str.strip, (*text, *(second or ())))):
            raise UserError("an empty text says nothing that could be answered → write one after --text and --second")
        predictor = load(model, device)
        if not second:
            _refuse_single(predictor.tasks, task)
        if second and len(text) == 1:
            text = text * len(second)  # one query, several candidates
        outputs.show_answers(text, second, predictor.predict(text, second or None, task))
        return
    from understill.inference.stream import check_files, predict_file

    assert file and out
    named = text_columns(columns)
    check_files(file, out, tasks_of(model), task, named, encoding, quote_formulas)
    predictor = load(model, device)
    with tidy(), progress.counter(f"predicting {file}") as count:
        done = predict_file(predictor, file, out, task, named, count, encoding, quote_formulas)
    outputs.show_predicted(done, out)


def _refuse_single(tasks: Sequence[Task], names: list[str] | None) -> None:
    """Refuse to ask tasks that read two texts with the first alone."""
    from understill.inference.predictor import choose

    pairs = [each for each in choose(tasks, names, None) if each.pair]
    if pairs and (names or len(pairs) == len(tasks)):
        what = f"task {pairs[0].name} reads two texts" if names else "the model has no task that reads one text"
        raise UserError(f"{what} → add --second, the other text of each pair")


@app.command(
    epilog=examples_of(
        "understill label runs/quickstart --in shards/ --out labelled/",
        "understill label runs/quickstart/export/int8 --in shards/ --out labelled/ --processes 8",
        "understill label runs/bam --in 'logs/2026-*.jsonl' --out labelled/ --task sst2 --columns body",
        "understill label runs/quickstart --in shards/ --out labelled/ --engine ray --address HOST:6379",
        "understill label runs/quickstart --in shards/ --out labelled/   [dim]# again: only what is not finished[/dim]",
    )
)
def label(
    model: Model,
    source: Annotated[
        Path,
        typer.Option(
            "--in", metavar="FOLDER", help="The shards: a folder of Parquet, JSONL or CSV files, or a pattern."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write, with a file for each shard.")],
    task: Tasks = None,
    columns: Annotated[str | None, typer.Option(help="The text column(s) of the shards, comma between two.")] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes, each with its own copy of the model; one, or with Ray all that there is room for."
        ),
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a shard that failed is tried again.")] = 2,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Label shards of any size: answers and logits beside every row, for students to learn from.

    Stopped or killed, the same command goes on with the shards that are not finished. Whatever is written is whole.
    """
    from understill.inference.labelling import label_shards
    from understill.inference.shards import LabelJob
    from understill.terminal import outputs, progress

    named = text_columns(columns)
    job = LabelJob(model, source, out, tuple(task or ()), tuple(named) if named else None, device)
    cluster: Any = nullcontext()
    if refuse_engine(engine, ["--address"] if address else []) == "ray":
        from understill.engines.ray_data import labelling_on_ray

        cluster = labelling_on_ray(address, processes)
    with tidy(), cluster as labeller, progress.LiveProgress() as watch:
        done = label_shards(job, processes or 1, retries, watch, labeller)
    outputs.show_labelled(done, out)


@app.command(
    epilog=examples_of(
        "understill export runs/quickstart --to onnx",
        "understill export runs/quickstart --to int8 --limit 3   [dim]# its dev sets are small[/dim]",
        "understill export runs/single/models/sst2 --to huggingface --out sst2-classifier",
        "understill export runs/bam/models/student --to onnx --out student-onnx",
    )
)
def export(
    model: Model,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="huggingface: a folder per task; onnx: one graph of all tasks; int8: the same, rounded.",
            show_default=False,
        ),
    ],
    task: Tasks = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder to write; export/FORM in the run folder if not given. Of several tasks, "
            "each Hugging Face classifier has a folder in it."
        ),
    ] = None,
    limit: Annotated[float, typer.Option(min=0, help="The points out of 100 that int8 may lose by any metric.")] = 1.0,
    recipe: Annotated[
        Path | None, typer.Option(help="The recipe whose dev rows are used for the check; default: the model's own.")
    ] = None,
    sets: Sets = None,
) -> None:
    """Write a model as a folder that other programs run, checked against the model on dev rows, with a model card."""
    from understill.export.formats import plan_export

    folder = plan_export(model, to, tuple(task or ()), out).source
    if recipe is None and not (folder / "recipe.yaml").exists():
        raise UserError(f"{folder}: no recipe.yaml here; say whose dev rows to check with by --recipe")
    loaded = load(recipe or folder / "recipe.yaml", sets)
    from understill.pipeline.exporting import export as export_model
    from understill.terminal import outputs, progress

    with tidy(), progress.LiveProgress() as watch:
        made = export_model(model, loaded, to, tasks=tuple(task or ()), out=out, limit=limit, watch=watch)
    outputs.show_export(made)


@app.command(
    epilog=examples_of(
        "understill serve runs/quickstart",
        "understill serve runs/quickstart/export/int8 --port 9000",
        "understill serve runs/quickstart --teacher runs/quickstart/models/teacher",
        "understill serve model-int8 --host 0.0.0.0 --keys keys.txt --log errors --drain 10",
        "curl localhost:8000/v1/predict -H 'Content-Type: application/json' -d '{\"texts\": \"Where is it?\"}'",
    )
)
def serve(
    model: Model,
    teacher: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A second model, answering beside the first where asked.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is all of this machine's.")
    ] = ServerSettings.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = ServerSettings.port,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes, each with its own copy of the model.")
    ] = ServerSettings.workers,
    batch: Annotated[
        int, typer.Option(min=1, help="The most rows that go through the model at once; 1 turns batching off.")
    ] = ServerSettings.batch,
    wait: Annotated[
        float, typer.Option(min=0, help="Milliseconds that an idle model waits for more rows; 0 is usually best.")
    ] = ServerSettings.wait,
    queue: Annotated[
        int, typer.Option(min=1, help="The most rows that may wait; beyond this, requests get 503 with Retry-After.")
    ] = ServerSettings.queue,
    max_rows: Annotated[int, typer.Option(min=1, help="The most rows in a request.")] = ServerSettings.max_rows,
    max_characters: Annotated[
        int, typer.Option(min=1, help="The most characters in a text.")
    ] = ServerSettings.max_characters,
    max_bytes: Annotated[
        int, typer.Option(min=1, help="The most bytes in a request's body.")
    ] = ServerSettings.max_bytes,
    max_connections: Annotated[
        int, typer.Option(min=1, help="The most connections of a worker; beyond this, idle ones are closed.")
    ] = ServerSettings.max_connections,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="The most probabilities in an answer where a request has no top_k; all if not given."),
    ] = ServerSettings.top_k,
    keys: Annotated[
        Path | None,
        typer.Option(help="File of API keys, one per line; every request must send one. Or set UNDERSTILL_KEYS."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE", help="A site whose pages may ask, such as https://example.org, or '*'; may be repeated."
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A Host header to accept; may be repeated. On localhost, localhost's own names are always accepted.",
        ),
    ] = None,
    log: Annotated[
        str, typer.Option(help="all: a line for each request; errors: only for those refused or failed.")
    ] = ServerSettings.log,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to accept requests after SIGTERM, while /readyz returns 503.")
    ] = ServerSettings.drain,
) -> None:
    """Answer over HTTP: JSON for programs, and a page at / to try the model."""
    options = locals()  # named as the settings are
    named = {"keys": read_keys(keys), "cors": tuple(cors or ()), "hosts": tuple(hosts or ())}
    settings = ServerSettings(**{**options, **named})
    try:
        from understill.serve.supervisor import serve as start
    except ImportError as error:
        raise UserError(f'the server needs {error.name} → pip install "understill[serve]"') from None
    start(settings, typer.echo)


@app.command(
    epilog=examples_of(
        "understill bench runs/quickstart/export/onnx runs/quickstart/export/int8",
        "understill bench runs/inbox/export/huggingface/mood runs/inbox runs/inbox/export/int8 --task mood",
        "understill bench model-int8 --texts sentences.txt --no-http --json bench.json",
        "taskset -c 0 understill bench model-onnx model-int8   [dim]# on one core[/dim]",
    )
)
def bench(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL",
            help="Model folders, run folders or exports. A Hugging Face folder is asked through pipeline(), and over "
            "HTTP as any model is. The others are compared with the first.",
            show_default=False,
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What they are asked for; the first task that all have if not given."),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(help="A file of texts, one to a line, of a pair with a tab between; made up if not given."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each model answers all texts.")] = 5,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Also ask a server of each model.")] = True,
    file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every number to this file.")
    ] = None,
) -> None:
    """Time models side by side on this machine: one text, many, tokenising alone, and through HTTP."""
    from understill.atomic import write_json
    from understill.bench.measure import measure
    from understill.bench.samples import made_up, read_texts
    from understill.bench.subjects import open_subjects
    from understill.terminal import console, outputs, progress

    if file:
        refuse_no_folder("--json", file)
    subjects, chosen = open_subjects(models, task)
    samples = read_texts(texts, chosen.pair) if texts else made_up(chosen.pair)
    with progress.LiveProgress() as watch:
        result = measure(subjects, chosen, samples, rounds=rounds, http=http, watch=watch)
    outputs.show_bench(result)
    if file:
        write_json(file, result.to_json())
        console.say(f"wrote {file}")
