"""Shards: the files of a labelling job, which of them are finished, and how one of them is labelled, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from glob import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from understill.atomic import CHECKSUMS, fingerprint, known_digest, read_record, sync, write_bytes, write_record
from understill.code_digest import code_digest
from understill.data.files import BadFile, data_file
from understill.errors import Problem, UserError
from understill.inference.loading import load
from understill.inference.predictor import Predictor
from understill.inference.stream import Predicted, predict_file

log = logging.getLogger(__name__)

#: The folder of an output folder that says which shards are finished, and of what.
DONE = ".done"
#: What an output's name ends with, by the format of the input; of others it is Parquet.
ENDINGS = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv"}
#: Files of a model folder that decide none of its answers.
BESIDE = ("README.md", "recipe.yaml", "scores.json")


@dataclass(frozen=True)
class LabelJob:
    """What is asked for: a model, the shards it labels, and how."""

    model: Path
    source: Path  # a folder, a file or a pattern
    target: Path
    tasks: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    device: str = "auto"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return all that decides an output shard besides its input."""
        return {
            "format": 1,
            "model": model_digest(self.model),
            "code": code_digest("targets"),
            "tasks": sorted(self.tasks),
            "columns": list(self.columns or ()),
        }


@dataclass(frozen=True)
class Shard:
    """One input file, where its labelled rows go, and the record that says that they are whole."""

    source: Path
    target: Path
    record: Path


def find_shards(job: LabelJob) -> list[Shard]:
    """Return the shards of a folder and the folders in it, or of a pattern; hidden files are none."""
    source, target = job.source, job.target.resolve()
    if source.is_dir():
        root, paths = source, [path for path in sorted(source.rglob("*")) if path.is_file()]
    else:
        root, paths = source.parent, sorted(source.parent.glob(source.name)) if source.parent.is_dir() else []
    names = [path.relative_to(root) for path in paths]
    names = [name for name in names if not any(part.startswith((".", "_")) for part in name.parts)]
    if not names:
        raise UserError(f"--in {source}: there are no files → name a folder of Parquet or JSONL files")
    if root.resolve() in (target, *target.parents):
        raise UserError(f"--out {job.target}: this lies in the folder that is read → name a folder outside it")
    shards: dict[Path, Shard] = {}
    for name in names:
        file = data_file(root / name)
        stem = name.name.removesuffix("".join(name.suffixes[-2 if file.codec else -1 :]))
        output = name.with_name(stem + ENDINGS.get(file.format, ".parquet"))
        if output in shards:
            raise UserError(f"{shards[output].source} and {root / name} would both become {output} → rename one")
        shards[output] = Shard(root / name, job.target / output, job.target / DONE / f"{output}.json")
    return list(shards.values())


def model_digest(path: Path) -> str:
    """Return the digest of what decides a model's answers, by the checksums of its folder."""
    from understill.models.manifest import find_model

    folder = path if (path / CHECKSUMS).exists() else find_model(path)
    try:
        files = read_record(folder / CHECKSUMS)["files"]
    except (OSError, ValueError, LookupError) as error:
        raise UserError(f"{folder / CHECKSUMS}: {error} → copy the whole folder again") from None
    return fingerprint({name: sums for name, sums in files.items() if name not in BESIDE})


# What is finished -----------------------------------------------------------------------------------------------------


def finished(job: LabelJob, shard: Shard) -> bool:
    """Tell whether a shard was labelled so, and neither its rows nor its labels have changed since.

    A file of the same size and time is taken for the same; where the time differs, its content decides.
    """
    try:
        record = read_record(shard.record)
        now, then = shard.source.stat(), record["input"]
        same = (record["job"], record["output"], then["size"]) == (job.facts, shard.target.stat().st_size, now.st_size)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return same and bool(now.st_mtime_ns == then["time"] or known_digest(shard.source) == then["sha256"])


def left_over(job: LabelJob, shards: Sequence[Shard]) -> list[Path]:
    """Return labelled shards whose input is no longer among those to be labelled."""
    extra = set(_records(job)) - {shard.record for shard in shards}
    return sorted(job.target / path.relative_to(job.target / DONE).with_suffix("") for path in extra)


def refuse_others(job: LabelJob) -> None:
    """Refuse a folder with shards of another job: nobody could tell whose labels are whose."""
    for path in _records(job):
        try:
            other = read_record(path).get("job") != job.facts
        except (OSError, ValueError):
            continue  # damaged; its shard is labelled again
        if other:
            what = "it holds shards labelled by another model, with other options or by another understill"
            raise UserError(f"--out {job.target}: {what} → name another folder, or remove this one")


def _records(job: LabelJob) -> Iterator[Path]:
    return (path for path in (job.target / DONE).rglob("*.json") if not path.name.startswith("."))


@contextmanager
def held(target: Path) -> Iterator[None]:
    """Hold an output folder: a second call would do the same work again."""
    if target.exists() and not target.is_dir():
        raise UserError(f"--out {target}: this is a file; name a folder")
    (target / DONE).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(target / DONE / "lock", timeout=0):
            yield
    except Timeout:
        raise UserError(f"--out {target}: another call is labelling there → wait until it has finished") from None


# One shard ------------------------------------------------------------------------------------------------------------


def try_shard(
    job: LabelJob, shard: Shard, count: Callable[[int], None], threads: int | None = None
) -> Predicted | Problem:
    """Label one shard, or return what is wrong: with the model, the shard or its surroundings."""
    try:
        predictor = _load(job.model, job.device, threads)
    except UserError as error:
        return Problem(str(job.model), str(error))
    try:
        return _label(predictor, job, shard, count)
    except BadFile as error:  # it names its place
        return error.problem
    except Exception as error:
        log.info("%s failed", shard.source, exc_info=True)
        return Problem(str(shard.source), str(error) or type(error).__name__)


@cache
def _load(model: Path, device: str, threads: int | None) -> Predictor:
    """Load a model once in a process."""
    return load(model, device, threads)


def _label(predictor: Predictor, job: LabelJob, shard: Shard, count: Callable[[int], None]) -> Predicted:
    """Label one shard; the record is written when its rows have reached the disk."""
    source, target = shard.source, shard.target
    known = source.stat()
    facts = {"size": known.st_size, "time": known.st_mtime_ns, "sha256": known_digest(source)}
    for folder in (target.parent, shard.record.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for half_written in target.parent.glob(f".{escape(target.name)}.*"):  # by a process that was killed
        half_written.unlink(missing_ok=True)
    if holds_nothing(source):
        write_bytes(target, b"")
        done = Predicted(0, 0, job.tasks)
    else:
        options: dict[str, Any] = {"logits": True, "may_be_empty": True}
        done = predict_file(predictor, source, target, job.tasks or None, job.columns, count, **options)
    sync(target.parent)
    counts = {"rows": done.rows, "unanswered": done.unanswered}
    write_record(shard.record, {"job": job.facts, "input": facts, "output": target.stat().st_size, **counts})
    return done


def holds_nothing(path: Path) -> bool:
    """Tell whether a text file is empty, like those that parallel writers leave behind."""
    return path.stat().st_size == 0 and data_file(path).format != "parquet"
