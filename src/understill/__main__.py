"""Run the command line with `understill`, or with `python -m understill`."""

from __future__ import annotations

import os
import sys

#: Threads of OpenMP that wait for each other soon sleep: spinning on, they take the cores from what they wait for as
#: soon as anything else runs; to sleep at once costs more where nothing does. GNU's runtime, then LLVM's and Intel's.
WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}


def wait_quietly() -> None:
    """Let threads wait without much spinning, unless the user has said how they wait; read when torch is imported."""
    if not {*WAITING, "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ.update(WAITING)


def main() -> None:
    """Run the program, or say what it lacks where only the runtime is installed."""
    wait_quietly()
    try:
        from understill.cli import main as run
    except ModuleNotFoundError as error:
        what = f"the command line needs {error.name}, which is not installed"
        print(f"error: {what} → pip install typer, or ask models from Python", file=sys.stderr)
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
