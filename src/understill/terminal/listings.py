"""Listings: the runs in a folder, what cleaning removes, assets, tasks and rows of data."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.syntax import Syntax

from understill.atomic import CHECKSUMS, file_digest
from understill.errors import counted
from understill.numbers import NONE, file_size, score
from understill.terminal import console

if TYPE_CHECKING:
    from understill.data.load import LoadedTask
    from understill.models.assets import AssetStatus
    from understill.pipeline.runs import Kept, Waste
    from understill.pipeline.verification import Verified
    from understill.tasks import Task


def show_runs(runs: Sequence[Kept]) -> None:
    """Show the runs of a folder, the latest first."""
    if not runs:
        console.say("no runs here yet; understill run RECIPE makes one")
        return
    rows = []
    for run in runs:
        state = "done" if run.state == "done" else "not finished"
        if len(cells := run.facts.get("cells", ())) > 1:
            state += f", {len(cells)} runs"
        means = [f"{role} {score('', mean)}" for role, mean in run.means.items()]
        means += [f"mean of {len(run.cells)} seeds"] if len(run.cells) > 1 else []
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        models = str(len(run.facts.get("models", {})))
        rows.append((run.name, when, state, models, ", ".join(means), file_size(run.bytes)))
    console.show_table("runs", ("run", "when", "state", "models", "dev mean", "size"), (), rows)


def show_waste(waste: Sequence[Waste], removed: bool) -> None:
    """Show what was cleaned away, or would be."""
    for each in waste:
        console.say(f"{'removed' if removed else 'would remove'} {each.path}  ({file_size(each.bytes)})")
    total = file_size(sum(each.bytes for each in waste))
    if not waste:
        console.say("nothing to clean: every artefact belongs to a run")
    else:
        console.say(f"{total} freed" if removed else f"{total} could be freed; do it with --yes")


def show_verified(checked: Sequence[Verified]) -> None:
    """Show which files differ from their checksums and what mends them, and how many were checked."""
    for each in checked:
        for fault in each.faults:
            console.say(f"{each.path}: {fault}")
        if each.faults:
            console.say(f"  {each.remedy}")
    files, size = sum(each.files for each in checked), file_size(sum(each.bytes for each in checked))
    damaged = sum(bool(each.faults) for each in checked)
    all_of_them = f"{counted(files, 'file')} in {counted(len(checked), 'place')} checked ({size})"
    console.say(f"{all_of_them}: {f'{damaged} damaged' if damaged else 'all match their checksums'}")
    sums = checked[0].path / CHECKSUMS
    if len(checked) == 1 and not damaged and sums.exists():  # it stands for all files: one line to compare
        console.say(f"sha256 of {CHECKSUMS}: {file_digest(sums)}")


def show_assets(assets: Sequence[AssetStatus]) -> None:
    """Show what can be named in a recipe and installed with pip."""
    for asset in assets:
        console.say(f"{asset.name}: {asset.what} ({file_size(asset.size)})")
        where = f": {asset.where}" if asset.where else ""
        console.say(f"  installed{where}" if asset.installed else f"  not installed: {asset.pip}")


def show_yaml(text: str) -> None:
    """Show a recipe."""
    console.out.print(Syntax(text, "yaml", background_color="default") if sys.stdout.isatty() else text)


# Data -----------------------------------------------------------------------------------------------------------------


def show_data(loaded: Mapping[str, LoadedTask], examples: int) -> None:
    """Show the tasks of a recipe with their rows and, if wanted, some of them."""
    rows = []
    for task in loaded.values():
        splits = ", ".join(f"{split} {data.rows:,}" for split, data in task.splits.items())
        rows.append((task.task.name, *_about(task.task), splits, "; ".join(_notes(task))))
    console.show_table("tasks", ("task", "kind", "texts", "labels", "rows", "notes"), (), rows)
    for task in loaded.values():
        for split, data in list(task.splits.items())[:1] if examples else []:
            console.say(f"{task.task.name} ({split}):")
            for row in data.table().slice(0, examples).to_pylist():
                texts = " | ".join(str(row[name]) for name in ("text1", "text2") if name in row)
                console.say(f"  {row['label'] if row['label'] is not None else '?'}: {texts}")


def _notes(task: LoadedTask) -> list[str]:
    """Name rows that are in two splits, and rows that were left out."""
    notes = [f"{count:,} rows of {split} are in train" for split, count in task.overlap.items() if count]
    notes += [f"{count:,} rows of {split} are in train of {other}" for (split, other), count in task.across.items()]
    notes += [f"{count:,} rows of {split} are in unlabelled" for split, count in task.foreseen.items() if count]
    return notes + [
        f"{data.rejected:,} rows of {split} left out" for split, data in task.splits.items() if data.rejected
    ]


def _about(task: Task) -> tuple[str, str, str]:
    return task.kind.name, ", ".join(task.text), task.kind.gold_range(task)


def show_tasks(groups: Mapping[str, Sequence[Task]]) -> None:
    """Show the tasks that come with understill or with GLUE."""
    for title, tasks in groups.items():
        rows = [(task.name, *_about(task), ", ".join(task.metrics)) for task in tasks]
        console.show_table(title, ("task", "kind", "texts", "labels", "metrics"), (), rows)


def show_counts(counts: Sequence[Any]) -> None:
    """Show the rows of a GLUE folder beside the official numbers."""
    rows = []
    for task, split, here, official in counts:
        state = "" if official is None else "complete" if here == official else "missing" if not here else "differs"
        rows.append((task, split, *(NONE if each is None else f"{each:,}" for each in (here, official)), state))
    console.show_table("GLUE", ("task", "split"), ("rows", "official"), rows, last="state")
