"""The runs of an output folder, and the artefacts that none of them uses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.atomic import read_record
from understill.errors import UserError
from understill.models.roles import RECORD
from understill.pipeline.locks import unused
from understill.pipeline.record import own_cells
from understill.tasks.metric import is_error

#: Prefixes of the folders that may be removed; anything else there is the user's.
ARTIFACTS = ("augmented", "choice", "model", "probe", "targets", "verdict")
CACHED = ("data", "tokens", "words")


@dataclass(frozen=True)
class Kept:
    """One run that a folder holds."""

    name: str
    state: str  # "running", also when it was killed, or "done"
    started: float  # seconds since 1970
    facts: dict[str, Any]
    bytes: int  # of the artefacts it refers to

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The runs of the recipe as it is, one for each seed; none before they are finished."""
        return own_cells(self.facts) if self.facts.get("cells") else []

    @property
    def means(self) -> dict[str, float]:
        """The mean of primary metrics on dev over tasks and seeds, by the role of models."""
        scores: dict[str, list[float]] = {}
        for model in (model for cell in self.cells for model in cell["models"].values()):
            for place, values in model["scores"].items():
                metric, value = next(iter(values.items()))
                if place.endswith("/dev") and not is_error(metric) and model["role"] != "teacher":
                    scores.setdefault(model["role"], []).append(value)
        return {role: sum(values) / len(values) for role, values in scores.items()}


@dataclass(frozen=True)
class Waste:
    """Something that no run uses."""

    path: Path
    bytes: int


def list_runs(folder: Path) -> list[Kept]:
    """Return the runs of an output folder, the latest first."""
    runs = []
    for path, facts in _records(folder):
        size = sum(_size(folder / "artifacts" / name) for name in facts["uses"])
        runs.append(Kept(path.parent.name, facts["state"], facts["started"], facts, size))
    return sorted(runs, key=lambda run: -run.started)


def clean(folder: Path, *, cache: bool = False, remove: bool = True) -> list[Waste]:
    """Remove the artefacts that no run uses, and return what they were; not while a run is at work there.

    `cache` takes the data, tokens and words that are kept between runs as well; they are made again when needed.
    """
    if not folder.is_dir():
        raise _no_folder(folder)
    with unused(folder):
        used = {name for _, facts in _records(folder) for name in facts["uses"]}
        # With a dot before their names those that were never finished.
        names = [name for start in ARTIFACTS for name in (f"{start}-*", f".{start}-*.part")]
        ours = [path for name in names for path in (folder / "artifacts").glob(name)]
        idle = [path for path in sorted(ours) if path.is_dir() and path.name not in used]
        waste = {path: [path] for path in idle}
        if cache:
            waste[folder / "cache"] = [path for name in CACHED for path in (folder / "cache").glob(f"{name}-*")]
        wasted = [Waste(path, sum(map(_size, parts))) for path, parts in waste.items() if parts]
        for path in [part for parts in waste.values() for part in parts] if remove else ():
            shutil.rmtree(path)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        return wasted


def _no_folder(folder: Path) -> UserError:
    return UserError(f"{folder}: no such folder; name the output folder of your recipes")


def _records(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if not folder.is_dir():
        raise _no_folder(folder)
    for path in sorted(folder.glob(f"*/{RECORD}")):
        try:
            facts = read_record(path)
            facts["uses"], facts["state"], facts["started"]
        except (OSError, ValueError, KeyError, TypeError):
            # Without its list of artefacts it is unknown what it needs, so nothing may be cleaned.
            raise UserError(
                f"{path} cannot be read as the record of a run; remove it, or run its recipe again"
            ) from None
        yield path, facts


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
