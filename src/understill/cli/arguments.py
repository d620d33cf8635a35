"""What verbs share: arguments, options, examples, and how a recipe is read."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understill.errors import Interrupted

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


def examples_of(*lines: str) -> str:
    """Lay out the examples at the end of a verb's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  [cyan]{line}[/cyan]" for line in lines)])


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
