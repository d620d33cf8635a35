"""The program: all verbs together, what they share, and how it ends."""

from __future__ import annotations

import logging
import sys
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from understill.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable


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
