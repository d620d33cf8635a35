"""Verbs that train: init, check, run, train."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understill.cli.arguments import (
    Address,
    EngineName,
    RecipeFile,
    Sets,
    examples_of,
    load,
    refuse_engine,
    refuse_no_folder,
    tidy,
)
from understill.cli.program import app
from understill.errors import ProcessLost, UserError

if TYPE_CHECKING:
    from understill.engines.engine import Engine
    from understill.events import Watch
    from understill.pipeline.llm_estimate import AskEstimate
    from understill.pipeline.plan.parts import Study
    from understill.recipe import Recipe


@app.command(
    epilog=examples_of(
        "understill init tickets.csv tickets_dev.csv",
        "understill init data/*.csv --out recipe.yaml",
        "understill init tickets.csv --text body --label queue --label urgency",
        "understill init tickets.csv logs.csv --distil   [dim]# a teacher, and a student of three layers[/dim]",
        "understill init tickets.csv --distil --teacher mpnet",
    )
)
def init(
    files: Annotated[
        list[Path], typer.Argument(help="Your data files: CSV, TSV, JSONL, Parquet or Excel.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Where to write the recipe.")] = Path("recipe.yaml"),
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The column to read, where it is not guessed; twice for a pair."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The column to learn, where it is not guessed; each one is a task."),
    ] = None,
    distil: Annotated[
        bool, typer.Option("--distil", help="Write a recipe that trains a teacher and distils it into a small student.")
    ] = False,
    teacher: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --distil, the teacher's encoder; minilm if not given."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a recipe that is there.")] = False,
) -> None:
    """Look at your files and write a commented recipe for them."""
    from understill.data.columns import NamedColumns
    from understill.data.recipe_draft import draft_recipe
    from understill.models.catalogue import refuse_misspelt
    from understill.terminal import plans

    if out.is_dir():
        raise UserError(f"--out {out}: this is a folder → write --out {out / 'recipe.yaml'}")
    if out.exists() and not force:
        raise UserError(f"{out} is there already → choose another name with --out, or overwrite it with --force")
    refuse_no_folder("--out", out)
    if teacher and not distil:
        raise UserError(f"--teacher {teacher}: only a recipe that distils has a teacher → add --distil")
    if teacher:
        refuse_misspelt(teacher)

    def load_tokenizer(name: str) -> Any:
        from understill.models import encoder  # takes a second or two, and few files need it

        return encoder.load_tokenizer(name)

    named = NamedColumns(tuple(text or ()), tuple(label or ()))
    draft = draft_recipe(files, (teacher or "minilm") if distil else None, load_tokenizer, named)
    out.write_text(draft.text, encoding="utf-8")
    for reason in draft.left_out:
        logging.getLogger(__name__).warning("left out: %s", reason)
    plans.show_draft(out, draft)


@app.command(
    epilog=examples_of(
        "understill check recipes/quickstart.yaml",
        "understill check my.yaml --set training.epochs=5",
        "understill check my.yaml --time",
        "understill check my.yaml --full",
        "understill check my.yaml --plan gpus=64",
        "understill check my.yaml --plan gpus=64,rows=1e9,price=2.5   [dim]# and labelling a billion rows[/dim]",
    )
)
def check(
    recipe: RecipeFile,
    sets: Sets = None,
    timed: Annotated[bool, typer.Option("--time", help="Time real steps of every model; may take minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the whole recipe, defaults included.")] = False,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="gpus=N",
            help="Estimate time and cost on N GPUs; rows=1e9 adds labelling, price=3 is the price of a GPU hour.",
        ),
    ] = None,
) -> None:
    """Check a recipe and its data without training; say what would run and about how long."""
    loaded = load(recipe, sets)
    from understill.engines.cost_model import Cluster, scale_plan
    from understill.estimate import estimate
    from understill.events import Checking
    from understill.pipeline.teacher_selection import open_teacher
    from understill.terminal import console, listings, plans, progress

    cluster = Cluster.parse(plan) if plan else None
    with progress.LiveProgress() as watch:
        asks, study = _foreseen(loaded, watch)
        external = study.external if study else ()
        for number, (run_plan, teacher) in enumerate(external):
            watch(Checking(f"opening {teacher.name}", number, len(external)))
            open_teacher(run_plan, teacher)
        times = estimate(study, watch, timed=timed) if study else {}
    plans.show_asks(asks)
    if study:
        plans.show_plan(study, times)
    else:
        console.say("recipe and data are fine; training is planned when these rows are answered: understill run")
    if cluster and study:
        plans.show_scale(scale_plan(study, times, cluster), cluster)
    if full:
        listings.show_yaml(loaded.to_yaml())


Processes = Annotated[
    int | None,
    typer.Option(
        min=1, max=1024, metavar="N", help="Train each model in N processes, which share its batches: one on each GPU."
    ),
]


StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="With --engine ray, where nodes without a shared folder exchange artefacts."
    ),
]


@app.command(
    epilog=examples_of(
        "understill run recipes/quickstart.yaml",
        "understill run recipes/single.yaml --set data.glue=glue --set seed=1",
        "understill run recipes/bam.yaml --set student.distil.anneal=0.5 --set name=bam-half",
        "understill run my.yaml --seeds 3   [dim]# mean, spread and interval over three seeds[/dim]",
        "understill run my.yaml --dry-run   [dim]# what would be done, and what is there already[/dim]",
        "understill run my.yaml   [dim]# again after a crash: goes on where it stopped[/dim]",
        "understill run my.yaml --processes 4   [dim]# four GPUs, or parts of a CPU, share each model's batches[/dim]",
        "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-endpoint HOST:29500 -m understill run my.yaml",
        "understill run my.yaml --engine ray --address HOST:6379   [dim]# all nodes share the output folder[/dim]",
        "understill run my.yaml --engine ray --address HOST:6379 --store s3://bucket/runs",
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
    processes: Processes = None,
    engine_name: EngineName = "local",
    address: Address = None,
    store: StoreUrl = None,
) -> None:
    """Do everything a recipe asks for: teachers, soft targets, student and baseline, and compare their scores."""
    loaded = load(recipe, [*(sets or ()), *([f"seeds={seeds}"] if seeds else ())])
    cluster = _cluster(engine_name, address, store, processes)
    from understill.terminal import console, plans, progress, studies

    if dry_run:
        with tidy(), progress.LiveProgress() as watch:
            asks, study = _foreseen(loaded, watch)
        plans.show_asks(asks)
        if study:
            plans.show_plan(study)
        return
    engine = cluster or _engine(loaded, processes)
    from understill.engines.study import run_study
    from understill.pipeline.language_models import unanswered

    with tidy(), engine as run_stages, progress.LiveProgress() as watch:
        runs = run_study(loaded, watch, run_stages)
        # What a language model answered is in the recipe of the run alone: which rows, and which labels are its own.
        complete = load(runs[0].folder / "recipe.yaml", None) if unanswered(loaded) else loaded
        page = _report_of(runs[0].folder, complete, watch) if report else None
    studies.show_study(runs)
    if page:
        console.say(f"report: {page}")


def _cluster(
    name: str, address: str | None, store: str | None, processes: int | None
) -> AbstractContextManager[Engine] | None:
    """Return what runs stages on a cluster; None where that is not asked for."""
    given = [f"--{key}" for key, value in (("address", address), ("store", store)) if value]
    if refuse_engine(name, given) == "local":
        return None
    if processes:
        raise UserError("--processes goes with --engine local → leave it out; Ray has the tasks of all nodes")
    from understill.engines.ray import on_ray

    return on_ray(address, store)


def _foreseen(recipe: Recipe, watch: Watch) -> tuple[list[AskEstimate], Study | None]:
    """Estimate what language models will be asked, and plan all else unless their answers have to be there first."""
    from understill.pipeline.language_models import unanswered
    from understill.pipeline.llm_estimate import estimate_asks
    from understill.pipeline.plan.planner import make_study

    return list(estimate_asks(recipe, watch)), None if unanswered(recipe) else make_study(recipe, watch)


def _engine(recipe: Recipe, processes: int | None) -> AbstractContextManager[Engine]:
    """Return what runs the stages; a process that only helps another one to train does so, and ends."""
    from understill.engines.launch import launch, place

    rank, size = place()
    if max(processes or 1, size) > 1 and any(teacher.asked for teacher in recipe.teachers):
        _refuse_unanswered(recipe)
    if processes and size > 1 and processes != size:
        raise UserError(f"--processes {processes}: torchrun has started {size} → leave --processes out")
    if processes and size == 1 < processes:
        raise typer.Exit(launch(processes, [sys.executable, "-m", "understill", *sys.argv[1:]]))
    if size == 1:
        from understill.engines.devices import run_locally

        return nullcontext(run_locally)
    from understill.engines.processes import help_first, with_others

    if rank == 0:
        return with_others(recipe.machine)
    logging.getLogger().setLevel(logging.ERROR)  # the first process says the rest
    try:
        with tidy():
            help_first(recipe)
    except ProcessLost:
        raise typer.Exit(2) from None
    except KeyboardInterrupt as error:
        raise typer.Exit(128 + getattr(error, "number", signal.SIGINT)) from None
    raise typer.Exit


def _refuse_unanswered(recipe: Recipe) -> None:
    """Refuse to plan in several processes what a language model has yet to answer: each would ask by itself."""
    from understill.pipeline.language_models import unanswered

    if unanswered(recipe):
        saved = f"{recipe.output.path / recipe.name / 'recipe.yaml'}"
        fix = f"run it once without, then name the recipe of that run, {saved}, which has the answers"
        raise UserError(f"--processes: a language model has to be asked first → {fix}")


def _report_of(folder: Path, recipe: Recipe, watch: Watch) -> Path | None:
    """Write the report of a run that has just finished, unless it is there already.

    Whatever goes wrong there, the run is whole.
    """
    from understill.report import PAGE, is_current, write_report

    try:
        return folder / PAGE if is_current(folder) else write_report(folder, recipe, watch=watch)
    except Exception as error:
        log = logging.getLogger(__name__)
        log.warning("there is no report: %s; the run itself is whole. Try: understill report %s", error, folder)
        log.info("where it happened", exc_info=True)
        return None


Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="Only this model; may be repeated. RUN/NAME for one run of several."),
]

ShowPrompts = Annotated[
    int, typer.Option("--show-prompts", min=0, metavar="N", help="Only print N prompts for each language model.")
]


@app.command(
    epilog=examples_of(
        "understill train recipes/single.yaml --model sst2",
        "understill train recipes/multi.yaml",
        "understill train recipes/llm.yaml --show-prompts 3   [dim]# what a language model is asked[/dim]",
    )
)
def train(
    recipe: RecipeFile,
    model: Models = None,
    sets: Sets = None,
    processes: Processes = None,
    engine_name: EngineName = "local",
    address: Address = None,
    store: StoreUrl = None,
    show_prompts: ShowPrompts = 0,
) -> None:
    """Train the models of a recipe, or only the named ones with what they need."""
    loaded = load(recipe, sets)
    cluster = _cluster(engine_name, address, store, processes)
    from understill.terminal import console, progress, scores

    if show_prompts:
        from understill.pipeline.language_models import show_prompts_of

        for title, prompt in show_prompts_of(loaded, show_prompts):
            console.say(f"── {title}\n{prompt}\n")
        return
    engine = cluster or _engine(loaded, processes)
    from understill.engines.study import train_some, train_students
    from understill.pipeline.language_models import answer_rows
    from understill.pipeline.plan.planner import make_study

    with tidy(), engine as run_stages, progress.LiveProgress() as watch:
        loaded = answer_rows(loaded, watch, train_students)
        study = make_study(loaded, watch)
        trained = train_some(study, tuple(model or ()), watch, run_stages)
    tasks = {name: task.task for _, plan in study.cells for name, task in plan.loaded.items()}
    for each in trained:
        scores.show_scores({each.name: each.scores}, tasks)
        console.say(f"model: {each.folder}")


@app.command(hidden=True)
def teach(
    recipe: RecipeFile,
    model: Models = None,
    sets: Sets = None,
    show_prompts: ShowPrompts = 0,
) -> None:
    """Train models: the old name of `train`."""
    typer.echo("understill teach is now understill train; the old name works until the next release", err=True)
    train(recipe, model, sets, show_prompts=show_prompts)
