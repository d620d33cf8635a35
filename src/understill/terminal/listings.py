"""Listings: runs of a folder, what cleaning removes, and what installs by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.syntax import Syntax

from understill.numbers import megabytes
from understill.terminal import console

if TYPE_CHECKING:
    from understill.models.assets import AssetStatus
    from understill.pipeline import Kept, Waste


def show_runs(runs: Sequence[Kept]) -> None:
    """Show the runs of a folder, the latest first."""
    table = console.table("runs", "run", "when", "state", "models", "dev mean", "size")
    for run in runs:
        models = run.facts.get("models", {})
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        state = "done" if run.state == "done" else "not finished"
        if len(runs_of := run.facts.get("cells", ())) > 1:
            state += f", {len(runs_of)} runs"
        means = [f"{role} {100 * mean:.1f}" for role, mean in run.means.items()]
        seeds = [f"mean of {len(run.cells)} seeds"] if len(run.cells) > 1 else []
        table.add_row(run.name, when, state, str(len(models)), ", ".join(means + seeds), megabytes(run.bytes))
    console.out.print(table)


def show_waste(waste: Sequence[Waste], removed: bool) -> None:
    """Show what was cleaned away, or would be."""
    for each in waste:
        console.say(f"{'removed' if removed else 'would remove'} {each.path}  ({megabytes(each.bytes)})")
    total = megabytes(sum(each.bytes for each in waste))
    if not waste:
        console.say("nothing to clean: every artefact belongs to a run")
    else:
        console.say(f"{total} freed" if removed else f"{total} could be freed; do it with --yes")


def show_assets(assets: Sequence[AssetStatus]) -> None:
    """Show what installs by name."""
    for asset in assets:
        console.say(f"{asset.name}: {asset.what} ({asset.size / 1e6:.0f} MB)")
        console.say(
            f"  installed{f': {asset.where}' if asset.where else ''}"
            if asset.installed
            else f"  not installed: {asset.pip}"
        )


def show_yaml(text: str) -> None:
    """Show a recipe."""
    console.out.print(Syntax(text, "yaml", background_color="default") if sys.stdout.isatty() else text)
