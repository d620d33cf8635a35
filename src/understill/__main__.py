"""Run the command line with `understill`, or with `python -m understill`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program, or say what it lacks where only the runtime is installed."""
    try:
        from understill.cli import main as run
    except ModuleNotFoundError as error:
        what = f"the command line needs {error.name}, which is not installed"
        print(f"error: {what} → pip install typer, or ask models from Python", file=sys.stderr)
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
