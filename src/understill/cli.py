"""The command line: parse, call, print."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from understill.errors import UserError
from understill.serve.settings import Settings, read_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from understill.recipe import Recipe


class Program(typer.core.TyperGroup):
    """All verbs together: exits with 2 for a user's mistake, and with 130 when it is interrupted."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; what is neither a mistake nor an interruption is a bug, and keeps its traceback."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "understill":
                raise
            logging.getLogger(__name__).info("where it happened", exc_info=True)
            what = f"understill {ctx.invoked_subcommand} needs {error.name}, which is not installed"
            print(f"error: {what} → pip install understill, with all that it requires", file=sys.stderr)
            raise SystemExit(2) from None
        except (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            # A place the user named that cannot be used so; whoever wants the way there asks with -v.
            logging.getLogger(__name__).info("where it happened", exc_info=True)
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            raise SystemExit(2) from None
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT, EFBIG, EROFS):
                raise
            logging.getLogger(__name__).info("where it happened", exc_info=True)
            place = f"{error.filename}: " if error.filename else ""
            print(f"error: {place}{error.strerror} → make room, or write elsewhere", file=sys.stderr)
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            hint = "; the same command goes on from the last checkpoint, or starts again if there is none yet"
            print(f"\nstopped{'' if ctx.invoked_subcommand == 'serve' else hint}", file=sys.stderr)
            raise SystemExit(130) from None


app = typer.Typer(
    name="understill",
    cls=Program,
    help="understill: large language-understanding models distilled into one small, fast, multi-task model, "
    "from one recipe, with scores you can trust.",
    epilog="First steps: understill run recipes/quickstart.yaml · your own files: understill init FILE…",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

RecipeFile = Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe; may be given several times."),
]
Model = Annotated[Path, typer.Argument(help="A model folder, or a run folder that holds one.", show_default=False)]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="NAME", help="Only this task; may be given several times.")
]


def _examples(*lines: str) -> str:
    """Lay out the examples at the end of a verb's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  [cyan]{line}[/cyan]" for line in lines)])


@contextmanager
def _tidy() -> Iterator[None]:
    """Let SIGTERM end the block like an exception, so that what is half written is removed."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _load(recipe: Path, sets: list[str] | None) -> Recipe:
    """Read a recipe, before anything is imported that takes seconds: a slip in it is answered at once."""
    from understill.recipe import load_recipe

    return load_recipe(recipe, tuple(sets or ()))


@app.command(
    epilog=_examples("understill init tickets.csv tickets_dev.csv", "understill init data/*.csv --out recipe.yaml")
)
def init(
    files: Annotated[
        list[Path], typer.Argument(help="Your data files: CSV, TSV, JSONL or Parquet.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Where to write the recipe.")] = Path("recipe.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a recipe that is there.")] = False,
) -> None:
    """Look at your files and write a commented recipe for them."""
    from understill import terminal
    from understill.data.sketch import sketch_recipe

    if out.is_dir():
        raise UserError(f"--out {out}: this is a folder → write --out {out / 'recipe.yaml'}")
    if out.exists() and not force:
        raise UserError(f"{out} is there already → choose another name with --out, or overwrite it with --force")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    text = sketch_recipe(files)
    out.write_text(text, encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("# left out:"):
            logging.getLogger(__name__).warning(line.removeprefix("# "))
    terminal.say(f"wrote {out}; look it over, then:\n  understill check {out}\n  understill run {out}")


@app.command(
    epilog=_examples(
        "understill check recipes/quickstart.yaml",
        "understill check my.yaml --set training.epochs=5",
        "understill check my.yaml --full",
    )
)
def check(
    recipe: RecipeFile,
    sets: Sets = None,
    full: Annotated[bool, typer.Option("--full", help="Print the whole recipe, defaults included.")] = False,
) -> None:
    """Check a recipe and its data without training; say what would run and about how long."""
    loaded = _load(recipe, sets)
    from understill import terminal
    from understill.estimate import estimate
    from understill.pipeline import make_study, open_teacher

    with terminal.Progress() as watch:
        study = make_study(loaded, watch)
        for plan, teacher in study.outsiders:
            open_teacher(plan, teacher)
        times = estimate(study)
    terminal.show_plan(study, times)
    if full:
        terminal.show_yaml(loaded.to_yaml())


@app.command(
    epilog=_examples(
        "understill run recipes/quickstart.yaml",
        "understill run recipes/single.yaml --set data.glue=glue --set seed=1",
        "understill run recipes/bam.yaml --set student.distil.anneal=0.5 --set name=bam-half",
        "understill run my.yaml --seeds 3   [dim]# mean, spread and interval over three seeds[/dim]",
        "understill run my.yaml --dry-run   [dim]# what would be done, and what is there already[/dim]",
        "understill run my.yaml   [dim]# again after a crash: goes on where it stopped[/dim]",
    )
)
def run(
    recipe: RecipeFile,
    sets: Sets = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="N", help="Run it with N seeds, and show how far they differ."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html into the run folder.")] = True,
) -> None:
    """Do everything a recipe asks for: teachers, soft targets, student and baseline, and show who won."""
    loaded = _load(recipe, [*(sets or ()), *([f"seeds={seeds}"] if seeds else ())])
    from understill import pipeline, tables, terminal

    with terminal.Progress() as watch:
        planned = pipeline.make_study(loaded, watch) if dry_run else None
        runs = () if dry_run else pipeline.run_study(loaded, watch)
        page = _report_of(runs[0].folder, loaded, watch) if runs and report else None
    if planned:
        terminal.show_plan(planned)
    if runs:
        tables.show_study(runs)
    if page:
        terminal.say(f"report: {page}")


def _report_of(folder: Path, recipe: Recipe, watch: Any) -> Path | None:
    """Write the report of a run that has just finished; whatever goes wrong there, the run is whole."""
    from understill.report import write_report

    try:
        return write_report(folder, recipe, watch=watch)
    except Exception as error:
        log = logging.getLogger(__name__)
        log.warning("there is no report: %s; the run itself is whole. Try: understill report %s", error, folder)
        log.info("where it happened", exc_info=True)
        return None


@app.command(
    epilog=_examples("understill teach recipes/single.yaml --model sst2", "understill teach recipes/multi.yaml")
)
def teach(
    recipe: RecipeFile,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="Only this model; may be repeated. RUN/NAME for one run of several."
        ),
    ] = None,
    sets: Sets = None,
) -> None:
    """Train the models of a recipe, or only the named ones with what they need."""
    loaded = _load(recipe, sets)
    from understill import pipeline, terminal

    with terminal.Progress() as watch:
        study = pipeline.make_study(loaded, watch)
        trained = pipeline.train_some(study, tuple(model or ()), watch)
    tasks = {name: task.task for _, plan in study.cells for name, task in plan.loaded.items()}
    for each in trained:
        terminal.show_scores({each.name: each.scores}, tasks)
        terminal.say(f"model: {each.folder}")


@app.command(
    epilog=_examples(
        "understill evaluate runs/quickstart",
        "understill evaluate runs/single/models/sst2 --recipe recipes/single.yaml",
        "understill evaluate runs/quickstart --split test --out predictions/",
    )
)
def evaluate(
    model: Model,
    recipe: Annotated[
        Path | None, typer.Option(help="Whose data to score on; the model's own recipe if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Keep every row's prediction in this folder, as Parquet.")] = None,
    split: Annotated[str, typer.Option(help="dev, or test where its rows have labels.")] = "dev",
    sets: Sets = None,
) -> None:
    """Score a model on its dev sets, or on its test sets."""
    from understill import pipeline, terminal

    folder = pipeline.find_model(model)
    if split not in ("dev", "test"):
        raise UserError(f'--split "{split}": write dev or test')
    if recipe is None and not (folder / "recipe.yaml").exists():
        raise UserError(f"{folder}: no recipe.yaml here; say whose data to use with --recipe")
    loaded = _load(recipe or folder / "recipe.yaml", sets)
    with terminal.Progress() as watch:
        scores, tasks = pipeline.evaluate(folder, loaded, out, watch, split)
    terminal.show_scores({folder.name: scores}, tasks, split)
    if out:
        terminal.say(f"predictions: {out}")


@app.command(
    epilog=_examples(
        "understill compare runs/single runs/bam",
        "understill compare runs/bam:baseline runs/bam   [dim]# what the teachers have brought[/dim]",
        "understill compare runs/bam:teachers runs/bam runs/compress",
        "understill compare runs/bilstm_soft:hard-without runs/bilstm_soft:soft-with",
    )
)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Run folders, model folders, or RUN:PART, where a part is student, baseline, teachers, or a model's "
            "name; of a study also RUN:VARIANT and RUN:VARIANT/PART. Of a run it is the student, or else the models of "
            "its tasks, with all seeds.",
            show_default=False,
        ),
    ],
) -> None:
    """Say whether B is really better than A on the dev sets of both: deltas, intervals, p-values, effect sizes."""
    from understill import pipeline, terminal

    terminal.show_comparisons(pipeline.compare(names))


@app.command(
    epilog=_examples(
        "understill report runs/quickstart --open",
        "understill report runs/my-tasks --by customer_type --out for-the-team.html",
    )
)
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write it; report.html of the run folder if not given. Markdown goes beside it."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Score parts of the rows by this column of your files too.")
    ] = None,
    timing: Annotated[bool, typer.Option("--timing/--no-timing", help="Measure how fast the models are.")] = True,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a run: one HTML page, and the same as Markdown."""
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{run}: no recipe.yaml here, so this is no run → name the folder that a run printed")
    if out and out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: a report is a page → write a name that ends in .html")
    if out and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    loaded = _load(run / "recipe.yaml", None)
    from understill import terminal
    from understill.report import write_report

    with terminal.Progress() as watch:
        page = write_report(run, loaded, out=out, by=by, timing=timing, watch=watch)
    terminal.say(f"report: {page}\nMarkdown: {page.with_suffix('.md')}")
    if show:
        typer.launch(page.resolve().as_uri())


@app.command(
    epilog=_examples(
        "understill submit runs/bam",
        "understill submit runs/mtdnn_kd --models finetuned --fill",
        "understill submit runs/single --glue glue --out upload",
    )
)
def submit(
    run: Annotated[Path, typer.Argument(help="A run folder, or a model folder.", show_default=False)],
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Who answers: a part played in the run, such as student, finetuned or baseline, or a model's name. "
            "May be repeated; the first that has the task answers. The student, or the models, if not given.",
        ),
    ] = None,
    glue: Annotated[Path | None, typer.Option(help="The GLUE folder; the recipe's if not given.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; the folder submission of the run if not given.")
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Write a sample, the majority guess of train, for what no model answers.")
    ] = False,
    sets: Sets = None,
) -> None:
    """Answer GLUE's test sets and write the benchmark's files and their zip."""
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{run}: no recipe.yaml here, so this is no run → name the folder that a run printed")
    loaded = _load(run / "recipe.yaml", sets)
    from understill import pipeline, terminal

    with terminal.Progress() as watch:
        written = pipeline.submit(run, loaded, parts=tuple(models or ()), folder=glue, out=out, fill=fill, watch=watch)
    terminal.show_submission(written)


@app.command(
    epilog=_examples(
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
    file: Annotated[Path | None, typer.Option(help="A file of texts: CSV, TSV, JSONL or Parquet, of any size.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the answers: .parquet, .csv or .jsonl.")] = None,
    task: Tasks = None,
    columns: Annotated[str | None, typer.Option(help="The text column(s) of the file, comma between two.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Ask a model: for texts on the command line, or for a whole file."""
    from understill import terminal
    from understill.loading import load

    if bool(text) == bool(file):
        raise UserError("give either --text or --file")
    if file and not out:
        raise UserError("--file needs --out, the file to write the answers to")
    if file and second:
        raise UserError("--second goes with --text; for pairs in a file, name two columns with --columns")
    if text and (out or columns):
        raise UserError("--out and --columns go with --file; answers to --text are printed")
    predictor = load(model, device)
    if text:
        if second and len(text) == 1:
            text = text * len(second)  # one query, several candidates
        terminal.show_answers(text, second, predictor.predict(text, second or None, task))
        return
    from understill.evaluate.stream import predict_file

    assert file and out
    named = [name.strip() for name in columns.split(",")] if columns else None
    if named and len(named) > 2:
        raise UserError("--columns takes one text column, or two with a comma between them")
    with _tidy(), terminal.counter(f"predicting {file}") as progress:
        done = predict_file(predictor, file, out, task, named, progress)
    terminal.show_predicted(done, out)


@app.command(
    epilog=_examples(
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
            help="huggingface: a plain classifier per task; onnx: one graph of all tasks; int8: the same, rounded.",
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
        Path | None, typer.Option(help="Whose dev rows to check with; the model's own recipe if not given.")
    ] = None,
    sets: Sets = None,
) -> None:
    """Write a model as a folder that other programs run, checked against the model on dev rows, with a model card."""
    from understill.ship.forms import take_order

    folder = take_order(model, to, tuple(task or ()), out).source
    if recipe is None and not (folder / "recipe.yaml").exists():
        raise UserError(f"{folder}: no recipe.yaml here; say whose dev rows to check with by --recipe")
    loaded = _load(recipe or folder / "recipe.yaml", sets)
    from understill import pipeline, terminal

    with _tidy(), terminal.Progress() as watch:
        made = pipeline.export(model, loaded, to, tasks=tuple(task or ()), out=out, limit=limit, watch=watch)
    terminal.show_export(made)


@app.command(
    epilog=_examples(
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
    ] = Settings.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = Settings.port,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes, each with its own copy of the model.")
    ] = Settings.workers,
    batch: Annotated[
        int, typer.Option(min=1, help="The most rows that go through the model at once; 1 turns batching off.")
    ] = Settings.batch,
    wait: Annotated[
        float, typer.Option(min=0, help="Milliseconds that an idle model waits for more rows; none is best as a rule.")
    ] = Settings.wait,
    queue: Annotated[
        int, typer.Option(min=1, help="The most rows that may wait; then it is 503, ask again.")
    ] = Settings.queue,
    max_rows: Annotated[int, typer.Option(min=1, help="The most rows in a request.")] = Settings.max_rows,
    max_characters: Annotated[
        int, typer.Option(min=1, help="The most characters in a text.")
    ] = Settings.max_characters,
    max_bytes: Annotated[int, typer.Option(min=1, help="The most bytes in a request's body.")] = Settings.max_bytes,
    keys: Annotated[
        Path | None,
        typer.Option(help="A file of keys, one to a line, one of which has to be sent; or set UNDERSTILL_KEYS."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE", help="A site whose pages may ask, such as https://example.org, or '*'; may be repeated."
        ),
    ] = None,
    log: Annotated[
        str, typer.Option(help="all: a line for each request; errors: only for those refused or failed.")
    ] = Settings.log,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to go on taking requests after SIGTERM, while /readyz says no.")
    ] = Settings.drain,
) -> None:
    """Answer over HTTP: JSON for programs, and a page at / to try the model."""
    settings = Settings(
        model=model,
        teacher=teacher,
        host=host,
        port=port,
        workers=workers,
        batch=batch,
        wait=wait,
        queue=queue,
        max_rows=max_rows,
        max_characters=max_characters,
        max_bytes=max_bytes,
        keys=read_keys(keys),
        cors=tuple(cors or ()),
        log=log,
        drain=drain,
    )
    try:
        from understill.serve.starting import serve as start
    except ImportError as error:
        raise UserError(f'the server needs {error.name} → pip install "understill[serve]"') from None
    start(settings, typer.echo)


@app.command(
    epilog=_examples(
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
    from understill import terminal
    from understill.bench.measure import measure
    from understill.bench.subjects import open_subjects
    from understill.bench.texts import made_up, read_texts
    from understill.disk import write_json

    if file and not file.parent.is_dir():
        raise UserError(f"--json {file}: there is no folder {file.parent}")
    subjects, chosen = open_subjects(models, task)
    given = read_texts(texts, chosen.pair) if texts else made_up(chosen.pair)
    with terminal.Progress() as watch:
        found = measure(subjects, chosen, given, rounds=rounds, http=http, watch=watch)
    terminal.show_bench(found)
    if file:
        write_json(file, found.to_json())
        terminal.say(f"wrote {file}")


@app.command(
    epilog=_examples(
        "understill data",
        "understill data recipes/quickstart.yaml --examples 2",
        "understill data --glue glue   [dim]# compare with the official numbers of rows[/dim]",
    )
)
def data(
    recipe: Annotated[Path | None, typer.Argument(help="Show this recipe's tasks.", show_default=False)] = None,
    glue: Annotated[Path | None, typer.Option(help="Count the rows of a GLUE folder.")] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many rows of each task to show.")] = 0,
    sets: Sets = None,
) -> None:
    """List tasks, count their rows, show examples."""
    from understill import terminal

    if glue is not None:
        from understill.data.glue import verify_counts

        terminal.show_counts(verify_counts(glue))
    elif recipe is None:
        from understill.data.demo import TASKS
        from understill.tasks import GLUE

        terminal.show_tasks({"demo": list(TASKS.values()), "GLUE": [entry.task for entry in GLUE.values()]})
    else:
        loaded = _load(recipe, sets)
        from understill.pipeline import read_data

        with terminal.Progress() as watch:
            tasks = read_data(loaded, watch)
        terminal.show_data(tasks, examples)


OutputFolder = Annotated[Path, typer.Argument(help="The output folder of your recipes.")]


@app.command(epilog=_examples("understill runs", "understill runs elsewhere/runs"))
def runs(folder: OutputFolder = Path("runs")) -> None:
    """List the runs of an output folder, with what came out."""
    from understill import pipeline, terminal

    terminal.show_runs(pipeline.list_runs(folder))


@app.command(
    epilog=_examples(
        "understill clean   [dim]# shows what would go[/dim]",
        "understill clean --yes",
        "understill clean --cache --yes",
    )
)
def clean(
    folder: OutputFolder = Path("runs"),
    cache: Annotated[bool, typer.Option("--cache", help="Also the data and tokens kept between runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this it is only shown.")] = False,
) -> None:
    """Remove models, soft targets and verdicts that no run refers to."""
    from understill import pipeline, terminal

    terminal.show_waste(pipeline.clean(folder, cache=cache, remove=yes), removed=yes)


@app.command(epilog=_examples("understill assets"))
def assets() -> None:
    """List the pretrained encoders and word vectors that install with pip, and whether they are here."""
    from understill import terminal
    from understill.models.assets import known

    terminal.show_assets(known())


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("understill"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more about what happens.")] = False,
) -> None:
    """Set up what all verbs share."""
    handler = logging.StreamHandler()
    handler.addFilter(_once())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level, handlers=[handler])
    for library in ("transformers", "accelerate", "datasets", "httpx", "huggingface_hub", "filelock"):
        logging.getLogger(library).setLevel(logging.ERROR)


def _once() -> Callable[[logging.LogRecord], bool]:
    """Let each message through once: a run reads its data, and then its report does."""
    said: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        known = message in said
        said.add(message)
        return not known

    return new


def main(arguments: list[str] | None = None) -> Any:
    """Run the program: 0 when done, 2 for a user's mistake, 1 for a bug."""
    return app(arguments)


if __name__ == "__main__":
    main()
