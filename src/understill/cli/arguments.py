"""What verbs share: arguments, options, examples, and how a recipe is read."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understill.errors import Interrupted, UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from understill.recipe import Recipe

RecipeFile = Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe; may be given several times."),
]
Model = Annotated[Path, typer.Argument(help="A model folder, or a run folder that holds one.", show_default=False)]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="NAME", help="Only this task; may be given several times.")
]

EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="local: on this machine; ray: on a cluster of Ray.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The cluster of --engine ray; one on this machine if not given."),
]


def examples_of(*lines: str) -> str:
    """Lay out the examples at the end of a verb's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  [cyan]{line}[/cyan]" for line in lines)])


def refuse_engine(name: str, given: list[str]) -> str:
    """Return the name of an engine, or refuse one that there is not, and options that only a cluster has."""
    if name not in ("local", "ray"):
        raise UserError(f"--engine {name}: there is no such engine → {nearest(name, ('local', 'ray'))}")
    if name == "local" and given:
        raise UserError(f"{given[0]} goes with --engine ray → add it, or leave {given[0]} out")
    return name


def text_columns(given: str | None) -> list[str] | None:
    """Read the names of one text column or two."""
    names = [name.strip() for name in given.split(",")] if given else None
    if names and len(names) > 2:
        raise UserError("--columns takes one text column, or two with a comma between them")
    return names


def refuse_no_folder(option: str, path: Path) -> None:
    """Refuse to write a file where there is no folder for it."""
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}")


@contextmanager
def tidy() -> Iterator[None]:
    """Let SIGTERM end the block like an exception, so that what is half written is removed."""

    def end(*_: object) -> None:
        raise Interrupted(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def load(recipe: Path, sets: list[str] | None) -> Recipe:
    """Read a recipe before anything slow is imported, so that a mistake in it is reported at once."""
    from understill.recipe import load_recipe

    return load_recipe(recipe, tuple(sets or ()))


def load_of_run(run: Path, sets: list[str] | None) -> Recipe:
    """Read the recipe that a run folder keeps."""
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{run}: no recipe.yaml here, so this is no run → name the folder that a run printed")
    return load(run / "recipe.yaml", sets)
