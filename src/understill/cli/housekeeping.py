"""Verbs that list, verify and clean: data, runs, verify, clean, assets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from understill.cli.arguments import Sets, examples_of, load
from understill.cli.program import app


@app.command(
    epilog=examples_of(
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
    """List tasks with their rows and labels, and show examples."""
    from understill.terminal import listings, progress

    if glue is not None:
        from understill.data.glue_files import verify_counts

        listings.show_counts(verify_counts(glue))
    elif recipe is None:
        from understill.data.demo import TASKS
        from understill.tasks import GLUE

        listings.show_tasks({"demo": list(TASKS.values()), "GLUE": [entry.task for entry in GLUE.values()]})
    else:
        loaded = load(recipe, sets)
        from understill.pipeline.recipe_data import read_data

        with progress.LiveProgress() as watch:
            tasks = read_data(loaded, watch)
        listings.show_data(tasks, examples)


OutputFolder = Annotated[Path, typer.Argument(help="The folder that holds your runs.")]


@app.command(epilog=examples_of("understill runs", "understill runs elsewhere/runs"))
def runs(folder: OutputFolder = Path("runs")) -> None:
    """List the runs in a folder, with their scores."""
    from understill.pipeline.runs import list_runs
    from understill.terminal import listings

    listings.show_runs(list_runs(folder))


@app.command(
    epilog=examples_of(
        "understill verify   [dim]# all runs in the folder runs[/dim]",
        "understill verify runs/quickstart",
        "understill verify runs/quickstart/export/int8",
        "understill verify student-onnx",
    )
)
def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN|MODEL", help="A run, a model, an export, or the folder that holds your runs."),
    ] = Path("runs"),
) -> None:
    """Check every file against its checksum, and say what mends those that differ; exits with 1 if any does.

    Of a run: its record and recipe, its models, soft targets and verdicts, checkpoints, exports, and the cache with the
    answers of language models. For a single model or export, one digest of all its files is printed, to compare with
    another copy. Nothing is changed.
    """
    from understill.pipeline.verification import verify
    from understill.terminal import listings

    checked = verify(folder)
    listings.show_verified(checked)
    if any(each.faults for each in checked):
        raise typer.Exit(1)


@app.command(
    epilog=examples_of(
        "understill clean   [dim]# shows what would go[/dim]",
        "understill clean --yes",
        "understill clean --cache --yes",
    )
)
def clean(
    folder: OutputFolder = Path("runs"),
    cache: Annotated[bool, typer.Option("--cache", help="Also remove cached data and tokens.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without this they are only listed.")] = False,
) -> None:
    """Remove models, soft targets and teacher checks that no run uses any more."""
    from understill.pipeline.runs import clean
    from understill.terminal import listings

    listings.show_waste(clean(folder, cache=cache, remove=yes), removed=yes)


@app.command(epilog=examples_of("understill assets"))
def assets() -> None:
    """List the pretrained encoders and word vectors that pip can install, and whether they are installed."""
    from understill.models.assets import known
    from understill.terminal import listings

    listings.show_assets(known())
