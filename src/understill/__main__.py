"""Run the command line with `python -m understill`."""

from understill.cli import main

main()
