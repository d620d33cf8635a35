"""Verification: every file of runs, models and exports against its checksum, and what mends each that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understill.atomic import CHECKSUMS, faults_in, read_record
from understill.errors import UserError
from understill.inference.onnx import MANIFEST
from understill.models.roles import RECIPE, RECORD
from understill.pipeline.record import same_recipe
from understill.pipeline.runs import ARTIFACTS, CACHED

_CHANGED = "was changed or damaged"
_RESUMED = "left out by the next run, which goes on from an older one or begins again"
_REFUSED = "refused by every command → copy the whole folder again"


@dataclass(frozen=True)
class Verified:
    """What was checked: a sealed folder or a record, its files, what is wrong with it, and what mends that."""

    path: Path
    files: int
    bytes: int
    faults: tuple[str, ...]
    remedy: str


def verify(path: Path) -> list[Verified]:
    """Check a run with its artefacts, checkpoints and the cache, a model folder, an export, or an output folder."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder → name a run, a model, an export, or the folder that holds your runs")
    path = path.resolve() if path.name in ("", "..") else path  # its parent is needed
    if (path / RECORD).exists():
        checked = list(_run(path))
        checked += _cache(path.parent)
    elif (path / "artifacts").is_dir():
        checked = [each for record in sorted(path.glob(f"*/{RECORD}")) for each in _run(record.parent)]
        checked += _artifacts(path, _names(path, "artifacts", ARTIFACTS), "made again by the next run that needs it")
        checked += _cache(path)
    else:
        own = "artifacts" in path.resolve().parts
        remedy = "refused by commands, and made again by the next run of its recipe" if own else _REFUSED
        checked = list(_sealed(path, remedy))
        if (path / MANIFEST).exists() and not (path / CHECKSUMS).exists():
            checked.append(Verified(path, 0, 0, (f"{CHECKSUMS} is missing",), remedy))
    if not checked:
        raise UserError(f"{path}: nothing here has checksums → name a run, a model, an export, or a folder of runs")
    return list({each.path: each for each in reversed(checked)}.values())[::-1]  # runs share artefacts


def _run(folder: Path) -> Iterator[Verified]:
    """Check the record and the recipe of a run, what lies in its folder, and the artefacts that it uses."""
    again = f"made again by the next run that needs it: understill run {folder / RECIPE}"
    record, output = _record(folder / RECORD), folder.parent
    # What an unreadable record uses is unknown, so it may be anything that is there.
    uses = record["uses"] if record else _names(output, "artifacts", ARTIFACTS)
    faults = () if record and same_recipe(folder, record) else (f"{RECIPE if record else RECORD} {_CHANGED}",)
    yield _file(folder / RECORD, faults, "written again by the next run of your own recipe file")
    for name in uses if record and record["state"] == "done" else ():
        if not (output / "artifacts" / name).is_dir():
            yield Verified(output / "artifacts" / name, 0, 0, ("it is missing",), again)
    yield from _artifacts(output, uses, again)
    yield from _sealed(folder / "teachers", again)
    yield from _sealed(folder / "export", "refused by every command → remove it, and export it again")


def _names(output: Path, folder: str, kinds: tuple[str, ...]) -> list[str]:
    paths = (path for artefact in kinds for path in (output / folder).glob(f"{artefact}-*"))
    return sorted(path.name for path in paths if path.is_dir())


def _artifacts(output: Path, names: list[str], again: str) -> Iterator[Verified]:
    """Check artefacts that are made, and what those in the making can go on from."""
    for folder in (output / "artifacts" / name for name in names):
        sealed = list(_sealed(folder, again))
        if folder.is_dir() and not sealed and not (folder / "work").is_dir():
            yield Verified(folder, 0, 0, (f"{CHECKSUMS} is missing",), again)
        yield from sealed
        if (choice := folder / "work" / "tuned.json").exists():
            yield _file(choice, () if _record(choice) else (f"it {_CHANGED}",), again)


def _cache(output: Path) -> Iterator[Verified]:
    for name in _names(output, "cache", CACHED):
        yield _check(output / "cache" / name, "made again by the next run that needs it")
    if (answers := output / "cache" / "answers.sqlite").exists():
        yield _answers(answers)


def _answers(path: Path) -> Verified:
    """Check what language models answered."""
    from understill.teachers.llm.cache import AnswerCache  # with all that teachers need

    try:
        cache = AnswerCache(path.parent)
        fault = cache.damaged()
        cache.close()
    except UserError as error:
        fault = str(error)
    return _file(path, (fault,) if fault else (), "answers that differ are asked for again")


def _sealed(folder: Path, remedy: str) -> Iterator[Verified]:
    """Check all sealed folders in a folder, save those whose files another of them lists."""
    listed: set[Path] = set()
    for path in sorted(each.parent for each in folder.rglob(CHECKSUMS)):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path / CHECKSUMS not in listed:
            listed |= {path / name for name in _record(path / CHECKSUMS).get("files", {})}
            yield _check(path, _RESUMED if path.parent.name == "work" else remedy)


def _check(folder: Path, remedy: str) -> Verified:
    record = _record(folder / CHECKSUMS)
    files, faults = record.get("files", {}), tuple(faults_in(folder))
    if not faults and not folder.name.endswith(record.get("fingerprint", "")[:16]):
        faults = (f"{CHECKSUMS} is of something else",)
    return Verified(folder, len(files), sum(size for size, _ in files.values()), faults, remedy)


def _file(path: Path, faults: tuple[str, ...], remedy: str) -> Verified:
    return Verified(path, 1, path.stat().st_size, faults, remedy)


def _record(path: Path) -> dict[str, Any]:
    """Return what a record holds; nothing where it does not match its own checksum."""
    try:
        return read_record(path)
    except (OSError, ValueError):
        return {}
