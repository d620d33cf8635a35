"""Verbs about results: evaluate, compare, report, submit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from understill.cli.arguments import Model, Sets, examples_of, load, load_of_run, refuse_no_folder
from understill.cli.program import app
from understill.errors import UserError

#: The exit status of `compare --fail-if worse` where something is worse.
FAILED = 3


@app.command(
    epilog=examples_of(
        "understill evaluate runs/quickstart",
        "understill evaluate runs/single/models/sst2 --recipe recipes/single.yaml",
        "understill evaluate runs/quickstart --split test --out predictions/",
    )
)
def evaluate(
    model: Model,
    recipe: Annotated[
        Path | None, typer.Option(help="Score on the data of this recipe; the model's own if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every row's prediction to this folder, as Parquet.")] = None,
    split: Annotated[str, typer.Option(help="dev, or test where its rows have labels.")] = "dev",
    sets: Sets = None,
) -> None:
    """Score a model on its dev sets, or on its test sets."""
    from understill.models.manifest import find_model
    from understill.pipeline import evaluation
    from understill.terminal import console, progress, scores

    folder = find_model(model)
    if split not in ("dev", "test"):
        raise UserError(f'--split "{split}": write dev or test')
    if recipe is None and not (folder / "recipe.yaml").exists():
        raise UserError(f"{folder}: no recipe.yaml here; say whose data to use with --recipe")
    loaded = load(recipe or folder / "recipe.yaml", sets)
    with progress.LiveProgress() as watch:
        measured, tasks = evaluation.evaluate(folder, loaded, out, watch, split)
    scores.show_scores({folder.name: measured}, tasks, split)
    if out:
        console.say(f"predictions: {out}")


@app.command(
    epilog=examples_of(
        "understill compare runs/single runs/bam",
        "understill compare runs/bam:baseline runs/bam   [dim]# what distillation gained[/dim]",
        "understill compare runs/bam:teachers runs/bam runs/compress",
        "understill compare runs/bilstm_soft:hard-without runs/bilstm_soft:soft-with",
        "understill compare runs/today runs/candidate --fail-if worse --margin 0.5   [dim]# for CI[/dim]",
    )
)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Run folders, model folders, or RUN:PART, where PART is student, baseline, teachers, or a model's "
            "name; RUN:VARIANT and RUN:VARIANT/PART for a variant of a study. A run alone stands for its student or, "
            "without one, its models, with all seeds. The first is A; each of the others is compared with it as B.",
            show_default=False,
        ),
    ],
    fail_if: Annotated[
        str | None,
        typer.Option(metavar="worse", help=f"Exit with {FAILED} where B is significantly worse than A, for scripts."),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0, help="With --fail-if: tolerated loss in points; the whole interval has to be worse than that."
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead of tables.")] = False,
) -> None:
    """Test whether B is better than A on the dev sets of both, on the mean over tasks first, then on each task."""
    if fail_if not in (None, "worse"):
        raise UserError(f'--fail-if "{fail_if}": write worse')
    if margin and not fail_if:
        raise UserError("--margin goes with --fail-if worse")
    from understill.pipeline import comparison
    from understill.terminal import comparisons

    compared = comparison.compare(names)
    if as_json:
        typer.echo(json.dumps([each.facts() for each in compared], indent=2))
    else:
        comparisons.show_comparisons(compared)
    worse = [row for each in compared for row in each.rows if row.worse_by(margin / 100)]
    if fail_if and worse:
        raise typer.Exit(FAILED)


@app.command(
    epilog=examples_of(
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
        str | None, typer.Option(metavar="COLUMN", help="Also score slices of the rows by this column of your files.")
    ] = None,
    timing: Annotated[bool, typer.Option("--timing/--no-timing", help="Measure how fast the models are.")] = True,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a run: one HTML page, and the same as Markdown."""
    loaded = load_of_run(run, None)
    if out and out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: a report is a page → write a name that ends in .html")
    if out:
        refuse_no_folder("--out", out)
    from understill.report import write_report
    from understill.terminal import console, progress

    with progress.LiveProgress() as watch:
        page = write_report(run, loaded, out=out, by=by, timing=timing, watch=watch)
    console.say(f"report: {page}\nMarkdown: {page.with_suffix('.md')}")
    if show:
        typer.launch(page.resolve().as_uri())


@app.command(
    epilog=examples_of(
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
            help="Which models predict: a role in the run, such as student, finetuned or baseline, or a model's name. "
            "May be repeated; the first that has a task predicts it. The student, or the models, if not given.",
        ),
    ] = None,
    glue: Annotated[Path | None, typer.Option(help="The GLUE folder; the recipe's if not given.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; the folder submission of the run if not given.")
    ] = None,
    fill: Annotated[
        bool,
        typer.Option("--fill", help="For tasks without a model, write the majority class of train as a placeholder."),
    ] = False,
    sets: Sets = None,
) -> None:
    """Predict GLUE's test sets, and write the benchmark's files and their zip."""
    loaded = load_of_run(run, sets)
    from understill.pipeline import glue_submission
    from understill.terminal import outputs, progress

    with progress.LiveProgress() as watch:
        written = glue_submission.submit(
            run, loaded, parts=tuple(models or ()), folder=glue, out=out, fill=fill, watch=watch
        )
    outputs.show_submission(written)
