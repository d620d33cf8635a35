"""Artifacts: folders named by the fingerprint of all that went in, whole or absent, with a checksum of every file."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from understill.atomic import (
    CHECKSUMS,
    discard,
    fault_of,
    fingerprint,
    hidden_folder,
    publish,
    read_record,
    seal,
    sweep,
)
from understill.code_digest import code_digest
from understill.errors import UserError
from understill.events import Waiting, Watch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """One thing that is made: the facts that decide it, and the folder that holds it once it is whole."""

    kind: str  # such as "model"; what the folder's name begins with
    name: str  # for people; empty where there is none
    facts: Mapping[str, Any] = field(compare=False, repr=False)  # everything that decides what it holds
    root: Path
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", fingerprint({"code": code_digest(self.kind), **self.facts}))

    @property
    def folder(self) -> Path:
        """Where it lies when it is made."""
        return self.root / "-".join(filter(None, (self.kind, self.name, self.fingerprint[:16])))

    @property
    def done(self) -> bool:
        """Whether it was made, without a look at what its files hold."""
        return (self.folder / CHECKSUMS).exists()

    def sound(self) -> bool:
        """Tell whether it is there and every file matches its checksum; each is read once in a process."""
        return self.done and not self._fault()

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the content of one of its JSON files; None where it has no such file, or is not sound."""
        if not self.sound() or name not in read_record(self.folder / CHECKSUMS)["files"]:
            return None
        values: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        return values

    def _fault(self) -> str:
        return fault_of(self.folder, {"fingerprint": self.fingerprint})

    def clear(self) -> None:
        """Remove what was made and does not match its checksums, and say so; what is sound or unfinished stays."""
        if self.done and (fault := self._fault()):
            self._discard(fault)

    def _discard(self, fault: str) -> None:
        log.warning("%s does not match its checksums (%s); it is made again", self.folder, fault)
        discard(self.folder)

    @contextmanager
    def build(self) -> Iterator[Path]:
        """Give a hidden folder to write in, which becomes the artefact when all went well.

        Of two processes that make the same, the second keeps the first's.
        """
        if self.folder.exists() and (fault := self._fault()):
            self._discard(fault)
        sweep(self.root, f".{self.kind}-*.part")
        with hidden_folder(self.folder) as part:
            yield part
            seal(part, self._header())
            if not publish(part, self.folder, self.sound):
                raise UserError(f"{self.folder} cannot be replaced; remove it by hand")

    def seal(self, parts: Collection[str]) -> None:
        """Call what was made in its own folder, bit by bit, finished: these parts of it count from now on."""
        seal(self.folder, self._header(), parts)

    def _header(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "fingerprint": self.fingerprint, "facts": dict(self.facts)}

    @contextmanager
    def exclusive(self, what: str, watch: Watch) -> Iterator[None]:
        """Let one process at a time make it; the others wait, and then find it made."""
        lock = self._lock()
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            watch(Waiting(what))
            held = lock.acquire()
        with held:
            yield

    def acquire(self, what: str, watch: Watch) -> Generator[None, None, FileLock]:
        """Take its lock, giving way while another process has it.

        Whoever holds locks of several must not wait for one: the other process may be waiting for one of theirs.
        """
        lock = self._lock()
        for attempt in itertools.count():
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                if attempt == 0:
                    watch(Waiting(what))
            time.sleep(1e-3)
            yield
        return lock

    def _lock(self) -> FileLock:
        self.root.mkdir(parents=True, exist_ok=True)
        return FileLock(f"{self.folder}.lock")
