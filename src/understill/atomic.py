"""Atomic writes: files and folders that are whole or absent, also after a crash, with checksums of their content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from errno import EMFILE, ENFILE, ENOMEM
from glob import escape
from pathlib import Path
from typing import Any

from understill.errors import UserError

#: The file of a folder that has the checksum of each of its files.
CHECKSUMS = "checksums.json"
#: What people may rewrite in a folder, and no program reads.
FREE = ("README.md",)
#: Nanoseconds within which two writes may leave a file with one and the same time.
TICK = 20_000_000
#: Seconds without a write after which a half-written folder is taken for a dead process's leftover.
STALE = 3600.0


def sync(path: Path) -> None:
    """Make sure a file, or the names in a folder, have reached the disk."""
    if path.is_dir() and os.name != "posix":
        return  # elsewhere folders cannot be opened
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def hidden_file(path: Path) -> Iterator[Path]:
    """Give the place of a hidden file beside another one, whose place it takes when all went well."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield building
        sync(building)
        building.replace(path)
    finally:
        building.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with hidden_file(path) as building:
        building.write_bytes(content)
    sync(path.parent)


def write_json(path: Path, values: Any) -> None:
    """Write JSON, whole or not at all."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def fingerprint(values: Any) -> str:
    """Return the digest of plain values; the same values give the same digest on every machine."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Checksums ------------------------------------------------------------------------------------------------------------


def write_record(path: Path, values: Mapping[str, Any]) -> None:
    """Write facts as JSON with a checksum of their own."""
    write_json(path, {**values, "checksum": fingerprint(values)})


def read_record(path: Path) -> dict[str, Any]:
    """Return what `write_record` wrote; a ValueError says that it was changed or damaged since."""
    values = json.loads(path.read_bytes())
    if not isinstance(values, dict) or values.pop("checksum", None) != fingerprint(values):
        raise ValueError(f"{path.name} does not match its own checksum")
    return values


def read_facts(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON file of a model holds, or refuse the file."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: broken: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: broken: it holds no mapping")
    return values


def seal(
    folder: Path, facts: Mapping[str, Any] | None = None, parts: Collection[str] = (), beside: Collection[Path] = ()
) -> None:
    """Write down what each file of a folder holds, or of some parts of it, and files elsewhere that it stands on.

    What is added later does not matter.
    """
    files = {Path(os.path.relpath(path, folder)).as_posix(): path for path in (*_files(folder, parts), *beside)}
    files.pop(CHECKSUMS, None)
    for path in {*files.values(), *(path.parent for path in files.values())}:
        sync(path)
    sums = {name: [path.stat().st_size, known_digest(path)] for name, path in sorted(files.items())}
    write_record(folder / CHECKSUMS, {**(facts or {}), "files": sums})


def _files(folder: Path, parts: Collection[str]) -> Iterator[Path]:
    """Yield the files of a folder that are not hidden, or those of some parts of it."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in FREE or (parts and path.name not in parts):
            continue
        if path.is_dir():
            yield from _files(path, ())
        else:
            yield path


def fault_of(folder: Path, facts: Mapping[str, Any] | None = None, names: Collection[str] = ()) -> str:
    """Say what is wrong with a folder that was sealed with these facts; empty where every file holds what it should.

    With names, only these files are read.
    """
    return next(faults_in(folder, facts, names), "")


def faults_in(folder: Path, facts: Mapping[str, Any] | None = None, names: Collection[str] = ()) -> Iterator[str]:
    """Yield all that is wrong with a sealed folder, file by file."""
    try:
        record = read_record(folder / CHECKSUMS)
        files = [(str(name), int(size), str(digest)) for name, (size, digest) in record["files"].items()]
    except FileNotFoundError:
        yield f"{CHECKSUMS} is missing"
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise_exhausted(error)
        yield f"{CHECKSUMS} was changed or damaged"
        return
    if any(record.get(name) != value for name, value in (facts or {}).items()):
        yield f"{CHECKSUMS} is of something else"
        return
    for name, size, digest in files:
        if (not names or name in names) and (fault := _file_fault(folder / name, size, digest)):
            yield f"{name} {fault}"


def _file_fault(path: Path, size: int, digest: str) -> str:
    try:
        if not path.is_file():  # a device, say, of which reading has no end
            return "is missing"
        whole = path.stat().st_size == size and known_digest(path) == digest
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        raise_exhausted(error)
        return f"cannot be read: {error.strerror}"
    return "" if whole else "was changed or damaged"


def raise_exhausted(error: Exception) -> None:
    """Raise an error that says nothing of a file, only that this process may open or hold no more."""
    if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE, ENOMEM):
        raise error


def refuse_damage(folder: Path, names: Collection[str] = (), fix: str = "copy the whole folder again") -> None:
    """Refuse a sealed folder that is only read here where a file, or one of these, is missing or differs."""
    if (folder / CHECKSUMS).exists() and (fault := fault_of(folder, names=names)):
        raise UserError(f"{folder}: {fault} → {fix}")


def refuse_incomplete(folder: Path, names: Collection[str]) -> None:
    """Refuse a model's folder that has not these files, each bound by a checksum, or in which any file differs."""
    for name in (*names, CHECKSUMS):
        if not (folder / name).exists():
            raise UserError(f"{folder}: {name} is missing → copy the whole folder again")
    refuse_damage(folder)
    for name in set(names) - set(read_record(folder / CHECKSUMS)["files"]):
        raise UserError(f"{folder}: {CHECKSUMS} does not name {name} → copy the whole folder again")


def refuse_damaged_file(path: Path, fix: str) -> None:
    """Refuse a file that does not match the checksums of its folder, or of the folder around that."""
    for folder in path.parents[:2]:
        refuse_damage(folder, (path.relative_to(folder).as_posix(),), fix)


_known: dict[tuple[int, ...], str] = {}


def known_digest(path: Path) -> str:
    """Return the sha256 of a file's content, read once in a process while nobody writes to it."""
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _known:
        digest = file_digest(path)
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < TICK:
            return digest  # a write that is yet to come might leave the times as they are
        _known[key] = digest
    return _known[key]


# Folders --------------------------------------------------------------------------------------------------------------


def sweep(folder: Path, pattern: str) -> None:
    """Remove folders that processes which died left half-written; one still at work has written lately."""
    for part in folder.glob(pattern):
        try:
            newest = max(path.stat().st_mtime for path in (part, *part.iterdir()))
        except OSError:  # its owner removes it at this moment
            continue
        if time.time() - newest > STALE:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def hidden_folder(folder: Path) -> Iterator[Path]:
    """Give a hidden folder beside a folder's place; whatever is left there in the end is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent, f".{escape(folder.name)}.*.part")
    part = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.part")
    part.mkdir()
    try:
        yield part
    except OSError as error:
        if error.errno and error.filename is None:  # a full disk does not say which
            error.filename = str(folder)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def replacing(folder: Path, beside: Collection[Path] = ()) -> Iterator[Path]:
    """Give a hidden folder to write in, which takes a folder's place, sealed, when all went well.

    An old one is removed only when the new one stands.
    """
    with hidden_folder(folder) as part:
        yield part
        seal(part, beside=beside)
        if folder.exists():
            folder.rename(part.with_suffix(".old"))
        part.rename(folder)
        sync(folder.parent)
    for old in folder.parent.glob(f".{escape(folder.name)}.*.old"):
        shutil.rmtree(old, ignore_errors=True)


def publish(part: Path, folder: Path, sound: Callable[[], bool]) -> bool:
    """Rename a whole folder into place; where another is there already, keep it if it is sound.

    Of two processes that make the same, the second keeps the first's. False when it cannot be put there.
    """
    for _ in range(5):
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        else:
            sync(folder.parent)
            return True
        if sound():
            return True
        discard(folder)
    return False


def discard(folder: Path) -> None:
    """Move a broken folder aside in one step, then delete it; whoever has it mapped keeps what is mapped."""
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        folder.rename(aside)
    except FileNotFoundError:  # another process was quicker
        return
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)
