"""The program: all verbs together, what they share, and how it ends."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from understill.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable


class Program(typer.core.TyperGroup):
    """All verbs together: exits with 2 for a user's mistake, and with 130 or 143 when it is interrupted."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; what is neither a mistake nor an interruption is a bug, and keeps its traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            hint = "; the same command resumes from the last checkpoint, or starts again if there is none yet"
            usual = f"stopped{'' if ctx.invoked_subcommand == 'serve' else hint}"
            print(f"\n{str(error) or usual}", file=sys.stderr)
            raise SystemExit(128 + getattr(error, "number", signal.SIGINT)) from None
        except Exception as error:
            message = _mistake(error, ctx.invoked_subcommand)
            if message is None:
                raise
            if not isinstance(error, UserError):  # -v shows where it happened
                logging.getLogger(__name__).info("where it happened", exc_info=True)
            if os.environ.get("RANK", "0") == "0":  # of several processes that were just started, one says it
                print(f"error: {message}", file=sys.stderr)
            raise SystemExit(2) from None


#: What to do about what the system refuses, by the names of its errors.
_FIXES = {
    "ENOSPC EDQUOT EFBIG": "make room, or write elsewhere; the same command goes on",
    "ENOENT ENOTEMPTY ESTALE": "was it moved or removed meanwhile? The same command goes on",
    "EMFILE ENFILE": "allow more open files, such as by ulimit -n 4096; the same command goes on",
    "EACCES EPERM EROFS EEXIST EISDIR ENOTDIR": "name another place, or change what is there",
    "EIO": "look after the disk; the same command goes on",
    "ENAMETOOLONG": "choose a shorter name, or a folder with a shorter path",
    "ENOMEM": "close other programs, or use smaller batches; the same command goes on",
}
#: How libraries written in Rust name the system's error.
_RUST = re.compile(r"\(os error (\d+)\)")

#: How libraries quote the file that they mean.
_QUOTED = re.compile(r"""['"](/[^'"]+)['"]""")


#: What torch says where memory runs out, on the processor and on a card.
_NO_MEMORY = ("can't allocate memory", "out of memory")


def _mistake(error: Exception, verb: str) -> str | None:
    """Describe an error that the user can fix, or that the system is to blame for; None for a bug."""
    match error:
        case UserError():
            return str(error)
        case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] != "understill":
            what = f"understill {verb} needs {name}, which is not installed"
            return f"{what} → pip install understill, with all that it requires"
        case BrokenPipeError():
            return None  # whoever reads what is printed has enough of it, which typer knows how to end
        case OSError():
            number = error.errno or 0
        case MemoryError():
            number = errno.ENOMEM
        case _:
            rust, memory = _RUST.search(str(error)), any(sign in str(error) for sign in _NO_MEMORY)
            if not rust and not memory:
                return None
            number = int(rust[1]) if rust else errno.ENOMEM
    quoted = _QUOTED.search(str(error))
    where = getattr(error, "filename", None) or (quoted[1] if quoted else "")
    place = f"{where}: " if where and number else ""
    name = errno.errorcode.get(number, "?")
    fixes = (fix for names, fix in _FIXES.items() if name in names.split())
    return f"{place}{os.strerror(number) if number else error} → {next(fixes, 'understill -v shows where it happened')}"


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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more of what happens.")] = False,
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
    seen: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        known = message in seen
        seen.add(message)
        return not known

    return new


def main(arguments: list[str] | None = None) -> Any:
    """Run the program: 0 when done, 2 for a user's mistake, 1 for a bug."""
    return app(arguments)
